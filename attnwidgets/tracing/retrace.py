"""Another text, traced as a trace was: by the same model and tokenizer, with the same options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.recording.asked import TEXT, Asked

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace


def refusal(trace: Any) -> str:
    """Return why no other text can be traced as this trace was, in words, or "". Runs no model."""
    if getattr(trace, "model", None) is None:
        return "its numbers were given without a model"
    request: Asked | None = getattr(trace, "asked", None)
    if request is None:
        return "it was not made by aw.trace(model, tokenizer, text)"
    if request.kind != TEXT:
        return f"it was made of {request.kind}; trace other input in a cell"
    if trace.interventions:
        return "the model was changed while it was recorded; trace another text in the same with block"
    return ""


def retraced(trace: Trace, text: str, model: Any = None) -> Trace:
    """Return the trace of another text, by the model and with the options of a trace.

    Args:
        trace: The trace.
        text: The other text.
        model: Another model of the same kind; None: that of the trace.

    Raises:
        ValueError: This trace allows none (see `refusal`), the model is changed now, or the text is empty or
            too long (the message names both lengths).
    """
    why, request = refusal(trace), trace.asked
    if why or request is None:
        raise ValueError(f"no other text can be traced: {why}.")
    from attnwidgets.tracing.interventions import require_same_interventions
    from attnwidgets.tracing.recording.run import trace as record

    require_same_interventions(trace, "another text")
    return record(trace.model if model is None else model, trace.tokenizer, text, **request.options)
