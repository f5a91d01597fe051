"""The view that knocks heads out, edits rows of attention, and shows the effect on the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.interventions.handlers import Intervening

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.link import Link
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Handler

# CSS pixels around the outcomes, and of an outcome; of more, the first are shown.
_FRAME_TALL, _OUTCOME_TALL, _MOST_OUTCOMES = 384, 22, 8


class InterventionView(Intervening):
    """Knock heads out or edit a row of attention, and see how the prediction changes.

    The list of active interventions belongs to the shared selection (`view.selection.interventions`); a cross
    removes an entry, and `view.interventions()` hands the list to `trace.rerun`. Next to it stands what the
    model predicts, before any change and after it, with the total variation distance of the two; for a model
    that predicts nothing, how far its states moved. When the list changes, the model runs once, from the
    first changed layer on, but never while a cell runs.

    The row of attention that is shown (of the pinned token, or of the last one, in the selected layer and
    head) can be made uniform, put on the pinned key alone, or moved as far as the head's output stays the
    same (`aw.free_attention`): the slider moves the row, and the prediction does not move. Other views keep
    showing the model as it was recorded.

    Args:
        trace: A trace.

    Raises:
        TypeError: `trace` is not a trace.

    Source: Michel et al. 2019 (heads); Brunner et al. 2020 (free attention).
    """

    _VIEW = "InterventionView"
    NEEDS = Needs(("interventions",))
    _HEIGHT = 560

    def __init__(self, trace: Any, **options: Unpack[ViewOptions]) -> None:
        if not is_trace(trace):
            raise TypeError(
                f"InterventionView() runs the model of a trace, but was given a {type(trace).__name__}: "
                "pass the trace that aw.trace(model, tokenizer, text) returns."
            )
        if not options.get("height"):
            outcomes = min(_MOST_OUTCOMES, len(trace.predictions()) if trace.answer.predicts else 0)
            options["height"] = min(self._HEIGHT, _FRAME_TALL + _OUTCOME_TALL * max(2, outcomes))
        super().__init__(trace, **options)

    def _join(self, start: Mapping[str, Any]) -> Link:
        link = super()._join(start)
        # Interventions change attention token by token, whatever method and unit a linked Explorer shows.
        self._options["method"] = self.content.main.method
        if not self._options["units"]:
            self._options["unit"] = "token"
        return link

    def _handlers(self) -> Mapping[str, Handler]:
        return self._intervention_handlers()

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.predictions import interventions_sheet

        return interventions_sheet(self, theme)
