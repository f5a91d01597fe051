"""The view of where tokens come from, as a graph of tokens by layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import position
from attnwidgets.explanations.mixing.layer_product import shares
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.view import View
from attnwidgets.views.compare.flow_steps import flow_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import ViewOptions


class FlowView(View):
    """Where tokens come from, layer by layer: a graph of tokens by layers, the input at the bottom.

    One token is followed down to the input: the one under the pointer, the pinned one, or at first the last
    that is not a special token. An edge leads from a token after a layer down to a token it is made of; its
    width is the share of the followed token that it carries. Edges above a share are drawn, at most a
    thousand; a line tells how much of the mass they carry. Bars show the share of every input token: the same
    numbers as `aw.rollout` of the map. Special tokens, and what leads to them, are grey. Of a long text a
    part is in sight, around the followed token, and the share of the rest is reported.

    All layers are computed when the view is created.

    Args:
        shown: A trace (then: its attention), a MixingMap of a stack that attends to itself (heads are
            averaged), or a ContributionGraph (its heads, residuals and feed-forward layers are added up).
            No map that is cumulative already, such as rollout's: give the one that it is of.
        residual_weight: Share of the residual connection that is mixed in, as in `aw.rollout`; None: 0.5
            for attention, nothing for measures that hold it already (value zeroing, norms, ALTI).

    Raises:
        ValueError: The map is cumulative, signed, between two sequences, or its layers have gaps.
    """

    _VIEW = "FlowView"
    _HEIGHT = 500
    NEEDS = Needs(("flow",))

    def __init__(
        self, shown: Any, *, residual_weight: float | None = None, **options: Unpack[ViewOptions]
    ) -> None:
        super().__init__(flow_steps(shown, residual_weight), **options)

    def share(self, query: int, key: int, *, layer: int | None = None, unit: str | None = None) -> float:
        """Return the share of an input token in a token after a layer, 0 to 1: a bar of the view.

        Args:
            query: Number of the token that is followed, counted in `unit`.
            key: Number of the input token.
            layer: Number of the layer; None: the last.
            unit: Unit of the elements; None: the view's own.

        Raises:
            ValueError: The unit is not available.
            IndexError: The layer or token is out of range.

        Example:
            >>> view = aw.FlowView(aw.trace(*aw.demo_model("encoder"), "The cat sat."))
            >>> round(sum(view.share(2, key) for key in range(6)), 6)
            1.0
        """
        steps = self.content.main.to(unit) if unit else self.content.main
        last = position(-1 if layer is None else layer, steps.layers, "layer")
        count = steps.shape[-1]
        here, there = (position(place, range(count), steps.unit) for place in (query, key))
        mass = np.eye(count)[here]
        for number in reversed(steps.layers[: last + 1]):
            mass = mass @ shares(np.asarray(steps.matrix(number), dtype=np.float64))
        return float(mass[there])

    def _numbers(self) -> Kinds:
        return super()._numbers() | {"share": self._share_paths}

    def _share_paths(self, query: int, key: int, layer: int, unit: str) -> Iterator[Path]:
        named = {"layer": layer, "unit": None if unit == self.content.main.unit else unit}
        yield self, f".share({listed(query, key, **named)})"

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.comparisons import flow_sheet

        return flow_sheet(self, theme)
