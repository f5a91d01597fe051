"""Handlers of a view of a sound: its words, and maps whose columns are parts of its seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.speech.align import align
from attnwidgets.speech.word_times import WordTimes, frame_unit, known_times
from attnwidgets.tracing.media.picture import with_media
from attnwidgets.views.heads.handlers import source_of
from attnwidgets.views.media.handlers import layer_handler
from attnwidgets.views.media.heard import HeardMaps, elements_of_words, keys_of, token_ends
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.tracing.trace import Trace
    from attnwidgets.views.base.view import View
    from attnwidgets.views.media.heard import Heard
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

PAGE_VALUES = 300_000
"""Values of maps that a page holds: of every layer and head, if there are not more."""
_UNITS = ("token", "frame", "word")  # not the bins of a spectrogram


def words_of_trace(trace: Trace) -> tuple[WordTimes | None, Any, str]:
    """Return the words of a trace's sound, the trace with words on its frames, and why words are missing."""
    times = known_times(trace)
    if times is not None:
        return times, trace, ""
    try:
        times = align(trace)
    except ValueError as error:
        return None, trace, str(error)
    return times, times.trace, ""


def has_frames(trace: Any) -> bool:
    """Return whether a trace is of a sound, and its model's frames have times."""
    if trace.sound is None:
        return False
    try:
        frame_unit(trace)
    except ValueError:
        return False
    return True


def sound_of(explanation: Any) -> Any:
    """Return the trace behind a map or attributions over a sound; None if there is none in memory."""
    if not is_heard(explanation) or explanation.unit not in _UNITS:
        return None
    trace = with_media(str(explanation.trace_id))
    return trace if trace is not None and has_frames(trace) else None


def words_answer(maps: HeardMaps, why: str) -> dict[str, Any]:
    """Return the words of a sound, and which maps there are: `SpokenWords` of audio/heard.ts."""
    trace, times = maps.trace, maps.times
    stack = next(name for name in ("encoder", *maps.maps, *trace.stacks) if name in trace.stacks)
    audio = next((axis.units.get("word") for axis in trace.axes(stack) if "frame" in axis.units), None)
    names = () if times is None else times.words
    tokens = [] if times is None or not len(times.matrix) else token_ends(times)
    last = maps.frames.times[-1] if maps.frames.times else None
    words = zip(
        () if times is None else times,
        maps.written or [-1] * len(names),
        elements_of_words(audio, names),
        strict=True,
    )
    return {
        "words": [
            {
                "word": word.word,
                "start": word.start,
                "end": word.end,
                "p": word.probability if np.isfinite(word.probability) else None,
                "written": written,
                "spoken": spoken,
            }
            for word, written, spoken in words
        ],
        "tokens": [list(pair) for pair in tokens],
        "maps": [
            {"name": name, "label": label, "note": note, "rows": list(maps.rows_of(name))}
            for name, (label, note) in maps.names.items()
        ],
        "seconds": float(trace.sound.heard) if trace.sound is not None else 0.0,
        "window": float(last[1]) if last is not None else 0.0,
        "why": why or ("" if times is None else times.note),
    }


def heard_answer(heard: Heard, rows: str) -> Answer:
    """Return a map, float32 [row, column]: `HeardMap` of audio/heard.ts."""
    values = heard.values.astype("<f4")
    return {
        "rows": rows,
        "labels": list(heard.labels),
        "spans": [None if span is None else list(span) for span in heard.spans],
        "step": heard.step,
        "columns": values.shape[1],
        "what": heard.measure,
        "outside": None if heard.outside is None else heard.outside.tolist(),
        "path": [] if heard.path is None else heard.path.tolist(),
    }, [values.tobytes()]


def is_heard(explanation: Any) -> bool:
    """Return whether the keys of an explanation are frames of a sound, with times."""
    frames = keys_of(explanation).units.get("frame")
    return frames is not None and frames.times is not None


def heard_sources(view: View) -> list[Source]:
    """Return the sources of a view that can be shown over the seconds of a sound."""
    return [source for source in view.sources() if is_heard(source.explanation) and source.unit in _UNITS]


def sound_handlers(view: View, trace: Trace, times: WordTimes | None, why: str) -> dict[str, Handler]:
    """Return the handlers of a view that shows its sources over a sound, whatever the method.

    - "words", answered at once: `words_answer`.
    - "heard" (source, layer, head), answered at once, of layers that are ready: `heard_answer`. Rows are
      words if the source's unit is, else single tokens or parts of time, as in a heatmap; of attributions
      they are the targets.
    - "layer": `layer_handler`.

    Args:
        view: The view.
        trace: The trace of the sound, with words on its frames if there are any.
        times: Its words; None if there are none.
        why: Why there are none.
    """

    def words() -> Answer:
        return words_answer(HeardMaps(trace, times, view.content.explanations), why), []

    def heard(source: str, layer: int, head: int | str) -> Answer:
        requested = source_of(view, source)
        if requested.of_targets:
            maps = HeardMaps(trace, times, ())
            values = np.asarray(requested.layer(layer)[0], dtype=np.float64)
            return heard_answer(maps.of_targets(requested.explanation, requested.unit, values), "targets")
        maps = HeardMaps(trace, times, [requested.explanation], writes=False)
        kinds = maps.rows_of(requested.stack)
        rows = "words" if requested.unit == "word" and "words" in kinds else kinds[-1]
        return heard_answer(maps.of(requested.stack, rows, layer, head), rows)

    return {
        "words": Handler(words),
        "heard": Handler(heard, for_page=lambda: _for_page(view, trace), prefetched=lambda: _first(view)),
        "layer": layer_handler(view),
    }


def _first(view: View) -> Iterator[dict[str, Any]]:
    """Yield the map that a view opens with, unless it takes a computation."""
    state = view.presentation
    if state.layer in state.source.ready and state.source in heard_sources(view):
        yield {"source": state.source.id, "layer": state.layer, "head": state.head}


def _for_page(view: View, trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the requests that a page answers: the shown map, then every layer and head, small maps first."""
    first = list(_first(view))
    yield from first
    room = PAGE_VALUES
    columns = sum(not special for special in frame_unit(trace).special)

    def rows(source: Source) -> int:
        return min(len(source.axes()[0]["labels"]), columns)  # padding is not drawn

    for source in sorted(heard_sources(view), key=rows):
        heads = ("-",) if source.heads is None else (*source.heads, "mean", "max")
        for layer in source.ready:
            for head in heads:
                request = {"source": source.id, "layer": layer, "head": head}
                room -= rows(source) * columns
                if room >= 0 and request not in first:
                    yield request
