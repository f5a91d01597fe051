"""Requirements of methods on a trace, by name, and estimates of their memory from its sizes.

The check of a `Need` takes a trace and a stack and returns the missing part in words, or "". Checks build on
each other by `_after`: the second runs only if the first finds nothing missing. `NEEDS` lists the
requirements by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed, spoken_range
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.tracing.free_memory import less_of
from attnwidgets.tracing.text.units import surplus_keys

if TYPE_CHECKING:
    import torch

    from attnwidgets.tracing.algebra.known_layouts import Layout

# (trace, stack) -> "" or the missing part, in words that follow "needs ..., "
Check = Callable[[Any, str], str]

_DOUBLE = 8


@dataclass(frozen=True)
class Need:
    """A requirement of a method.

    Attributes:
        name: Its name in `@method(needs=...)`.
        words: Its description for readers.
        check: Takes a trace (or a map) and a stack; returns "" if it is met, else the missing part in words
            that follow "needs ..., ". Cheap: it never runs the model.
    """

    name: str
    words: str
    check: Check

    def refusal(self, trace: Any, stack: str) -> str:
        """Return "" if a trace meets this, else the reason: "needs ..., and ..."."""
        missing = self.check(trace, stack)
        return f"needs {self.words}, {missing}" if missing else ""


def resolve_needs(needs: str | Need | tuple[str | Need, ...]) -> tuple[Need, ...]:
    """Return requirements by name; a `Need` stays as it is.

    Raises:
        ValueError: For an unknown name; the message lists the names.
    """
    return tuple(_resolve(need) for need in (needs if isinstance(needs, tuple) else (needs,)))


def _resolve(need: str | Need) -> Need:
    if isinstance(need, Need):
        return need
    for entry in NEEDS.values():
        if need in (entry.name, entry.words):
            return entry
    raise ValueError(
        f"needs {need!r} is not one of {listed(NEEDS)}, nor a Need.{suggest(need, NEEDS)} "
        "A method's own requirement is a Need(name, words, check)."
    )


def at_most(limit: int, counted: str, count: Callable[[Any, str], int]) -> Need:
    """Return the requirement that a trace is not too long, unless the method is forced to run.

    Args:
        limit: The largest number.
        counted: Name of the counted elements ("tokens").
        count: Takes a trace and a stack, returns the number.
    """

    def check(trace: Any, stack: str) -> str:
        n = count(trace, stack)
        less = less_of(getattr(trace, "inputs", {}))
        return "" if n <= limit else f"and there are {n:,}: pass force=True in Python, or take {less}"

    return Need("size", f"at most {limit:,} {counted}", check)


def n_keys(trace: Any, stack: str) -> int:
    """Return the number of keys of a trace's stack or of a map."""
    return int(trace.shape[-1]) if is_map(trace) else len(trace.axes(stack)[1])


def is_map(shown: Any) -> bool:
    """Return whether an object is a map rather than a trace."""
    from attnwidgets.explanations.results.mixing_map import MixingMap

    return isinstance(shown, MixingMap)


def _after(first: Check) -> Callable[[Check], Check]:
    """Let a check run only if `first` finds nothing missing."""
    return lambda check: lambda trace, stack: first(trace, stack) or check(trace, stack)


def _attention(trace: Any, _: str) -> str:
    if is_trace(trace):
        return ""
    return "and this is a map without its trace" if is_map(trace) else f"and this is a {type(trace).__name__}"


@_after(_attention)
def _recorded(trace: Any, stack: str) -> str:
    table = getattr(trace, "stack_table", None)
    if table is None or table[stack].layers:
        return ""
    return f"and there is none: {trace.no_attention or f'{trace.model_id} has none'}"


def _attends_to_itself(trace: Any, stack: str) -> str:
    query, key = (trace.query, trace.key) if is_map(trace) else trace.axes(stack)
    if stack != "cross" and (query is key or query == key):
        return ""
    surplus = surplus_keys(query, key)
    return f"and {surplus}" if surplus else f"and stack {stack!r} goes from one sequence to another"


def _followed(trace: Any, stack: str) -> str:
    is_measured = getattr(trace, "model", None) is not None and bool(trace.mixing_layers(stack))
    missing = not (is_map(trace) or is_measured) and _recorded(trace, stack)
    missing = missing or _attends_to_itself(trace, stack)
    if missing:
        return missing
    if is_map(trace):
        left_out = trace.provenance.get("left_out", "")
    else:
        left_out = trace.left_out(stack, attention=False)
    alone = (
        "" if is_measured and not trace.layers(stack) else ": partial=True in Python follows attention alone"
    )
    return f"and {left_out}{alone}" if left_out else ""


