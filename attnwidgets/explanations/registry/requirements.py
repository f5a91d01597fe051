"""What a method needs of a trace: named requirements, each with its words and a check that runs no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets.explanations.results.trace_protocol import is_trace

if TYPE_CHECKING:
    from attnwidgets.tracing.algebra.block_layout import Layout

# (trace, stack) -> "" or what is missing, to be read after "needs ..., "
Check = Callable[[Any, str], str]


@dataclass(frozen=True)
class Need:
    """One requirement of a method.

    Attributes:
        name: What `@method(needs=...)` calls it.
        words: What a reader is told.
        check: Takes a trace (or a map) and a stack; returns "" where it is met, else what stands against it
            in words that follow "needs ..., ". Cheap: it never runs the model.
    """

    name: str
    words: str
    check: Check

    def refusal(self, trace: Any, stack: str) -> str:
        """Return "" where a trace meets this, else the reason: "needs ..., and ..."."""
        found = self.check(trace, stack)
        return f"needs {self.words}, {found}" if found else ""


def resolve_needs(needs: str | Need | tuple[str | Need, ...]) -> tuple[Need, ...]:
    """Return requirements by name; a `Need` stands for itself.

    Raises:
        ValueError: For an unknown name; the message lists those there are.
    """
    return tuple(_resolved(need) for need in (needs if isinstance(needs, tuple) else (needs,)))


def _resolved(need: str | Need) -> Need:
    if isinstance(need, Need):
        return need
    for known in NEEDS.values():
        if need in (known.name, known.words):
            return known
    raise ValueError(
        f"needs {need!r} is not one of {', '.join(map(repr, NEEDS))}, nor a Need.{suggest(need, NEEDS)} "
        "A requirement of one method's own is a Need(name, words, check)."
    )


def at_most(limit: int, what: str, count: Callable[[Any, str], int]) -> Need:
    """Return the requirement that a trace is no longer than a method runs unless it is forced to.

    Args:
        limit: The largest number taken.
        what: What is counted ("tokens").
        count: Takes a trace and a stack, returns how many there are.
    """

    def check(trace: Any, stack: str) -> str:
        found = count(trace, stack)
        return "" if found <= limit else f"and there are {found:,}: pass force=True in Python, or shorten it"

    return Need("size", f"at most {limit:,} {what}", check)


def n_keys(trace: Any, stack: str) -> int:
    """Return the number of keys of a stack, of a trace or a map."""
    return int(trace.shape[-1]) if is_map(trace) else len(trace.axes(stack)[1])


def is_map(shown: Any) -> bool:
    """Return whether something is a map rather than a trace."""
    from attnwidgets.explanations.results.mixing_map import MixingMap

    return isinstance(shown, MixingMap)


def _attention(trace: Any, _: str) -> str:
    if is_trace(trace):
        return ""
    return "and this is a map without its trace" if is_map(trace) else f"and this is a {type(trace).__name__}"


def _attends_to_itself(trace: Any, stack: str) -> str:
    query, key = (trace.query, trace.key) if is_map(trace) else trace.axes(stack)
    same = query is key or query == key
    return "" if stack != "cross" and same else f"and stack {stack!r} goes from one sequence to another"


def _followed(trace: Any, stack: str) -> str:
    return (not is_map(trace) and _attention(trace, stack)) or _attends_to_itself(trace, stack)


def _model(trace: Any, stack: str) -> str:
    missing = _attention(trace, stack)
    if missing:
        return missing
    return "" if getattr(trace, "model", None) is not None else "and these numbers were given without one"


def _recorded_model(trace: Any, stack: str) -> str:
    missing = _model(trace, stack)
    if missing:
        return missing
    from attnwidgets.tracing.layers import RecordedLayer

    if all(isinstance(layer, RecordedLayer) for layer in trace.stack_table[stack].layers):
        return ""
    return f"and {type(trace.model).__name__} computes attention outside transformers' attention interface"


def _blocks(trace: Any, stack: str) -> str:
    missing = _recorded_model(trace, stack)
    if missing:
        return missing
    from attnwidgets.tracing.algebra.block_runs import owner
    from attnwidgets.tracing.algebra.blocks import fitting
    from attnwidgets.tracing.recording.borrow import unwrap

    model = unwrap(trace.model)
    for name in dict.fromkeys(layer.call.name for layer in trace.stack_table[stack].layers):
        fits = list(fitting(model, name))
        if not fits:
            return f"and no description fits {owner(model, name)}"
        known = [_attentions(layout) >= _called_in(trace, block) for layout, block, _ in fits]
        if not any(known):
            return f"and {owner(model, name)} has attentions that no description names"
    return ""


def _attentions(layout: Layout) -> set[str]:
    """Return the modules of a block that a description says attend."""
    return {layout.attention} | ({layout.cross.attention} if layout.cross else set())


def _called_in(trace: Any, block: str) -> set[str]:
    """Return the modules of a block that attended in a trace, by their path in it."""
    names = {layer.call.name for stack in trace.stack_table.values() for layer in stack.layers}
    return {name[len(block) :].lstrip(".") for name in names if name.startswith(f"{block}." if block else "")}


def _own_blocks(trace: Any, stack: str) -> str:
    missing = _blocks(trace, stack) or _attends_to_itself(trace, stack)
    if missing or not (stack == "decoder" and "cross" in trace.stacks):
        return missing
    return "and the blocks of stack 'decoder' also read another sequence"


def _own_tokens(_: Any, stack: str) -> str:
    return "and those of stack 'cross' are another's" if stack == "cross" else ""


def _target(trace: Any, stack: str) -> str:
    missing = _model(trace, stack)
    if missing:
        return missing
    name = type(trace.model).__name__
    if trace.logits is None:
        return f"and {name} has no head to predict one: name one in Python (target=...)"
    if trace.logits.dim() > 1 and not trace.predictions(1):
        return f"and {name} predicts a token everywhere: name one in Python (target=...)"
    return ""


def _logits(trace: Any, stack: str) -> str:
    missing = _model(trace, stack)
    if missing:
        return missing
    return "" if trace.logits is not None else f"and {type(trace.model).__name__} has none"


def _next_token(trace: Any, stack: str) -> str:
    missing = _logits(trace, stack)
    if missing:
        return missing
    said = trace.predictions_title
    return "" if said == "next token" else f"and {type(trace.model).__name__} predicts {said or 'none'}"


NEEDS = {
    need.name: need
    for need in (
        Need("attention", "recorded attention", _attention),
        Need("map", "recorded attention, or any map of a stack that attends to itself", _followed),
        Need("itself", "a stack that attends to itself", _attends_to_itself),
        Need("model", "the model", _model),
        Need("recorded model", "the model, with its attention recorded", _recorded_model),
        Need("blocks", "a model whose blocks are described", _blocks),
        Need("own blocks", "a model whose blocks are described and read one sequence", _own_blocks),
        Need("own tokens", "a stack with tokens of its own", _own_tokens),
        Need("logits", "a model with a head", _logits),
        Need("target", "a target", _target),
        Need("next token", "a decoder that predicts the next token", _next_token),
    )
}
"""Requirements by name. What only a run can tell (a description that does not prove itself) is none of them:
it is the error of the method when it is chosen."""
