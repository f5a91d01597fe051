"""Whether a model has changed since its trace, for methods that run it again."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.interventions import require_same_interventions
from attnwidgets.tracing.layers import RecordedLayer
from attnwidgets.tracing.model_state import state_of
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.comparison import apart, tolerance
from attnwidgets.tracing.recording.recorder import Call, forward_parameters, record
from attnwidgets.tracing.rerun_trace import own_logits

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace

# The states of models that were seen to answer as in a trace.
_same: weakref.WeakKeyDictionary[Trace, set[int]] = weakref.WeakKeyDictionary()


def require_same_model(trace: Trace, purpose: str) -> None:
    """Raise a ValueError if a trace's model, run again, is not the one that was traced.

    If anything changed that could change a number (weights, adapters, hooks, attributes of modules), the
    model runs once, and its logits are compared with the recorded ones.

    Args:
        trace: A trace with a model.
        purpose: The method's name, for messages.
    """
    require_same_interventions(trace, purpose)
    if trace.model is None:  # a function of the user's stands for it
        return
    model = unwrap(trace.model)
    state = state_of(model)
    known = _same.setdefault(trace, set())
    if state == trace.state or state in known or not trace.inputs:
        return
    difference = _difference(trace, model)
    if difference:
        raise ValueError(
            f"{purpose} runs the model again, which changed after this trace was made (its output by "
            f"{difference:.2g}): trace the text again (trace.rerun()), or restore the model."
        )
    known.add(state)


def _difference(trace: Trace, model: Any) -> float:
    """Return the relative difference of a model's outputs from the recorded ones; 0 for rounding."""
    with borrowed(model) as twin:
        before, now = _both(trace, twin)
    # Where numbers break in NaN, the method names the layer.
    if before is None or now is None or not bool(now.isfinite().all()):
        return 0.0
    if before.shape != now.shape:
        return float("inf")
    difference = apart(now.to(before.dtype), before)
    return 0.0 if difference <= tolerance(before) else difference


def _both(trace: Trace, twin: Any) -> tuple[Tensor | None, Tensor | None]:
    """Return the logits that were recorded and those of a pass now; without logits, the last queries."""
    if trace.logits is not None:
        options: dict[str, Any] = {"return_dict": True}
        if "use_cache" in forward_parameters(twin):
            options["use_cache"] = False
        return trace.logits, own_logits(trace, trace.call(twin, trace.inputs, options, {}))
    stack = trace.default_stack
    recorded = [layer for layer in trace.stack_table[stack].layers if isinstance(layer, RecordedLayer)]
    if not recorded:
        return None, None
    calls = [call for call in record(twin, trace.inputs).stacks.get(stack, ()) if isinstance(call, Call)]
    query = recorded[-1].query_key()[0]
    now = torch.zeros(0) if not calls else calls[-1].query[0, :, : query.shape[1]]
    return query, now