@_after(_attention)
def _model(trace: Any, _: str) -> str:
    return "" if getattr(trace, "model", None) is not None else "and these numbers were given without one"


@_after(_model)
@_after(_recorded)
def _recorded_model(trace: Any, stack: str) -> str:
    from attnwidgets.tracing.layers import ModelLayer

    if all(isinstance(layer, ModelLayer) for layer in trace.stack_table[stack].layers):
        return ""
    return _outside(trace)


def _outside(trace: Any) -> str:
    return (
        f"and {type(trace.model).__name__} computes attention outside transformers' attention interface, "
        "where it could not be followed"
    )


@_after(_recorded_model)
def _every_block(trace: Any, stack: str) -> str:
    left_out = trace.left_out(stack)
    return f"and {left_out}" if left_out else ""


@_after(_recorded_model)
def _blocks(trace: Any, stack: str) -> str:
    from attnwidgets.tracing.algebra.block_runs import owner
    from attnwidgets.tracing.algebra.blocks import fitting
    from attnwidgets.tracing.recording.borrow import unwrap

    model = unwrap(trace.model)
    for name in dict.fromkeys(layer.call.name for layer in trace.stack_table[stack].layers):
        fits = list(fitting(model, name))
        if not fits:
            return f"and no description fits {owner(model, name)}"
        names_all = [_attentions(layout) >= _called_in(trace, block) for layout, block, _ in fits]
        if not any(names_all):
            return f"and {owner(model, name)} has attentions that no description names"
    return ""


def _attentions(layout: Layout) -> set[str]:
    """Return the attention modules of a block according to a description."""
    return {layout.attention} | ({layout.cross.attention} if layout.cross else set())


def _called_in(trace: Any, block: str) -> set[str]:
    """Return the modules of a block that attended in a trace, by their path within the block."""
    names = {layer.call.name for stack in trace.stack_table.values() for layer in stack.layers}
    return {name[len(block) :].lstrip(".") for name in names if name.startswith(f"{block}." if block else "")}


@_after(_model)
def _recorded_mixing(trace: Any, stack: str) -> str:
    from attnwidgets.tracing.layers import ModelLayer

    table = trace.stack_table[stack]
    if not table.mixing_numbers:
        return _recorded(trace, stack)
    if all(isinstance(layer, ModelLayer) for layer in table.layers):
        return ""
    return _outside(trace)


@_after(_model)
def _mixing(trace: Any, stack: str) -> str:
    is_both = stack in ("decoder", "cross") and "cross" in trace.stacks
    return _blocks(trace, stack) if is_both else _recorded_mixing(trace, stack)


def _mixers(trace: Any, stack: str) -> str:
    table = getattr(trace, "stack_table", {}).get(stack)
    if table is not None and table.without_attention:
        return ""
    missing = _mixing(trace, stack)
    unmixed = "and all of this model's mix them by attention, or in an unknown way"
    return missing or ("" if trace.stack_table[stack].mixing else unmixed)


@_after(_mixing)
def _every_mixer(trace: Any, stack: str) -> str:
    left_out = trace.left_out(stack, attention=False)
    return f"and {left_out}" if left_out else ""


@_after(_mixing)
def _every_state(trace: Any, stack: str) -> str:
    mixing = trace.mixing_layers(stack)
    lacking = [block.number for block in trace.anatomy.stacks[stack] if block.number not in mixing]
    return f"and block{'s' * (len(lacking) > 1)} {spoken_range(lacking)} mix none" if lacking else ""


@_after(_attends_to_itself)
def _one_sequence(trace: Any, stack: str) -> str:
    reads_other = stack == "decoder" and "cross" in trace.stacks
    return "and the blocks of stack 'decoder' also read another sequence" if reads_other else ""


_one_sequence_blocks = _after(_blocks)(_one_sequence)


def _stack_tokens(_: Any, stack: str) -> str:
    return "and those of stack 'cross' are another's" if stack == "cross" else ""


@_after(_model)
def _embeddings(trace: Any, _: str) -> str:
    bare = not any(table.layers for table in trace.stack_table.values())
    return "and this model has none of patches" if bare and "pixel_values" in trace.inputs else ""


@_after(_model)
def _target(trace: Any, _: str) -> str:
    name = type(trace.model).__name__
    if trace.logits is None:
        return f"and {name} has no head to predict one: name one in Python (target=...)"
    if trace.logits.dim() > 1 and not trace.predictions(1):
        return f"and {name} predicts a token everywhere: name one in Python (target=...)"
    return ""


@_after(_model)
def _logits(trace: Any, _: str) -> str:
    return "" if trace.logits is not None else f"and {type(trace.model).__name__} has none"


