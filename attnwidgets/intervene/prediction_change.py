"""Predictions of a model before and after an intervention, and their distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from attnwidgets._tensors import widened
from attnwidgets.intervene.preview import Replay
from attnwidgets.tracing.rerun_trace import own_logits
from attnwidgets.tracing.top_logits import label_of, predicted_values

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.trace import Trace

Kind = Literal["distribution", "several", "score", "states", ""]


@dataclass(frozen=True)
class Changed:
    """Predictions before and after an intervention.

    Attributes:
        kind: "distribution" over classes or tokens; "several", independent classes; "score", numbers;
            "states", for a model without predictions; "" if there is nothing to compare.
        title: What is predicted: "class", "next token", ..., or "".
        before: Recorded probabilities, or numbers [outcome]; empty for states [0].
        after: The same under the intervention.
        distance: For a distribution the total variation distance, 0 to 1: half the sum of |p' - p|. For
            several classes and for a score the largest difference; for states |h' - h| / |h| over all tokens.
        likeness: For states the cosine of their means over tokens before and after; else NaN.
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
    """Return predictions before and after interventions; layers below the first changed one do not run.

    Args:
        trace: A trace with its model.
        interventions: Interventions for this trace or its model, not active.

    Raises:
        ValueError: If the trace has no model, or was recorded under other interventions than are active now.
    """
    nothing = torch.zeros(0, dtype=torch.float64)
    with Replay(trace) as replay:
        outputs = replay.run(interventions)
        logits = own_logits(trace, outputs)
        states = None if trace.answer.is_distribution else _states(outputs)
        is_score = logits is not None and (trace.answer.is_numbers or logits.numel() == 1)
        recorded = None if states is None or is_score else _states(replay.run())
    if trace.answer.is_distribution and logits is not None and trace.logits is not None:
        before, after = predicted_values(trace, trace.logits), predicted_values(trace, logits)
        gap = (after - before).abs()
        if trace.answer.several:
            return Changed("several", trace.predictions_title, before, after, float(gap.max()))
        return Changed("distribution", trace.predictions_title, before, after, float(gap.sum() / 2))
    if logits is not None and trace.logits is not None and is_score:
        before, after = (widened(score).reshape(-1).double() for score in (trace.logits, logits))
        title = trace.predictions_title or "score"
        return Changed("score", title, before, after, float((after - before).abs().max()))
    if states is None or recorded is None:
        return Changed("", "", nothing, nothing, float("nan"))
    length = float(recorded.norm())
    distance = float((states - recorded).norm()) / length if length else 0.0
    likeness = float(torch.cosine_similarity(states.mean(0), recorded.mean(0), dim=0))
    return Changed("states", "", nothing, nothing, distance, likeness)


def _states(outputs: object) -> Tensor | None:
    """Return the last states of a text [token, dim]; None if the model does not return them."""
    states = getattr(outputs, "last_hidden_state", None)
    if not isinstance(states, torch.Tensor) or states.dim() != 3:  # noqa: PLR2004 - [batch, token, dim]
        return None
    return states[0].detach().double().cpu()
