"""The states that a block reads as sums: over the components before it, or over source tokens.

Parts are vectors of the model's width. Norms within the residual stream (post-norm blocks) divide parts by
the deviations of the whole state, so that parts keep summing to it. Parts are float64 on the CPU.
"""

from __future__ import annotations

import weakref
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.algebra.decomposition import Rules
from attnwidgets.tracing.algebra.propagation import Propagation
from attnwidgets.tracing.algebra.query_key import exact, exact_norm
from attnwidgets.tracing.algebra.steps import is_norm, read_norm
from attnwidgets.tracing.anatomy.block_names import block_names
from attnwidgets.tracing.anatomy.forward import forward_parameters
from attnwidgets.tracing.model_state import named_modules
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.inputs import is_position_table
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block
    from attnwidgets.tracing.algebra.steps import Norm
    from attnwidgets.tracing.trace import Trace

# Embeddings as parts, stack by stack: a pass through the embeddings costs more than a cell.
_inputs: weakref.WeakKeyDictionary[Trace, dict[str, list[tuple[str, Tensor]]]] = weakref.WeakKeyDictionary()
_FEW = 2
_CLOSE = 1e-4  # of a state: how near embeddings must come to it to be its parts
_SOURCE_BYTES = 2**31
"""Most bytes of the vectors from every source token."""


@dataclass(frozen=True)
class Written:
    """The component that wrote a part of the residual stream.

    Attributes:
        name: "head 0.3", "MLP 2", "token", "position", "bias 1".
        kind: "input", "head", "MLP", "bias", "constant"; "token", "feature", "error" of other splits.
        layer: Its layer; -1 for the input of the first block, None without a layer.
    """

    name: str
    kind: str
    layer: int | None = None


class StateParts(Protocol):
    """States as sums of named parts."""

    @property
    def names(self) -> tuple[Written, ...]:
        """The parts."""
        ...

    def of(self, tokens: Sequence[int]) -> StateParts:
        """Return the parts that some tokens have; all of them, where every token has every part."""
        del tokens
        return self

    def at(self, tokens: Sequence[int]) -> Tensor:
        """Return the parts of some tokens' states [part, token, width]; they sum to the states."""
        ...


@dataclass
class ComponentParts(StateParts):
    """The states that the last of some blocks reads, by the component that wrote them.

    Args:
        trace: The trace.
        stack: The stack.
        blocks: All blocks up to the reader, itself included.
    """

    trace: Trace
    stack: str
    blocks: Sequence[Block]
    _names: list[Written] = field(default_factory=list)
    # Those of a query and a key, which removals read again.
    _pair: tuple[list[int], Tensor] | None = None

    @property
    def names(self) -> tuple[Written, ...]:
        """The parts, from the embeddings up."""
        if not self._names:
            self.at([0])
        return tuple(self._names)

    def at(self, tokens: Sequence[int]) -> Tensor:
        """Return the parts of some tokens' states [part, token, width]."""
        rows = list(tokens)
        if self._pair is not None and set(rows) <= set(self._pair[0]):
            return self._pair[1][:, [self._pair[0].index(row) for row in rows]]
        inputs = _inputs.setdefault(self.trace, {})
        if self.stack not in inputs:
            inputs[self.stack] = input_parts(self.trace, self.stack, exact(self.blocks[0].hidden))
        sums = _Sums(
            [Written(name, "input", -1) for name, _ in inputs[self.stack]],
            torch.stack([x[rows] for _, x in inputs[self.stack]]),
        )
        with no_grad():
            for number, block in zip(self.trace.layers(self.stack), self.blocks[:-1]):  # noqa: B905 - one more layer
                _add_block(sums, block, number, rows)
        self._names[:] = sums.names
        parts = sums.stacked()
        if len(rows) <= _FEW:
            self._pair = rows, parts
        return parts


class _Sums:
    """Parts of states, as they grow block by block.

    Attributes:
        names: The component that wrote each part.
        total: The sum of the parts [token, width].
    """

    def __init__(self, names: list[Written], parts: Tensor) -> None:
        self.names, self.total, self._parts = names, parts.sum(0), [parts]

    def add(self, names: list[Written], parts: Tensor) -> None:
        """Add parts [part, token, width]."""
        self.names += names
        self.total = self.total + parts.sum(0)
        self._parts.append(parts)

    def stacked(self) -> Tensor:
        """Return all parts [part, token, width]."""
        self._parts = [torch.cat(self._parts)]
        return self._parts[0]

    def through(self, norm: Norm | None, name: str, layer: int) -> None:
        """Let the parts pass a norm, whose shift becomes another part."""
        if norm is None:
            return
        parts = self.stacked()
        self._parts = [norm.direct(parts) / norm.deviation(self.total)]
        self.total = self._parts[0].sum(0)
        if norm.shift is not None:
            self.add([Written(name, "bias", layer)], norm.shift.expand(1, *parts.shape[1:]))


def _add_block(sums: _Sums, block: Block, number: int, rows: list[int]) -> None:
    """Add the parts that a block writes at some tokens."""
    matrix, row, bias = block.branch()
    # Rounding errors of heads are added to the feed-forward layer: sums stay those of the model.
    heads = exact(torch.matmul(block.mixed[:, rows], matrix) * row[rows, None])
    sums.add([Written(f"head {number}.{head}", "head", number) for head in range(len(heads))], heads)
    if bias.any():
        sums.add([Written(f"bias {number}", "bias", number)], exact(bias[rows])[None])
    output = exact(block.output[rows])
    mlp = [Written(f"MLP {number}", "MLP", number)]
    if block.layout.order != "post":
        sums.add(mlp, (output - sums.total)[None])
        return
    if block.norm1 is not None:
        sums.through(exact_norm(block.norm1), f"norm {number}a shift", number)
    sums.add(mlp, exact((block.last - block.start)[rows])[None])
    if block.norm2 is not None:
        sums.through(exact_norm(block.norm2), f"norm {number}b shift", number)
    rounding = output - sums.total
    sums.stacked()[sums.names.index(mlp[0])] += rounding
    sums.total = output


