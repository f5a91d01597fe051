"""What an explanation reads of a trace, and what it carries on from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from attnwidgets._errors import suggest
from attnwidgets.explanations.explanation import Outcomes

if TYPE_CHECKING:
    from attnwidgets.tracing.text.units import TokenAxis


class TraceLike(Protocol):
    """What methods of recorded attention read of `aw.trace()` and `aw.from_attentions()`."""

    @property
    def id(self) -> str:
        """Unique per trace; links the views."""
        ...

    @property
    def text(self) -> str:
        """The input."""
        ...

    @property
    def model_id(self) -> str:
        """The model's name, or ""."""
        ...

    @property
    def warning(self) -> str:
        """What a reader must know, or ""."""
        ...

    @property
    def dtype(self) -> Literal["float32", "float64"]:
        """What numbers of this trace are kept in."""
        ...

    @property
    def stacks(self) -> tuple[str, ...]:
        """("self",) or ("encoder", "decoder", "cross")."""
        ...

    @property
    def default_stack(self) -> str:
        """The stack that is meant where none is named."""
        ...

    @property
    def predictions_title(self) -> str:
        """What `predictions` are about, or ""."""
        ...

    def predictions(self, k: int = 10) -> Sequence[Any]:
        """Return the most probable outcomes (label, probability, id)."""
        ...

    def n_layers(self, stack: str) -> int:
        """Return the number of layers."""
        ...

    def n_heads(self, stack: str) -> Any:
        """Return the number of heads; a sequence of them where layers differ."""
        ...

    def axes(self, stack: str) -> tuple[TokenAxis, TokenAxis]:
        """Return the axes of queries and keys."""
        ...

    def attention_layer(self, layer: int, stack: str) -> Any:
        """Return attention [head, query, key] in `dtype`; never runs the model."""
        ...

    def attention_rows(self, layer: int, heads: Any, queries: Any, stack: str) -> Any:
        """Return attention of some heads and queries [head, query, key] in `dtype`, without its layer."""
        ...

    def rows_sum_to_one(self, stack: str) -> bool | None:
        """Return True where rows are known to sum to one; None where only the numbers can tell."""
        ...

    def is_causal(self, stack: str) -> bool:
        """Return whether no query sees a later key."""
        ...

    def is_signed(self, stack: str) -> bool:
        """Return whether a weight may be negative."""
        ...


def is_trace(given: Any) -> bool:
    """Return whether something is a trace, recorded or given."""
    return hasattr(given, "attention_layer")


def require_trace(trace: Any, function: str) -> None:
    """Raise TypeError where `trace` is not a trace, saying what to do with what it is."""
    if is_trace(trace):
        return
    if isinstance(trace, Iterable) and not isinstance(trace, (str, Mapping)):
        hint = f"a list of texts gives a list of traces: [aw.{function}(t) for t in traces]"
    elif hasattr(trace, "named_modules"):
        hint = (
            "make one with aw.trace(model, tokenizer, text); of any torch module aw.trace_module(module, x)"
        )
    else:
        hint = "make one with aw.trace(model, tokenizer, text) or aw.from_attentions(attentions, tokens)"
    raise TypeError(f"trace is a {type(trace).__name__}, not a trace; {hint}.")


def resolve_stack(trace: TraceLike, stack: str | None) -> str:
    """Return the stack that is meant.

    Raises:
        ValueError: Where the trace has no such stack; the message lists them.
    """
    if stack is None:
        return trace.default_stack
    if stack not in trace.stacks:
        names = ", ".join(repr(name) for name in trace.stacks)
        raise ValueError(
            f"stack {stack!r} is not in this trace, which has {names}.{suggest(str(stack), trace.stacks)}"
        )
    return stack


def provenance_of(
    trace: TraceLike,
    stack: str,
    method: str,
    *,
    paper: str,
    options: Mapping[str, Any] | None = None,
    notes: Iterable[str] = (),
) -> dict[str, Any]:
    """Return what an explanation keeps of its trace: the common arguments of the result types.

    Args:
        trace: What is explained.
        stack: The stack that is meant.
        method: The method's name.
        paper: The method's paper.
        options: The method's options.
        notes: What else a reader must know, beside the trace's own warning; "" is left out.
    """
    title = trace.predictions_title
    words = trace.axes(stack)[1].units.get("word")
    return {
        "method": method,
        "stack": stack,
        "trace_id": trace.id,
        "warning": "; ".join(dict.fromkeys(filter(None, (trace.warning, *notes)))),
        "dtype": trace.dtype,
        "predictions": Outcomes.of(title, trace.predictions()) if title else None,
        "provenance": {
            "method": method,
            "options": dict(options or {}),
            "model": trace.model_id,
            "text": trace.text,
            "stack": stack,
            **({"words": words.rule} if words is not None and words.rule else {}),
            "paper": paper,
            "steps": [],
        },
    }