@_after(_logits)
def _next_token(trace: Any, _: str) -> str:
    title = trace.predictions_title
    return "" if title == "next token" else f"and {type(trace.model).__name__} predicts {title or 'none'}"


NEEDS = {
    need.name: need
    for need in (
        Need("attention", "recorded attention", _recorded),
        Need("map", "recorded attention, or any map of a stack that attends to itself", _followed),
        Need("itself", "a stack that attends to itself", _attends_to_itself),
        Need("model", "the model", _model),
        Need("recorded model", "the model, with its attention recorded", _recorded_model),
        Need("every block", "a model that mixes tokens by recorded attention alone", _every_block),
        Need("own sequence", "a stack whose blocks read one sequence", _one_sequence),
        Need("recorded mixing", "the model, with its attention or other mixing recorded", _recorded_mixing),
        Need("mixing", "a model whose mixing of tokens was recorded", _mixing),
        Need("mixers", "blocks that mix tokens without attention", _mixers),
        Need("every mixer", "a model of which all mixing of tokens was recorded", _every_mixer),
        Need("every state", "a model in which every block mixes tokens", _every_state),
        Need("blocks", "a model whose blocks are described", _blocks),
        Need("own blocks", "a model whose blocks are described and read one sequence", _one_sequence_blocks),
        Need("own tokens", "a stack with tokens of its own", _stack_tokens),
        Need("embeddings", "embeddings of its tokens", _embeddings),
        Need("logits", "a model with a head", _logits),
        Need("target", "a target", _target),
        Need("next token", "a decoder that predicts the next token", _next_token),
    )
}
"""Requirements by name. A property that only a run reveals, such as a block description that is not exact, is
not among them: the method raises it as an error."""

OF_ATTENTION = (
    *("attention", "map", "recorded model", "mixing", "mixers", "every mixer", "every block", "blocks"),
    *("own blocks", "embeddings"),
)
"""Names of the requirements that a trace without attention does not meet."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a trace's stack, or of a map.

    Attributes:
        layers: Number of layers.
        heads: Largest number of heads of a layer; 1 without a head axis.
        queries: Number of queries.
        keys: Number of keys.
        bytes: Bytes of a number: 4 or 8.
        device: Device of the model; None without a model.
    """

    layers: int
    heads: int
    queries: int
    keys: int
    bytes: int
    device: torch.device | None = None

    @property
    def matrix(self) -> int:
        """Bytes of a matrix [query, key]."""
        return self.queries * self.keys * self.bytes

    @property
    def double(self) -> int:
        """Bytes of a matrix [query, key] in float64."""
        return self.queries * self.keys * _DOUBLE


Takes = Callable[[Sizes], float]
"""Takes the sizes; returns the approximate peak bytes of a method beyond the trace."""


def sizes_of(explained: Any, stack: str | None = None) -> Sizes | None:
    """Return the sizes of a map or a trace; None if it is neither, or has no attention."""
    if is_map(explained):
        queries, keys = explained.shape[-2:]
        size = np.dtype(explained.dtype).itemsize
        return Sizes(len(explained.layers), len(explained.heads or (0,)), queries, keys, size)
    table = getattr(explained, "stack_table", {})
    stack = getattr(explained, "default_stack", None) if stack is None else stack
    if stack not in table or not table[stack].layers:
        return None
    query, key = explained.axes(stack)
    device = None
    if getattr(explained, "model", None) is not None:
        from attnwidgets.tracing.pass_memory import device_of
        from attnwidgets.tracing.recording.borrow import unwrap

        device = device_of(unwrap(explained.model))
    layers, heads = explained.n_layers(stack), explained.n_heads(stack)
    return Sizes(layers, heads, len(query), len(key), np.dtype(explained.dtype).itemsize, device)


def followed_through(sizes: Sizes) -> float:
    """Return the bytes of a product over layers in float64, with every layer in memory."""
    return sizes.layers * sizes.matrix + 4 * sizes.double


def measured_on_blocks(sizes: Sizes) -> float:
    """Return the bytes of a map that is measured on blocks, with every layer in memory.

    The additional pass holds several copies of a layer's weights, and so does every measured layer.
    """
    return sizes.layers * sizes.matrix + 4 * sizes.heads * sizes.matrix


def measured_by_head(sizes: Sizes) -> float:
    """Return the bytes of a map of heads that is measured on blocks: see `measured_on_blocks`."""
    return (sizes.layers + 7) * sizes.heads * sizes.matrix


def network(sizes: Sizes) -> float:
    """Return the bytes of a network with an edge for every pair of tokens in every layer."""
    return 4 * sizes.layers * sizes.double
