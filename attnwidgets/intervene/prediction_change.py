"""What a model says before and after an intervention, as two distributions and their distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from attnwidgets.intervene.preview import Replay
from attnwidgets.tracing.precision import widened
from attnwidgets.tracing.rerun_trace import own_logits
from attnwidgets.tracing.top_logits import label_of, probabilities, several_true

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.trace import Trace

Kind = Literal["distribution", "several", "score", "states", ""]


@dataclass(frozen=True)
class Changed:
    """What a model says before and after.

    Attributes:
        kind: "distribution" over classes or tokens; "several" classes of which each may be true; "score", one
            number; "states", of a model that predicts nothing; "" where there is nothing to compare.
        title: What is predicted: "class", "next token", ..., or "".
        before: Probabilities, or the score, as recorded [outcome]; of states nothing [0].
        after: The same under the intervention.
        distance: Of distributions their total variation distance, 0 to 1: half the sum of |p' - p|. Of
            several classes and of a score the largest difference; of states |h' - h| / |h| over all tokens.
        likeness: Of states the cosine of their means over tokens before and after; else NaN.
    """

    kind: Kind
    title: str
    before: Tensor
    after: Tensor
    distance: float
    likeness: float = float("nan")

    def label(self, trace: Trace, outcome: int) -> str:
        """Return the name of an outcome."""
        return label_of(trace, outcome)


def changed(trace: Trace, *interventions: Intervention) -> Changed:
    """Return what the model says before and after interventions; layers below the first of them do not run.

    Args:
        trace: A trace of a model.
        interventions: Made for this trace or its model, not entered.

    Raises:
        ValueError: If the trace has no model, or was recorded under other interventions than are in force.
    """
    nothing = torch.zeros(0, dtype=torch.float64)
    with Replay(trace) as replay:
        outputs = replay.run(interventions)
        logits = own_logits(trace, outputs)
        states = None if trace.predictions_title else _states(outputs)
        own = (
            None if states is None or (logits is not None and logits.numel() == 1) else _states(replay.run())
        )
    if trace.predictions_title and logits is not None and trace.logits is not None:
        before, after = probabilities(trace, trace.logits), probabilities(trace, logits)
        gap = (after - before).abs()
        if logits.dim() == 1 and several_true(trace):
            return Changed("several", trace.predictions_title, before, after, float(gap.max()))
        return Changed("distribution", trace.predictions_title, before, after, float(gap.sum() / 2))
    if logits is not None and trace.logits is not None and logits.numel() == 1:
        before, after = (widened(one).reshape(1).double() for one in (trace.logits, logits))
        return Changed("score", "score", before, after, float((after - before).abs()))
    if states is None or own is None:
        return Changed("", "", nothing, nothing, float("nan"))
    length = float(own.norm())
    likeness = float(torch.cosine_similarity(states.mean(0), own.mean(0), dim=0))
    return Changed(
        "states", "", nothing, nothing, float((states - own).norm()) / length if length else 0.0, likeness
    )


def _states(outputs: object) -> Tensor | None:
    """Return the last states of a text [token, dim], where a model returns them."""
    found = getattr(outputs, "last_hidden_state", None)
    if not isinstance(found, torch.Tensor) or found.dim() != 3:  # noqa: PLR2004 - [batch, token, dim]
        return None
    return found[0].detach().double().cpu()
