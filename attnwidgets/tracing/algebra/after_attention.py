"""The rest of a block after its attention, for outputs that lack a few of the vectors attention adds.

With z the sum that attention completes and u the vectors taken away, a norm makes of z - sum a u what its
linear side makes of each, over one deviation; and so does the first layer of an MLP. What they make of z is
computed once for every query and of u once for every key, so that a pair of tokens costs an activation and
the second layer; the first layer's work, as much as the second's or twice that, is saved. Where the
attention's own output is normed before it is added (Gemma 2), that is one norm more of the same kind.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnwidgets.tracing.algebra.block_runs import structure_of
from attnwidgets.tracing.algebra.blocks import resolved
from attnwidgets.tracing.algebra.modules import is_norm
from attnwidgets.tracing.algebra.product import Product
from attnwidgets.tracing.algebra.steps import Affine, Gated, Pointwise, read_steps
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError
from attnwidgets.tracing.recording.twin import origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block
    from attnwidgets.tracing.algebra.modules import Norm
    from attnwidgets.tracing.algebra.steps import Function, Step

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# How many tokens an MLP is tried on, and by what share of its size it may miss: more than rounding, since
# models norm in single precision whatever their own, and far less than another MLP.
_TRIED = 8
_TOLERANCE = 1e-4
# What passes the hidden layer at once.
_CACHE_BYTES = 2**21
_DEVICE_BYTES = 2**26
# The vectors of all keys, which are kept while a layer is computed where they take no more than that.
_KEPT_BYTES = 2**26
# Blocks whose MLP was found to be what it was read as, with what they were made of then.
_believed: weakref.WeakKeyDictionary[nn.Module, tuple[Any, ...]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class MLP:
    """f(x) = second(function(x first_1) * (x first_2)), the factor where there are two; then `rest`.

    Args:
        first: Projections to the hidden layer.
        function: The activation.
        second: The projection back.
        rest: What follows.
    """

    first: tuple[Affine, ...]
    function: Function
    second: Affine
    rest: tuple[Step, ...]

    @cached_property
    def _back(self) -> Product:
        return Product(self.second.matrix, self.second.bias)

    @property
    def width(self) -> int:
        """Size of the hidden layer."""
        return self.second.matrix.shape[0]

    def finish(self, hidden: Sequence[Tensor]) -> Tensor:
        """Return f [..., dim], given what each of `first` made [..., hidden]; those are overwritten."""
        active = self.function(hidden[0])
        for factor in hidden[1:]:
            active = factor.mul_(active)
        states = self._back(active)
        for step in self.rest:
            states = step(states)
        return states


def read_mlp(block: Block, x: Tensor) -> MLP | None:
    """Return a block's MLP, or None where it is none of the known kinds, or a hook watches its modules.

    Args:
        block: A proved block.
        x: What the MLP reads [token, dim], to try it on.
    """
    found = [resolved(block.module, path) for path in block.layout.mlp]
    parts = [part for step in found if isinstance(step, nn.Module) for part in step.modules()]
    if any(getattr(part, kind) for part in parts for kind in _HOOKS):
        return None
    try:
        steps = read_steps([part for part in map(_module, found) if part is not None], x.shape[-1], x)
    except UnsupportedModelError:
        return None
    match steps:
        case Gated(gate, function, up), Affine() as second, *rest:
            mlp = MLP((gate, up), function, second, tuple(rest))
        case Affine() as first, Pointwise(function), Affine() as second, *rest:
            mlp = MLP((first,), function, second, tuple(rest))
        case _:
            return None
    own = origin(block.module)
    structure = structure_of(own)
    if _believed.get(own) != structure:
        x = x[:_TRIED]
        expected = block.through(block.layout.mlp, x)
        off = mlp.finish([first(x) for first in mlp.first]) - expected
        if not off.norm() <= _TOLERANCE * expected.norm():
            return None
        _believed[own] = structure
    return mlp


def _module(part: nn.Module | Tensor | float | None) -> nn.Module | Function | None:
    """Return a step of a layout as a module or a function: a vector or a number scales."""
    return part if part is None or isinstance(part, nn.Module) else partial(torch.mul, other=part)


class Tail:
    """A block from the end of its attention on.

    Args:
        block: A proved block.
        mlp: Its MLP; None for a parallel block, in which attention has no part in it.
        beside: What the MLP of a parallel block adds [query, dim].
    """

    def __init__(self, block: Block, mlp: MLP | None, beside: Tensor | None) -> None:
        path = block.layout.after
        self._after = block.norm(path) if path and is_norm(resolved(block.module, path)) else None
        inner, *_ = block.branch()
        self._values = block.head_values()
        self._mlp = mlp
        self._post = block.layout.order == "post"
        self._norm = block.norm1 if self._post else block.norm2
        self._last = block.norm2 if self._post else None
        if self._after is None:
            self._matrix, self._whole = inner, block.middle if beside is None else block.middle + beside
        else:
            self._matrix, self._whole = block.projection[0].reshape(inner.shape), block.attended()
        self._hidden = block.hidden if beside is None else block.hidden + beside
        self._layers = [] if mlp is None else [self._first(first, inner) for first in mlp.first]

    def _first(self, first: Affine, inner: Tensor) -> _First:
        """Return what the norms' linear sides and a first layer make of the vectors of all queries."""
        matrix = Product(first.matrix)
        bias = self._whole.new_zeros(first.matrix.shape[1]) if first.bias is None else first.bias
        if self._norm is not None and self._norm.shift is not None:
            bias = bias + self._norm.shift @ first.matrix
        # Composed with the heads' matrices, unless they have more rows than there are vectors.
        few = self._values.shape[1] <= self._values.shape[2]
        composed = None if few else matrix(self._outer(inner))
        beside = None
        if self._after is not None:
            shift = self._after.shift
            beside = matrix(self._outer(self._hidden if shift is None else self._hidden + shift))
        return _First(matrix, bias, matrix(self._direct(self._whole)), beside, composed)

    def _direct(self, vectors: Tensor) -> Tensor:
        """Return what both norms' linear sides make of vectors."""
        return self._outer(vectors if self._after is None else self._after.direct(vectors))

    def _outer(self, vectors: Tensor) -> Tensor:
        return vectors if self._norm is None else self._norm.direct(vectors)

    def plain(self) -> Tensor:
        """Return the block's output [query, dim], nothing taken away."""
        none = self._whole.new_zeros(1, len(self._whole), 0)
        vectors = [none.new_zeros(1, 0, len(layer.bias)) for layer in self._layers]
        return self._finish(self._whole[None], slice(None), none, vectors)[0]

    def without(self, rows: slice, weights: Tensor, keys: Tensor) -> Tensor:
        """Return the block's output [element, row, dim] without some keys' values.

        Args:
            rows: Queries.
            weights: The attention of these queries to the keys of every element [element, row, key * head].
            keys: The keys of every element [element, key].
        """
        made = (
            self._vectors(keys.flatten()) if self._all is None else [one[keys.flatten()] for one in self._all]
        )
        vectors, *taken = [one.reshape(len(keys), -1, one.shape[-1]) for one in made]
        return self._finish(_less(self._whole[rows], weights, vectors), rows, weights, taken)

    def _vectors(self, keys: Tensor | slice) -> list[Tensor]:
        """Return what heads write for some keys [key, head, dim], and what the first layers make of it."""
        values = self._values[:, keys]
        vectors = torch.bmm(values, self._matrix).transpose(0, 1)
        direct = self._direct(vectors)
        return [vectors] + [
            layer.matrix(direct)
            if layer.composed is None
            else torch.bmm(values, layer.composed).transpose(0, 1)
            for layer in self._layers
        ]

    @cached_property
    def _all(self) -> list[Tensor] | None:
        """The vectors of all keys, where they are not too many to keep."""
        n_heads, n_keys, _ = self._values.shape
        width = self._whole.shape[-1] + sum(len(layer.bias) for layer in self._layers)
        if n_heads * n_keys * width * self._whole.element_size() > _KEPT_BYTES:
            return None
        return [one.contiguous() for one in self._vectors(slice(None))]

    def _finish(self, whole: Tensor, rows: slice, weights: Tensor, taken: list[Tensor]) -> Tensor:
        """Return the block's output [element, row, dim].

        The hidden layer is the widest, and stays in the caches: a few elements pass it at a time.

        Args:
            whole: What attention completes, or gives where a norm follows it, less the vectors taken away
                [element, row, dim].
            rows: Queries.
            weights: Of the vectors taken away [element, row, vector].
            taken: What the first layers make of these vectors [element, vector, hidden].
        """
        states, within = whole, None
        if self._after is not None:
            normed, within = _normed(self._after, whole)
            states = normed + self._hidden[rows]
        if self._mlp is None:
            return states
        start, inverse = _normed(self._norm, states)
        start = start if self._post else states
        count, n_rows, _ = states.shape
        budget = _CACHE_BYTES if states.device.type == "cpu" else _DEVICE_BYTES
        size = max(1, budget // max(1, n_rows * self._mlp.width * states.element_size()))
        added = torch.empty_like(states)
        for first in range(0, count, size):
            some = slice(first, first + size)
            hidden = []
            for layer, vectors in zip(self._layers, taken, strict=True):
                made = _less(layer.made[rows], weights[some], vectors[some])
                if within is not None and layer.beside is not None:
                    torch.addcmul(layer.beside[rows], made, within[some], out=made)
                hidden.append(torch.addcmul(layer.bias, made, inverse[some], out=made))
            torch.add(self._mlp.finish(hidden), start[some], out=added[some])
        return added if self._last is None else _normed(self._last, added)[0]


@dataclass(frozen=True)
class _First:
    """A first layer of an MLP after the linear side of its norm.

    Args:
        matrix: The layer's matrix [dim, hidden].
        bias: What it adds, and what it makes of the norm's shift [hidden].
        made: What it makes of what vectors are taken from [query, hidden], before the deviations.
        beside: What it makes of what a normed attention is added to [query, hidden].
        composed: What it makes of a head's value [head, head dim, hidden]; None where it is asked every time.
    """

    matrix: Product
    bias: Tensor
    made: Tensor
    beside: Tensor | None
    composed: Tensor | None


def read_tail(block: Block) -> Tail | None:
    """Return a block's tail, or None where its parts are not such that they can be composed."""
    layout = block.layout
    if layout.order == "parallel":
        beside = block.through((layout.norm2, *layout.mlp), block.hidden)
        return Tail(block, None, beside)
    norm = block.norm1 if layout.order == "post" else block.norm2
    mlp = read_mlp(block, block.middle if norm is None else norm(block.middle))
    return None if mlp is None else Tail(block, mlp, None)


def _less(whole: Tensor, weights: Tensor, vectors: Tensor) -> Tensor:
    """Return whole [row, dim] less weights [element, row, vector] of vectors [element, vector, dim]."""
    return torch.baddbmm(whole.expand(len(weights), *whole.shape), weights, vectors, alpha=-1)


def _normed(norm: Norm | None, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x [..., dim] after a norm, and one over its deviation [..., 1]."""
    if norm is None:
        return x, x.new_ones(1).expand(*x.shape[:-1], 1)
    if norm.centred:
        normed, _, inverse = torch.native_layer_norm(x, x.shape[-1:], norm.gain, norm.shift, norm.eps)
        return normed, inverse
    inverse = (torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / x.shape[-1] + norm.eps).rsqrt()
    normed = x * inverse * norm.gain
    return normed if norm.shift is None else normed + norm.shift, inverse
