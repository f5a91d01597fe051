"""The view of where tokens come from, as a graph of tokens by layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.base.view import View
from attnwidgets.views.compare.flow_steps import flow_steps

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.options import ViewOptions


class FlowView(View):
    """Where tokens come from, layer by layer: a graph of tokens by layers, the input at the bottom.

    An edge leads from a token after a layer down to a token it is made of; its width is the share. Edges
    above a share of the mass are drawn, at most a thousand; a line below tells how much of the mass they
    carry. A token under the pointer shows where its own mass comes from, down to the input, with the share of
    every input token as a bar: the same numbers as `aw.rollout` of the map. Click to pin it.

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
    PARTS = ("flow",)

    def __init__(
        self, shown: Any, *, residual_weight: float | None = None, **options: Unpack[ViewOptions]
    ) -> None:
        super().__init__(flow_steps(shown, residual_weight), **options)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.comparisons import flow_sheet

        return flow_sheet(self, theme)
