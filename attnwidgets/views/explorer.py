"""The Explorer: heads, heatmap, text and controls of a trace in one output.

It consists of panels (`_panels`), each with its requests, scripts and options: heads, pairs, interventions
and texts, and where the trace has them removal, features, a picture or a sound. `explore` makes its trace.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import refuse_unknown
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.tracing.attention_files import is_dump
from attnwidgets.tracing.attention_sources import holds_attention
from attnwidgets.views.base.accepts import attention_of
from attnwidgets.views.base.asks_why import AsksWhy
from attnwidgets.views.base.needs import Needs, Panel
from attnwidgets.views.base.options import FilterOptions, write_out
from attnwidgets.views.base.texts import Texts
from attnwidgets.views.evaluate.handlers import removal_handlers
from attnwidgets.views.heads.handlers import START, Sorting, head_handlers, pair_handlers
from attnwidgets.views.interventions.intervention_view import Intervening
from attnwidgets.views.interventions.specs import checked_specs
from attnwidgets.views.media.handlers import (
    is_only_a_picture,
    on_grid_first,
    picture_handlers,
    pictured_of,
    sides_of,
    units_on_grid,
)
from attnwidgets.views.text.forgetting import forgetting_panel, forgotten
from attnwidgets.views.text.predictions import prediction_handlers
from attnwidgets.views.wire.axes import base_of
from attnwidgets.views.wire.handlers import Handler
from attnwidgets.views.wire.reader import TILE_VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from attnwidgets.circuits.scores.cell import Cell
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.statistics.table import HeadStatistics
    from attnwidgets.views.base.accepts import Content
    from attnwidgets.views.base.link import Link
    from attnwidgets.views.features.features import ShownFeatures
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

SENTENCE = "sentence"
WORD = "word"
_OF_FEATURES = "its features are those of this text; features= takes the SAE itself as well"


def _on_trace(shown: Any, features: Any, stats: Any) -> ShownFeatures:
    # Not at the top: few Explorers show features, and the first view of a session waits for imports.
    from attnwidgets.views.features.features import ShownFeatures

    return ShownFeatures.on_trace("Explorer", shown, features, stats)


class Explorer(AsksWhy, Intervening):
    """Grid of heads, heatmap, text and controls in one output, with methods, units and predictions to choose.

    For a trace it offers every method of `aw.methods()` that gives a map or attributions, by token, word and
    sentence. Attention and rollout are available immediately; any other method is computed when it is chosen,
    layer by layer as layers are opened, and never while a cell is running. A long computation shows its
    progress and can be cancelled. Methods that do not support the trace are grey, with the reason.

    `methods=` and `units=` restrict the choice, so that an assignment need not show its solution.
    `explorer.selection.method = "alti"` chooses a method from Python.

    `k`, or a right click on a head of the grid, knocks a head out. Active interventions are listed at the top
    with an undo, the predictions are compared before and after, and `explorer.interventions()` returns them
    for `trace.rerun`; see `InterventionView`. **Why?** next to a pinned weight of attention, or w, opens
    a `WhyView` below it, which splits the score of query and key (`aw.why`), also by the features of an SAE
    of the states that the head reads.

    With a kernel, the pencil next to the text (or a double click on it) lets the reader type another, which
    is traced as the first text was and shown here and in linked views; see `show_text`. Maps of the texts of
    a list are computed and sent when a text is chosen.

    A picture, with maps over it as in `ImageView`, replaces heads and heatmap. Maps over a sound
    stand under its wave and spectrogram, as in `AudioView`; it opens by words, if `aw.speech.align` finds
    their times, and `explorer.trace` is then the trace that has them.

    A long text (more than 1,448 tokens) opens in sentences if it has several, with a note; `unit="token"`, or
    a choice in the view, shows its tokens: maps in which a cell is the largest of several, and exact rows.

    Args:
        shown: A trace, a MixingMap or Attributions; or a list of traces, between which a menu switches.
        features: An SAE, or the result of `aw.sae_features`; the text is then also shown coloured by its
            features, see `FeatureStrip`. The slider chooses from a list of SAEs of several layers.
        stats: The result of `aw.feature_stats` for these SAEs.
        marks: Outlined cells `(query, key)`, or indices of outlined elements, counted in the displayed unit.
        method: The method that the view opens with; None: the first of those offered.
        sort: The statistic, or the table of heads, that heads are sorted by at first; see `HeadGrid`.
    """

    _VIEW = "Explorer"
    CLAIMS = True
    NEEDS = Needs(("explorer", "layers", "filters", "grid", "interventions"), thumbnails=True)
    _OPTIONS = FilterOptions
    _HEIGHT = 558
    _MANY_METHODS = True
    _MARKS = "both"

    def __init__(
        self,
        shown: Any,
        *,
        features: Any = None,
        stats: Any = None,
        marks: Sequence[Any] = (),
        methods: Sequence[str] = (),
        method: str | None = None,
        sort: str | HeadStatistics = "",
        **options: Unpack[FilterOptions],
    ) -> None:
        shown = self._begun(shown, features)
        self._sort, self._stats_given = sort, stats
        self._features = None if features is None else _on_trace(shown, features, stats)
        self.pictured = pictured_of(shown)
        self.panels = tuple(self._panels(shown if is_trace(shown) else None))
        super().__init__(shown, marks=marks, methods=methods, **options)
        if base_of(self.selection.method) not in {*self._link.keys, *self.store.menu}:
            # Another view may have selected a method that is not offered here, such as SAE features.
            self.selection.method = self._options["methods"][0]
        if method is not None:
            self.selection.method = method
        if self._features is not None:
            from attnwidgets.views.features.features import show_features

            show_features(self, self._features, None)
        if self.pictured is not None:
            self.add_options(canNorm=getattr(self.pictured, "model", None) is not None)

    def _panels(self, trace: Any) -> Iterator[Panel]:
        """Yield the panels of this view: the last three only where the trace or `features=` has them.

        Args:
            trace: The trace that is shown; None if the view was given explanations.
        """
        yield Panel(lambda: head_handlers(self, self._sorting), options=self._sorting_options)
        yield Panel(lambda: pair_handlers(self, trace) | prediction_handlers(trace))
        yield Panel(self._intervention_handlers)
        yield forgetting_panel(self)
        follow, text = (Handler(answer, runs_model=True) for answer in (self._follow, self._show_other))
        yield Panel(lambda: {"follow": follow, "text": text})
        if removal := removal_handlers(self, trace):
            yield Panel(lambda: removal, Needs(("removal",)))
        if (features := self._features) is not None:
            shows = partial(features.handlers, self, table=False, panel=True, strip=True)
            yield Panel(shows, Needs(("features",)))
        if (pictured := self.pictured) is not None:
            matrices = not is_only_a_picture(pictured)
            needs = Needs(("image",), media=True, matrices=matrices)
            yield Panel(partial(picture_handlers, self, pictured), needs)
        if trace is not None and trace.id in self._spoken:
            from attnwidgets.views.media.spoken import sound_handlers

            heard = partial(sound_handlers, self, trace, *self._spoken[trace.id])
            yield Panel(heard, Needs(("audio",), media=True), self._sound_options)

    def _begun(self, shown: Any, features: Any) -> Any:
        """Return the trace to begin with, of those in a list; of a sound, the trace with its words."""
        self._features_given = features
        self._spoken: dict[str, tuple[Any, str]] = {}
        if is_trace(shown):
            begun = self._with_words(shown)
            if begun is not shown:
                self._texts = Texts([begun])
            return begun
        if not isinstance(shown, (list, tuple)) or not shown or not all(map(is_trace, shown)):
            return shown
        shown = [self._with_words(trace) for trace in dict.fromkeys(shown)]
        if self._text_refusal(shown[0]) == _OF_FEATURES:
            raise TypeError(
                "Explorer(features=...) holds the features of one text, and several were given: give the SAE."
            )
        self._texts = Texts(shown)
        return shown[0]

    def _with_words(self, trace: Any) -> Any:
        """Return a trace of a sound with words on its frames, if they can be aligned; others as they are."""
        if trace.sound is None:
            return trace
        from attnwidgets.views.media.spoken import has_frames, words_of_trace

        if not has_frames(trace):
            return trace
        times, worded, why = words_of_trace(trace)
        self._spoken[worded.id] = (times, why)
        return worded

    def _text_refusal(self, trace: Any) -> str:
        """Return why no other text can be typed, in words, or ""."""
        from attnwidgets.sae.feature_activations import FeatureActivations
        from attnwidgets.tracing.retrace import refusal

        given = self._features_given
        listed = given if isinstance(given, (list, tuple)) else [given]
        return (
            _OF_FEATURES if any(isinstance(item, FeatureActivations) for item in listed) else refusal(trace)
        )

    def _join(self, start: Mapping[str, Any]) -> Link:
        link = super()._join(start)
        if self._texts is not None:
            self._options["texts"] = self._texts.describe(self._text_refusal(self._texts.base))
        return link

    def _show_other(self, text: str | None = None, index: int | None = None) -> Answer:
        """Show another text: a typed text, or a text of the menu."""
        texts = self._texts
        if texts is None:
            raise ValueError("this view was given a map, which is of one text; give it the trace.")
        if index is None and not str(text or "").strip():
            raise ValueError("the text is empty.")
        if index is None and self._text_refusal(texts.base):
            raise ValueError(f"no other text can be typed: {self._text_refusal(texts.base)}.")
        self.show_text(str(text) if index is None else int(index))
        return {"shown": texts.shown}, []

    def _content_of(self, shown: Any, methods: Sequence[str], units: Sequence[str]) -> Content:
        content = super()._content_of(shown, methods, units)
        # Of a picture and a caption that are read apart, the picture is shown first.
        return content if self.pictured is None else on_grid_first(content)

    def _sorting_options(self) -> dict[str, Any]:
        self._sorting = Sorting.of(self._VIEW, self._sort, self.content.explanations)
        return {"grid": START | {"sort": self._sorting.name}} if self._sorting.name else {}

    def _features_for(self, cell: Cell) -> dict[str, Any]:
        if self._features_given is None:
            return {}
        from attnwidgets.views.features.features import sae_read_by

        return sae_read_by(cell, self._features_given, self._stats_given)

    def _forgotten(self, source: Source, layer: int, head: int | str) -> Mapping[str, NDArray[np.float64]]:
        return forgotten(self, source, layer, head)

    def _sound_options(self) -> dict[str, Any]:
        from attnwidgets.views.media.spoken import is_heard

        return {
            "heard": sorted({item.stack or "self" for item in self.content.explanations if is_heard(item)})
        }

    def _first_unit(self) -> str:
        main = self.content.main
        if self._options["units"]:
            return super()._first_unit()
        on_grid = units_on_grid(main) if self.pictured is not None else []
        if on_grid:
            return on_grid[0]
        trace = self.content.trace
        if trace is not None and trace.id in self._spoken and WORD in main.available_units():
            return WORD
        is_long = isinstance(main, MixingMap) and len(main.query) * len(main.key) > TILE_VALUES
        if not is_long or SENTENCE not in main.available_units():
            return super()._first_unit()
        sentences = [axis.units.get(SENTENCE) for axis in (main.query, main.key)]
        several = all(unit is not None and sum(not flag for flag in unit.special) > 1 for unit in sentences)
        return SENTENCE if several else super()._first_unit()

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.matrices import explorer_sheet
        from attnwidgets.views.still.patches import picture_sheet

        if self._shows_picture:
            return picture_sheet(self)
        self.explain_predictions(1)
        return explorer_sheet(self, theme)

    def _preview(self, theme: Theme) -> Sheet | None:
        from attnwidgets.views.still.matrices import preview_sheet

        return super()._preview(theme) if self._shows_picture else preview_sheet(self.presentation, theme)

    @property
    def _shows_picture(self) -> bool:
        """Whether the map that is shown lies over a picture."""
        return self.pictured is not None and bool(sides_of(self.presentation.source)[1].patches)

    def describe(self) -> str:
        """Return this view in one or two sentences, from its numbers."""
        if not self._shows_picture:
            return super().describe()
        from attnwidgets.views.still.patches import words_of_picture

        return words_of_picture(self)

    def _follow(self, interventions: Any) -> Answer:
        """Record the attention of the changed model; answer with the method by which the maps show it."""
        trace = self._intervened.trace_with_model()
        specs = checked_specs(interventions, self._intervened.reach)
        changed = trace.rerun(*self._intervened.interventions(specs))
        maps = attention_of(changed)
        keys = self.store.register(maps, self._holder, self.needs, units=self._options["units"])
        self._link = replace(self._link, keys=(*self._link.keys, *keys))
        return {"method": keys[0]}, []


def explore(
    what: Any,
    tokenizer: Any = None,
    text: Any = None,
    *,
    tokens: Sequence[str] | None = None,
    text_pair: str | None = None,
    words: str | Sequence[str] | tuple[Sequence[str], Sequence[str]] | None = None,
    messages: Sequence[Mapping[str, Any]] | None = None,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    passages: Sequence[tuple[str, str]] | None = None,
    input_ids: Any = None,
    attention_mask: Any = None,
    target_text: str | None = None,
    image: Any = None,
    audio: Any = None,
    sampling_rate: int | None = None,
    max_new_tokens: int = 0,
    truncation: bool = False,
    memory: str | int = "1GB",
    force: bool = False,
    features: Any = None,
    stats: Any = None,
    methods: Sequence[str] = (),
    method: str | None = None,
    sort: str | HeadStatistics = "",
    **options: Unpack[FilterOptions],
) -> Explorer:
    """Return the Explorer of whatever you have: `aw.explore("gpt2", "The cat sat")`.

    A model runs once on the text, as `aw.Explorer(aw.trace(model, tokenizer, text))` does; numbers from
    elsewhere are shown as `aw.Explorer(aw.from_attentions(attentions, tokens))` does.

    Args:
        what: For `aw.trace`: a hub id, a folder, a model, a transformers pipeline, a model of nnsight, nnterp
            or TransformerLens. For `aw.from_attentions`: a model's output, a cache of TransformerLens or
            nnsight, arrays, a folder of saved attention. Or a trace, a list of traces, a MixingMap,
            Attributions.
        tokenizer: Its tokenizer or processor; not needed for a name, a pipeline or a wrapper, which contain
            theirs: `aw.explore(pipeline, "The cat sat")`.
        text: The text, or a list of texts to switch between; see `aw.trace` for this and the arguments below.
        tokens: Labels of given attention; by default those of `text` in `tokenizer`.
        text_pair: The second text of a pair.
        words: The text split into words, or the rule that splits it.
        messages: Chat messages, formatted with the tokenizer's template.
        tools: Tools for the template of `messages`.
        documents: Documents for the template of `messages`.
        chat_template_kwargs: Further variables of the template.
        passages: Passages of the text or messages, as pairs (title, text).
        input_ids: Token ids instead of a text.
        attention_mask: 0 where `input_ids` hold padding.
        target_text: The text that the decoder of an encoder-decoder model reads.
        image: A picture or its path, or a float tensor [channel, height, width].
        audio: Samples of a single channel, the path of a sound file, or an entry of a data set.
        sampling_rate: Sampling rate of `audio`, in hertz, if it does not say so itself.
        max_new_tokens: Number of tokens generated first, greedily.
        truncation: Cut a text that is too long instead of refusing it.
        memory: Bytes of attention weights that the trace may keep.
        force: Run a text that needs more memory than is free, too.
        features: As in `aw.Explorer`.
        stats: As in `aw.Explorer`.
        methods: As in `aw.Explorer`.
        method: As in `aw.Explorer`.
        sort: As in `aw.Explorer`.

    Raises:
        TypeError: Arguments out of order, or a keyword that is unknown or does not go with `what`.
        ValueError, IndexError: As `aw.trace`, `aw.from_attentions` and `aw.Explorer`.

    Example:
        >>> explorer = aw.explore(*aw.demo_model("classifier"), "A wonderful film.", methods=["rollout"])
        >>> explorer.selection.method
        'rollout'
        >>> weights = np.full((2, 4, 3, 3), 1 / 3)  # layer, head, query, key
        >>> aw.explore(weights, tokens=["The", "cat", "sat"]).trace.tokens
        ('The', 'cat', 'sat')
    """
    refuse_unknown(
        "explore", options.keys() - FilterOptions.__annotations__.keys(), signature(explore).parameters
    )
    reading: dict[str, Any] = {
        "text_pair": text_pair,
        "words": words,
        "messages": messages,
        "tools": tools,
        "documents": documents,
        "chat_template_kwargs": chat_template_kwargs,
        "passages": passages,
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "target_text": target_text,
        "image": image,
        "audio": audio,
        "sampling_rate": sampling_rate,
        "max_new_tokens": max_new_tokens,
        "truncation": truncation,
        "memory": memory,
        "force": force,
    }
    shown = _shown(what, tokenizer, text, tokens, reading)
    return Explorer(
        shown, features=features, stats=stats, methods=methods, method=method, sort=sort, **options
    )


def _shown(given_first: Any, tokenizer: Any, text: Any, tokens: Any, reading: Mapping[str, Any]) -> Any:
    """Return the argument of an Explorer: a trace, a list of traces, or an explanation.

    Args:
        given_first: A model or a wrapper, given attention, or a trace or explanation.
        tokenizer: A tokenizer, or the text.
        text: The text, or the tokenizer.
        tokens: Labels of given attention.
        reading: The other arguments of `aw.trace`.
    """
    from attnwidgets.tracing.from_attentions import from_attentions, labels_of
    from attnwidgets.tracing.recording.wrappers import is_model, sorted_arguments

    parts = given_first if isinstance(given_first, (list, tuple)) and given_first else [given_first]
    is_result = all(is_trace(part) or isinstance(part, (MixingMap, Attributions)) for part in parts)
    is_attention = not is_result and (
        is_dump(given_first) or (holds_attention(given_first) and not is_model(given_first))
    )
    if not is_result and not is_attention:
        if tokens is not None:
            raise TypeError("tokens= labels given attention; a model's tokens are those of its tokenizer.")
        from attnwidgets.tracing.recording.run import trace

        record: Any = trace  # none of its overloads alone
        return record(given_first, tokenizer, text, **reading)
    defaults = signature(explore).parameters
    goes = ("words", "memory") if is_attention else ()
    unused = [n for n, value in reading.items() if n not in goes and value is not defaults[n].default]
    if is_result:
        inputs = {"text": text, "tokenizer": tokenizer, "tokens": tokens}
        unused += [name for name, value in inputs.items() if value is not None]
    if unused:
        raise TypeError(
            f"{unused[0]}= is for a model that runs on a text, and a {type(given_first).__name__} was given."
        )
    if is_result:
        return given_first
    reader, text = sorted_arguments(given_first, tokenizer, text, has_input=tokens is not None)
    labels = labels_of(reader, text) if tokens is None else tokens
    return from_attentions(given_first, labels, **{name: reading[name] for name in goes})


write_out(explore, FilterOptions, [Explorer])
