"""Explorer: heads, heatmap, text and controls of one trace, composed and linked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.base.accepts import is_trace
from attnwidgets.views.evaluate.handlers import removal_handlers
from attnwidgets.views.features.features import ShownFeatures, show_features
from attnwidgets.views.heads.handlers import head_handlers
from attnwidgets.views.interventions.handlers import Intervening
from attnwidgets.views.interventions.specs import TraceInterventions
from attnwidgets.views.text.predictions import prediction_handlers
from attnwidgets.views.wire.keys import base_of
from attnwidgets.views.wire.reader import TILE_VALUES, is_attributions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnwidgets.views.wire.handlers import Handler

SENTENCE = "sentence"


class Explorer(Intervening):
    """The four views in one output, with a choice of method and unit and the model's predictions.

    Of a trace it offers every method of `aw.methods()` that gives a map or attributions, by token, word and
    sentence. Attention and rollout are there; another method is computed when it is chosen, layer by layer
    as layers are opened, and not while a cell is running; what takes long shows how far it is and can be
    cancelled. Methods that the trace cannot serve are grey, with the reason.

    `methods=` and `units=` restrict it, so that an assignment need not show its answer; it opens with the
    first method named. `explorer.selection.method = "alti"` chooses from Python.

    `k`, or a right click on a head of the grid, knocks a head out; what is active stands at the top with an
    undo, the predictions show before and after, and `explorer.interventions()` hands it to `trace.rerun`; see
    `InterventionView`.

    A long text (more than 1,448 tokens) opens on sentences where it has several, and says so; `unit="token"`,
    or a choice in the view, shows its tokens: maps in which a cell stands for the largest of several, and
    exact rows.

    Args:
        shown: What `aw.trace` returned, or an explanation.
        features: An SAE, or what `aw.sae_features` returned (several of them: of several
            layers, among which the slider chooses); the text is shown coloured by their features as well, see
            `FeatureStrip`.
        stats: What `aw.feature_stats` says of them.
        **options: Everything else `View` takes.
    """

    _VIEW = "Explorer"
    SHOWS_ALL_HEADS = True
    PARTS: tuple[str, ...] = ("explorer", "layers", "filters", "grid", "interventions")
    _FILTERS = True
    _MANY_METHODS = True
    _MARKS = "both"

    def __init__(self, shown: Any, *, features: Any = None, stats: Any = None, **options: Any) -> None:
        self._predicts = shown if is_trace(shown) else None
        self._intervened = TraceInterventions.of(shown)
        self._features = (
            None if features is None else ShownFeatures.on_trace("Explorer", shown, features, stats)
        )
        if self._features is not None:
            self.PARTS = (*self.PARTS, "features")
        if removal_handlers(self, self._predicts):
            self.PARTS = (*self.PARTS, "removal")
        super().__init__(shown, **options)
        if base_of(self.selection.method) not in {*self._keys, *self.store.menu}:
            # What a view of one thing alone is of (SAE features, say) was never chosen here.
            self.selection.method = self._options["methods"][0]
        if self._features is not None:
            show_features(self, self._features, None)

    def _first_unit(self) -> str:
        main = self._explanations[0]
        if is_attributions(main) or self._options["units"] or len(main.query) * len(main.key) <= TILE_VALUES:
            return super()._first_unit()
        if SENTENCE not in main.available_units():
            return super()._first_unit()
        found = [axis.units.get(SENTENCE) for axis in (main.query, main.key)]
        several = all(unit is not None and sum(not one for one in unit.special) > 1 for unit in found)
        return SENTENCE if several else super()._first_unit()

    def _topics(self) -> Mapping[str, Handler]:
        asked = {
            **head_handlers(self),
            **prediction_handlers(self._predicts),
            **self._intervention_handlers(),
        }
        asked |= removal_handlers(self, self._predicts)
        if self._features is not None:
            asked |= self._features.handlers(self, table=False, panel=True, strip=True)
        return asked


def explore(
    model: Any,
    tokenizer: Any,
    text: Any,
    *,
    methods: Sequence[str] = (),
    units: Sequence[str] = (),
    index_base: int = 0,
    title: str = "",
    features: Any = None,
    stats: Any = None,
    **trace_options: Any,
) -> Explorer:
    """Trace a text and return the Explorer of it.

    Args:
        model: A model, or the name or folder of one; see `aw.trace`.
        tokenizer: Its tokenizer, or None where `model` is a name.
        text: What to read.
        methods: Methods offered, the one it opens with first; empty: every one.
        units: Units offered; empty: all.
        index_base: Whether layers and heads are shown counted from 0 or 1.
        title: Heading.
        features: An SAE, or several of several layers, by whose features the text is shown coloured as well.
        stats: What `aw.feature_stats` says of them.
        **trace_options: Everything else `aw.trace` takes (text_pair, words, max_new_tokens, ...).
    """
    from attnwidgets.tracing.recording.run import trace

    traced = trace(model, tokenizer, text, **trace_options)
    if isinstance(traced, list):
        raise TypeError(
            f"explore() shows one text and was given {len(traced)}; for several: "
            "[aw.Explorer(t) for t in aw.trace(model, tokenizer, texts)]."
        )
    return Explorer(
        traced,
        features=features,
        stats=stats,
        methods=methods,
        units=units,
        index_base=index_base,
        title=title,
    )
