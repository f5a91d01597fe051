"""The interface of traces that explanations read, and the provenance that they take from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from attnwidgets._errors import suggest
from attnwidgets.explanations.explanation import Outcomes
from attnwidgets.explanations.results.block_mixers import mixers_in
from attnwidgets.tracing.anatomy.blocks import SUBTRACTED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnwidgets.tracing.text.units import TokenAxis


class TraceLike(Protocol):
    """The part of `aw.trace()` and `aw.from_attentions()` that methods of recorded attention read."""

    @property
    def id(self) -> str:
        """Unique name of the trace, by which views are linked."""

    @property
    def text(self) -> str:
        """The input."""

    @property
    def model_id(self) -> str:
        """The model's name, or ""."""

    @property
    def warning(self) -> str:
        """A caution for readers of the numbers, or ""."""

    @property
    def dtype(self) -> Literal["float32", "float64"]:
        """Type of this trace's numbers."""

    @property
    def stacks(self) -> tuple[str, ...]:
        """("self",) or ("encoder", "decoder", "cross")."""

    @property
    def default_stack(self) -> str:
        """The stack to use if none is named."""

    @property
    def answer(self) -> Any:
        """The meaning of the logits (`is_distribution`, `names`, ...)."""

    @property
    def predictions_title(self) -> str:
        """Title of `predictions`, or ""."""

    def predictions(self, k: int = 10) -> Sequence[Any]:
        """Return the most probable outputs (label, probability, id)."""

    def layers(self, stack: str) -> tuple[int, ...]:
        """Return the numbers of the layers, as in the model."""

    def n_layers(self, stack: str) -> int:
        """Return the number of layers."""

    def mixing_layers(self, stack: str) -> tuple[int, ...]:
        """Return the numbers of all blocks whose mixing of tokens was recorded, by attention or otherwise."""

    def left_out(self, stack: str, *, attention: bool = True) -> str:
        """Return a clause on the mixers of a stack that its maps do not show; "" if there are none."""

    def n_heads(self, stack: str) -> Any:
        """Return the number of heads; a sequence of numbers if layers differ."""

    def axes(self, stack: str) -> tuple[TokenAxis, TokenAxis]:
        """Return the axes of queries and keys."""

    def layer_array(self, layer: int, stack: str) -> NDArray[np.floating]:
        """Return attention [head, query, key] in `dtype`; never runs the model."""

    def rows_array(self, layer: int, heads: Any, queries: Any, stack: str) -> NDArray[np.floating]:
        """Return some heads and queries of a layer [head, query, key] in `dtype`, without the rest."""

    def rows_sum_to_one(self, stack: str) -> bool | None:
        """Return whether rows sum to 1; None if only the values can tell."""

    def has_sinks(self, stack: str) -> bool:
        """Return whether the rest of each row (1 less its sum) goes to a sink: to no key."""

    def readable_array(self, layer: int, stack: str) -> NDArray[np.bool_] | None:
        """Return which keys each query of a layer may read [query, key]; None if the trace cannot tell."""

    def query_key_arrays(self, layer: int, stack: str) -> tuple[Any, Any] | None:
        """Return queries and keys [head, token, dim] of a plain softmax, scaled; None for other weights."""

    def is_causal(self, stack: str) -> bool:
        """Return whether no query sees a later key."""

    def is_signed(self, stack: str) -> bool:
        """Return whether a weight may be negative."""


def is_trace(value: Any) -> bool:
    """Return whether an object is a trace, recorded or made of attention arrays."""
    return hasattr(value, "attention_layer")


def reruns_of(trace: Any) -> Any:
    """Return the user's model behind given attention (`rerun=`), or None."""
    return getattr(trace, "reruns", None)


def elements_of(trace: Any, stack: str) -> TokenAxis:
    """Return the axis of the tokens that a stack reads and that can be removed.

    These are its queries, which attend to themselves; for a user's model (`rerun=`), its keys.
    """
    query, key = trace.axes(stack)
    read: TokenAxis = query if reruns_of(trace) is None else key
    return read


def require_trace(trace: Any, function: str) -> None:
    """Raise TypeError if `trace` is not a trace; the message says how to make one."""
    if is_trace(trace):
        return
    if isinstance(trace, Iterable) and not isinstance(trace, (str, Mapping)):
        hint = f"aw.trace(model, tokenizer, texts) makes a list of traces: [aw.{function}(t) for t in traces]"
    elif hasattr(trace, "named_modules"):
        hint = (
            "make one with aw.trace(model, tokenizer, text); of any torch module aw.trace_module(module, x)"
        )
    else:
        hint = "make one with aw.trace(model, tokenizer, text) or aw.from_attentions(attentions, tokens)"
    raise TypeError(f"trace is a {type(trace).__name__}, not a trace; {hint}.")


def resolve_stack(trace: TraceLike, stack: str | None) -> str:
    """Return `stack`, or the trace's default stack if it is None.

    Raises:
        ValueError: If the trace lacks the stack; the message lists its stacks.
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
    title: str = "",
    options: Mapping[str, Any] | None = None,
    notes: Iterable[str] = (),
    facts: Mapping[str, Any] | None = None,
    attention: bool = True,
) -> dict[str, Any]:
    """Return the arguments that all result types share, from the trace that a method explains.

    Args:
        trace: The trace.
        stack: Name of the explained stack.
        method: The method's name.
        paper: The method's paper.
        title: Heading of pictures; the method's name by default.
        options: The method's options.
        notes: Warnings to add to that of the trace; "" is left out.
        facts: Other entries of the provenance.
        attention: Whether the method reads attention alone, of the ways in which tokens mix.
    """
    predicted = trace.predictions_title if trace.answer.predicts else ""
    words = trace.axes(stack)[1].units.get("word")
    left_out = trace.left_out(stack, attention=attention)
    warning = trace.warning
    if not attention:
        warning = without_clause(warning, trace.left_out(stack), left_out)
        warning = without_clause(warning, SUBTRACTED)
    return {
        "method": method,
        "stack": stack,
        "trace_id": trace.id,
        "warning": "; ".join(dict.fromkeys(filter(None, (warning, *notes)))),
        "dtype": trace.dtype,
        "predictions": Outcomes(predicted, tuple(trace.predictions())) if predicted else None,
        "provenance": {
            "method": method,
            "options": dict(options or {}),
            "model": trace.model_id,
            "text": trace.text,
            "stack": stack,
            **({"words": words.rule} if words is not None and words.rule else {}),
            "paper": paper,
            "steps": [],
            **({"left_out": left_out} if left_out else {}),
            **({"mixers": mixers} if (mixers := mixers_in(trace, stack, attention=attention)) else {}),
            **({"interventions": list(changes)} if (changes := getattr(trace, "interventions", ())) else {}),
            **({"title": title} if title else {}),
            **(facts or {}),
        },
    }


def without_clause(warning: str, clause: str, instead: str = "") -> str:
    """Return warnings, which are joined by semicolons, with a clause replaced."""
    clauses = (instead if part == clause else part for part in warning.split("; "))
    return "; ".join(filter(None, clauses))