class _ReachedError(Exception):
    """The first block is about to run."""


def input_parts(trace: Trace, stack: str, states: Tensor) -> list[tuple[str, Tensor]]:
    """Return the first block's input as embeddings of tokens, positions and types, if it is their sum.

    Args:
        trace: The trace.
        stack: The stack.
        states: Input of its first block [token, width].

    Returns:
        Names and parts [token, width]; a single part "input" for other states (patches of a
        picture, projected embeddings).
    """
    tables: list[tuple[str, Tensor]] = []
    norms: list[nn.Module] = []

    def see(name: str, output: Tensor) -> None:
        flat = exact(output).reshape(-1, output.shape[-1])
        if flat.shape[-1] == states.shape[-1] and len(flat) in (1, len(states)):
            tables.append((_table_kind(name), flat.expand_as(states)))

    def stop(*_: Any) -> None:
        raise _ReachedError

    with borrowed(unwrap(trace.model)) as model, no_grad(), ExitStack() as exits:
        first = model.get_submodule(block_names(trace, model)[stack][0])
        inside = set(first.modules())
        for name, module in named_modules(model).items():
            if isinstance(module, nn.Embedding):
                hook = module.register_forward_hook(lambda _, __, output, name=name: see(name, output))
                exits.callback(hook.remove)
            elif is_norm(module) and module not in inside and _is_wide(module, states.shape[-1]):
                norms.append(module)
        exits.callback(first.register_forward_pre_hook(stop).remove)
        options = {"use_cache": False} if "use_cache" in forward_parameters(model) else {}
        with suppress(_ReachedError):
            trace.call(model, trace.inputs, options, {})
    return _fitting(tables, norms, states) or [("input", states)]


def _is_wide(module: nn.Module, width: int) -> bool:
    """Return whether a norm's weight has the width of the states."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.shape == (width,)


def _candidates(
    tables: list[tuple[str, Tensor]], norms: Sequence[nn.Module], states: Tensor
) -> Iterator[list[tuple[str, Tensor]]]:
    """Yield embeddings as parts of states: scaled, or through a norm."""
    total = torch.stack([part for _, part in tables]).sum(0)
    scale = float((total * states).sum() / total.square().sum().clamp_min(1e-30))
    yield [(name, scale * part) for name, part in tables]
    for module in norms:
        norm = read_norm(module, states.shape[-1], states)
        if norm is not None:
            parts = [(name, norm.direct(part) / norm.deviation(total)) for name, part in tables]
            shift = [] if norm.shift is None else [("embedding norm shift", norm.shift.expand_as(states))]
            yield parts + shift


def _fitting(
    tables: list[tuple[str, Tensor]], norms: Sequence[nn.Module], states: Tensor
) -> list[tuple[str, Tensor]] | None:
    """Return embeddings that sum to the states; None if they do not."""
    if not tables:
        return None
    for parts in _candidates(tables, norms, states):
        rest = states - torch.stack([part for _, part in parts]).sum(0)
        if rest.norm() <= _CLOSE * states.norm():
            name, part = parts[0]
            return [(name, part + rest), *parts[1:]]  # rounding alone
    return None


def _table_kind(name: str) -> str:
    """Return the kind of a table of embeddings, by its module's name."""
    if is_position_table(name):
        return "position"
    return "type" if "type" in name.rpartition(".")[2].lower() else "token"


@dataclass
class SourceParts(StateParts):
    """The states that a block reads, by the token from which they come, as DecompX carries them.

    Args:
        trace: The trace.
        stack: The stack.
        layer: Index of the reader among the stack's layers.
        states: Its input [token, width].
        labels: Names of the tokens.
        method: The method's name, for messages.
    """

    trace: Trace
    stack: str
    layer: int
    states: Tensor
    labels: Sequence[str]
    method: str

    @property
    def names(self) -> tuple[Written, ...]:
        """The source tokens."""
        return tuple(Written(label, "token") for label in self.labels)

    @cached_property
    def _vectors(self) -> Tensor:
        """Vectors [source, token, width] that sum to the states."""
        count = len(self.states)
        if count * self.states.numel() * self.states.element_size() > _SOURCE_BYTES:
            raise ValueError(
                f"{self.method} by token holds a vector of every one of {count} tokens in each of them, more "
                'than 2 GB; take a shorter text, or by="component".'
            )
        if self.layer == 0:
            return torch.eye(count, dtype=torch.float64)[:, :, None] * self.states
        spans = tuple((token,) for token in range(count))
        with no_grad():
            run = Propagation(self.trace, self.stack, self.method, spans, Rules())
            vectors = exact(run.run(range(count), upto=self.layer - 1)).transpose(0, 1).contiguous()
        rest = self.states - vectors.sum(0)
        if not rest.norm() <= _CLOSE * self.states.norm():
            raise UnsupportedModelError(
                f"{self.method} by token: what tokens contribute does not sum to the states of layer "
                f"{self.layer} (error {float(rest.norm() / self.states.norm()):.2g})."
            )
        # Only rounding is left, in equal parts so that sums are exact and no token is favoured.
        return vectors + rest / count

    def at(self, tokens: Sequence[int]) -> Tensor:
        """Return the parts of some tokens' states [source, token, width]."""
        return self._vectors[:, list(tokens)]
