"""The view of a sound: its wave, spectrogram and words over a map, all on an axis of seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.speech.word_times import WordTimes
from attnwidgets.tracing.media.picture import with_media
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.options import ViewOptions
from attnwidgets.views.base.view import View
from attnwidgets.views.media.heard import ALIGNMENT, HeardMaps, keys_of
from attnwidgets.views.media.spoken import PAGE_VALUES, heard_answer, words_answer, words_of_trace
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.accepts import Content
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.media.heard import Heard
    from attnwidgets.views.wire.handlers import Answer


class AudioView(View):
    """A sound on one axis of seconds: its wave, its spectrogram, its words, and a map of who listens where.

    Click a word, in the text, above the map or in it: its span is marked through everything and can be
    heard, and views of the same trace show its row. Drag over the wave for another span. Space plays the
    marked span, + and - zoom, and the arrows go from word to word. Next to the picture stand how sure the
    model was of each word, and the chosen word over time.

    The map opens with the map from which word times were read. Others are cross-attention (the row of a word
    is that which writes it: that of the token before), and the encoder's attention, by words of the sound or
    by time. Padding after the sound is not drawn; the share of a row that lies on it is reported.

    Args:
        sound: Result of `aw.speech.align`; or a trace of a sound, whose words are then aligned if that
            is possible; or a MixingMap or Attributions of such a trace.
        explanation: Explanation to show instead of attention: a MixingMap of the trace, over frames or words
            of the sound, such as `aw.value_zeroing(times.trace, stack="encoder", unit="word")`, or
            Attributions to them, with a row for every target.

    Raises:
        TypeError: `sound` is none of these, or `explanation` is neither.
        ValueError: The trace has no sound, or the explanation is not about it.

    Example:
        >>> import numpy as np
        >>> noise = np.random.default_rng(0).normal(0, 0.1, 16_000).astype("float32")
        >>> trace = aw.trace(*aw.demo_model("speech"), audio=noise, target_text=" Rain on leaves.")
        >>> view = aw.AudioView(trace)
        >>> view.times.words
        ('Rain', 'on', 'leaves', '.')
    """

    _VIEW = "AudioView"
    _OPTIONS = ViewOptions
    NEEDS = Needs(("audio",), media=True, typed_texts=False)
    _HEIGHT = 550

    def __init__(self, sound: Any, explanation: Any = None, **options: Unpack[ViewOptions]) -> None:
        if isinstance(sound, (MixingMap, Attributions)) and explanation is None:
            explanation, sound = sound, with_media(str(sound.trace_id))
        self._times, self._audio_trace, self._why = _words_of(sound)
        if explanation is not None and not isinstance(explanation, (MixingMap, Attributions)):
            raise TypeError(
                f"AudioView() shows a MixingMap or Attributions, not {type(explanation).__name__}."
            )
        if not options.get("units"):
            options["units"] = (_unit_shown(self._audio_trace, explanation),)
        super().__init__(self._audio_trace if explanation is None else explanation, **options)

    def _content_of(self, shown: Any, methods: Sequence[str], units: Sequence[str]) -> Content:
        content = super()._content_of(shown, methods, units)
        self._maps = HeardMaps(self._audio_trace, self._times, content.explanations)
        if not self._maps.maps:
            raise ValueError(
                f"columns of {content.main.method} are not frames of this trace's sound: compute "
                "it from the trace that AudioView() is given, with stack='encoder' or stack='cross'."
            )
        # Linked views open with the stack of the map that is shown.
        first = next(name for name in self._maps.names if name != ALIGNMENT)
        ordered = tuple(sorted(content.explanations, key=lambda item: item.stack != first))
        return replace(content, explanations=ordered, trace=self._audio_trace)

    @property
    def times(self) -> WordTimes:
        """The words of the sound, with their times.

        Raises:
            AttributeError: The sound has no aligned words; the message says why.
        """
        if self._times is None:
            raise AttributeError(f"the words of this sound are not known: {self._why}")
        return self._times

    def word(self) -> int | None:
        """Return the number of the pinned word in `times`; None if none is pinned."""
        pinned = self.selection.pinned
        if pinned is None or self._times is None or pinned.unit != "word":
            return None
        side = "written" if self.selection.stack in ("cross", "decoder") else "spoken"
        words = self._words()[0]["words"]
        return next((index for index, item in enumerate(words) if item[side] == pinned.query >= 0), None)

    def value(
        self,
        row: int,
        second: float,
        *,
        map: str | None = None,  # noqa: A002 - it names a map
        rows: str | None = None,
        layer: int | None = None,
        head: int | str | None = None,
    ) -> float:
        """Return the number that the map has at a second of the sound.

        Args:
            row: Number of the row, from 0.
            second: The second.
            map: "alignment", "cross", "encoder" or "self"; None: the map that the view opens with.
            rows: "words", "tokens" or "time"; None: the first of them that the map has.
            layer: The layer; None: the selected layer.
            head: The head, "mean" or "max"; None: the selected head.

        Raises:
            ValueError: The map or its rows are unknown.
            IndexError: The row, layer or head is out of range, or the second is not in the sound.
        """
        name = next(iter(self._maps.names)) if map is None else map
        kind = self._maps.rows_of(name)[0] if rows is None else rows
        heard = self._heard_at(name, kind, layer, head)
        column = int(second / heard.step + 1e-9)
        if not (0 <= row < len(heard.values) and second >= 0 and column < heard.values.shape[1]):
            raise IndexError(
                f"row {row} at {second} s is out of range: there are rows 0 to {len(heard.values) - 1}, and "
                f"{heard.values.shape[1] * heard.step:.2f} s."
            )
        return float(heard.values[row, column])

    def _heard_at(
        self, name: str, rows: str, layer: int | None = None, head: int | str | None = None
    ) -> Heard:
        """Return a map in the selected layer and head, or those given."""
        number = self._layer_of(name) if layer is None else layer
        return self._maps.of(name, rows, number, self._head_of(name) if head is None else head)

    def _layer_of(self, name: str) -> int:
        return min(self._maps.layers_of(name), key=lambda number: abs(number - int(self.selection.layer)))

    def _head_of(self, name: str) -> int | str:
        heads = self._maps.heads_of(name)
        if heads is None:
            return "-"
        chosen: int | str = self.selection.head
        if chosen == "-":
            return "mean"
        return chosen if isinstance(chosen, str) else min(heads, key=lambda number: abs(number - int(chosen)))

    def _layer_and_head(self, name: str) -> str:
        """Return the shown layer and head of a map, as ", layer 1, head 3"; "" of a map without either."""
        if name == ALIGNMENT:
            return ""
        head, base = self._head_of(name), self.options["indexBase"]
        layer = f", layer {self._layer_of(name) + base}" if len(self._maps.layers_of(name)) > 1 else ""
        if isinstance(head, str):
            return layer + (f", {head} over heads" if head != "-" else "")
        return f"{layer}, head {head + base}"

    def _numbers(self) -> Kinds:
        return super()._numbers() | {"heard": self._heard_paths}

    def _heard_paths(self, row: int, second: float, **at: Any) -> Iterator[Path]:
        yield self, f".value({listed(int(row), round(float(second), 3), **at)})"

    def _handlers(self) -> Mapping[str, Handler]:
        return {
            "words": Handler(self._words),
            "heard": Handler(
                self._heard,
                runs_model=not all(map(self._maps.is_at_hand, self._maps.maps)),
                for_page=self._for_page,
                prefetched=self._opening_map,
            ),
        }

    def _words(self) -> Answer:
        """Answer with the words, and which maps there are: `SpokenWords` of audio/heard.ts."""
        return words_answer(self._maps, self._why), []

    def _heard(self, map: str, rows: str, layer: int, head: int | str) -> Answer:  # noqa: A002 - the wire's name
        """Answer with a map, float32 [row, column]: `HeardMap` of audio/heard.ts."""
        return heard_answer(self._maps.of(map, rows, layer, head), rows)

    def _opening_map(self) -> Iterator[dict[str, Any]]:
        name = next(iter(self._maps.names))
        if self._maps.is_at_hand(name):
            yield self._arguments(name, self._maps.rows_of(name)[0])

    def _arguments(self, name: str, rows: str) -> dict[str, Any]:
        """Return the arguments by which the browser requests a map in the selected layer and head."""
        if name == ALIGNMENT:
            return {"map": name, "rows": rows, "layer": 0, "head": "-"}
        return {"map": name, "rows": rows, "layer": self._layer_of(name), "head": self._head_of(name)}

    def _for_page(self) -> Iterator[dict[str, Any]]:
        """Yield the requests that a page answers: all kinds of rows of the shown map, the first of others."""
        room = PAGE_VALUES
        seen = [self._arguments(name, rows) for name in self._maps.names for rows in self._maps.rows_of(name)]
        yield from seen
        for name in self._maps.maps:
            rows = self._maps.rows_of(name)[0]
            size = self._maps.of(**_as_read(self._arguments(name, rows))).values.size
            heads = self._maps.heads_of(name)
            for layer in self._maps.layers_of(name):
                for head in ("-",) if heads is None else (*heads, "mean", "max"):
                    room -= size
                    request = {"map": name, "rows": rows, "layer": layer, "head": head}
                    if room >= 0 and request not in seen:
                        yield request

    def describe(self) -> str:
        """Return two sentences on the sound: its words with their times, and the map."""
        sound = self._audio_trace.sound
        seconds = "" if sound is None else f"{sound.heard:.2f} s of sound. "
        name, (label, _) = next(iter(self._maps.names.items()))
        heard = self._heard_at(name, self._maps.rows_of(name)[0])
        label += self._layer_and_head(name)
        peaks = heard.values.argmax(axis=1)
        most = [
            f"{label} at {column * heard.step:.2f} s"
            for label, column in zip(heard.labels[:12], peaks, strict=False)
        ]
        said = "" if self._times is None else f"{len(self._times)} words. "
        return f"{seconds}{said}{label}: each row is highest for {', '.join(most)}."

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.sounds import audio_sheet

        return audio_sheet(self, theme)


def _as_read(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of the wire as `HeardMaps.of` takes them."""
    return {"name": arguments["map"], **{name: arguments[name] for name in ("rows", "layer", "head")}}


def _words_of(sound: Any) -> tuple[WordTimes | None, Any, str]:
    """Return the words of a sound, its trace, and why words are missing.

    Raises:
        TypeError: It is neither words nor a trace.
        ValueError: The trace has no sound.
    """
    if isinstance(sound, WordTimes):
        return sound, sound.trace, ""
    if not is_trace(sound):
        raise TypeError(
            f"AudioView() takes a trace of a sound, or its words, not {type(sound).__name__}: "
            "aw.AudioView(aw.trace(model, processor, audio=wave, max_new_tokens=50))."
        )
    if sound.sound is None:
        raise ValueError("this trace has no sound: make it with aw.trace(model, processor, audio=wave).")
    return words_of_trace(sound)


def _unit_shown(trace: Any, explanation: MixingMap | Attributions | None) -> str:
    """Return the unit in which linked views and the store hold maps: words, if frames have them."""
    axes = (
        [keys_of(explanation)]
        if explanation is not None
        else [axis for s in trace.stacks for axis in trace.axes(s)]
    )
    worded = any("word" in axis.units and "frame" in axis.units for axis in axes)
    return "word" if worded else "frame" if explanation is None else explanation.unit
