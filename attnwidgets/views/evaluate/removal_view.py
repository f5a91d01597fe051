"""The view that removes the top tokens of an explanation and shows the prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.view import View
from attnwidgets.views.evaluate.handlers import Removals, resolve_operator, stack_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Unpack

    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.accepts import Content
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Handler


class RemovalView(View):
    """Remove the top k tokens of an explanation, and watch the prediction.

    A slider chooses k, at first 1. On top is the text that the model still sees; below, the prediction before
    and now, its curve over every k (the deletion curve, or the insertion curve if only the top k are kept)
    with random orders and the order of single removals, and the order in which elements go, with the
    explanation's value of each and the prediction after it. All steps are computed at once for an
    explanation, a target and an operator; the slider then acts in the browser. The numbers are those of
    `aw.evaluate.faithfulness`, metrics "deletion" and "insertion", at the shares k / n.

    The model runs between cells, with a progress bar, and can be cancelled. A page without a kernel
    (`to_html`) holds the shown curves; other operators need the notebook.

    Args:
        trace: A trace.
        explanation: The explanation that ranks tokens: Attributions or a MixingMap of this trace, a name in
            `aw.methods()`, a pair (name, options) or a function of a trace. Without it, the method that
            linked views look at, or that of a menu. Of a map is read the row of the pinned query in the layer
            and head selected, or the mean over its rows.
        target: The class or token whose score is read, as every method takes it; by default the prediction
            of the model, or the target of the selected method.
        operator: How tokens are removed: "delete", "mask", "pad", "zero", "mean" or "attention_mask", see
            `aw.evaluate.OPERATORS`. Scores by different operators do not compare, so its name always stands
            next to the curve. By default "mask" where the tokenizer has a mask token, else "delete".
        draws: Number of random orders.
        seed: Seed of the random orders.

    Raises:
        TypeError: `trace` is not a trace, or `explanation` gives no explanation.
        ValueError: The operator is unknown or impossible, the trace has no model, the explanation is of
            another input, or the model predicts nothing and no target is named.
    """

    _VIEW = "RemovalView"
    NEEDS = Needs(("removal",), typed_texts=False)
    _HEIGHT = 520
    _MANY_METHODS = True

    def __init__(
        self,
        trace: Any,
        explanation: Any = None,
        *,
        target: Any = None,
        operator: Operator | None = None,
        draws: int = 10,
        seed: int = 0,
        methods: Sequence[str] = (),
        **options: Unpack[ViewOptions],
    ) -> None:
        from attnwidgets.evaluate.examples.explained_input import (
            result_name,
            source_of,
            target_label,
            target_of,
        )
        from attnwidgets.explanations.targets.named import resolve_target

        if not is_trace(trace):
            raise TypeError(
                f"RemovalView() takes a trace and an explanation of it, not {type(trace).__name__}: "
                "aw.RemovalView(trace, attributions)."
            )
        if draws < 1:
            raise ValueError(f"draws must be at least 1, not {draws}.")
        shown = trace
        if explanation is not None:
            name = result_name(explanation)
            shown = source_of(explanation, 1, name, target)(0, trace)
            if not isinstance(shown, (MixingMap, Attributions)):
                raise TypeError(
                    f"RemovalView(): {name!r} returned {type(shown).__name__}, not Attributions or MixingMap."
                )
            methods = [shown.method]
        labels = [] if explanation is None else list(filter(None, [target_label(shown)]))
        resolved = (
            target_of(trace, labels, "RemovalView")
            if target is None
            else resolve_target(trace, target, method="RemovalView")
        )
        stack = trace.default_stack if explanation is None else stack_of(shown, trace)
        self._given = explanation is not None
        self._operator = resolve_operator(trace, operator, resolved, stack)
        predicted = [outcome.name for outcome in trace.predictions(1)]
        # Unless another target was given, the target follows the selection.
        fixed_target = resolved if target is not None or labels not in ([], predicted) else None
        self._removals = Removals(self, trace, fixed_target, draws=draws, seed=seed, includes_shown=True)
        super().__init__(shown, methods=methods, **options)

    def _content_of(self, shown: Any, methods: Sequence[str], units: Sequence[str]) -> Content:
        return replace(super()._content_of(shown, methods, units), is_fixed=self._given)

    def _own_options(self) -> dict[str, Any]:
        return {"operator": self._operator}

    def left(self, k: int, *, kept: bool = False) -> float:
        """Return the score of the prediction without the top k elements, as the view shows it now.

        It is the number under the slider: for the explanation, the row and the target that are selected, by
        the operator that is chosen. The model runs if these were not computed yet.

        Args:
            k: How many elements are removed.
            kept: Remove all but the top k instead.

        Raises:
            ValueError: The step is not on the curve.
        """
        return self._removals.left(int(k), kept=bool(kept))

    def _numbers(self) -> Kinds:
        return super()._numbers() | {"left": self._left_paths}

    def _left_paths(self, k: int, *, kept: bool, **_: Any) -> Iterator[Path]:
        yield self, f".left({listed(int(k), kept=kept or None)})"

    def _handlers(self) -> dict[str, Handler]:
        return self._removals.handlers()

    def describe(self) -> str:
        """Return a sentence on the score of the prediction without the first elements."""
        from attnwidgets.views.still.predictions import words_of_removal

        return words_of_removal(self) or super().describe()

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.predictions import removal_sheet

        return removal_sheet(self, theme)

    def _preview(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.matrices import strip_sheet

        return strip_sheet(self.presentation, theme)  # the curves take many passes of the model
