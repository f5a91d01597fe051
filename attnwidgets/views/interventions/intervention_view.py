"""InterventionView: see the class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.base.accepts import is_trace
from attnwidgets.views.interventions.handlers import Intervening
from attnwidgets.views.interventions.specs import Intervened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Handler


class InterventionView(Intervening):
    """Pull the wires yourself: knock heads out, set a row of attention, and see what the model then says.

    The list of what is active is the shared selection's (`view.selection.interventions`), each with a cross;
    `view.interventions()` hands it to `trace.rerun`. Beside it stands what the model predicts before and
    after, with the total variation distance of the two; of a model that predicts nothing, how far its states
    moved. One pass from the first layer that is changed on runs when the list changes, not while a cell runs.

    The row of attention that is looked at (the pinned token's, or the last one's, in the selected layer and
    head) can be uniform, all on the pinned key, or moved by as much as leaves what the head returns as it was
    (`aw.free_attention`): the slider moves it, and the prediction stands still. Other views go on showing the
    model as it was recorded.

    Args:
        trace: A trace.

    Raises:
        TypeError: What is given is no trace.

    Source: Michel et al. 2019 (heads); Brunner et al. 2020 (free attention).
    """

    _VIEW = "InterventionView"
    PARTS = ("interventions",)

    def __init__(self, trace: Any, **options: Unpack[ViewOptions]) -> None:
        if not is_trace(trace):
            raise TypeError(
                f"InterventionView() runs the model of a trace, and was given a {type(trace).__name__}: "
                "give it what aw.trace(model, tokenizer, text) returned."
            )
        self._intervened = Intervened.of(trace)
        super().__init__(trace, **options)

    def _connect(self, *, fixed: bool) -> dict[str, Any]:
        del fixed
        traits = super()._connect(fixed=False)
        # Heads have attention, and rows are set token by token, whatever an Explorer beside it shows.
        self._options["method"] = self._explanations[0].method
        if not self._options["units"]:
            self._options["unit"] = "token"
        return traits

    def _handlers(self) -> Mapping[str, Handler]:
        return self._intervention_topics()
