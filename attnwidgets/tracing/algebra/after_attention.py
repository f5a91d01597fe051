"""A block after its attention, recomputed with some of the vectors that attention adds left out.

Let z be the sum after attention and u the removed vectors. Up to the division by the deviation, a norm is
linear, and so is the first layer of an MLP. Their images of z are therefore computed once per query and those
of u once per key, and a pair of tokens only costs an activation and the second layer; the first layer, which
costs as much as the second or twice that, is saved. A norm on the attention output before it is added
(Gemma 2) is handled in the same way.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnwidgets.tracing.algebra.block_runs import structure_of
from attnwidgets.tracing.algebra.blocks import resolve_path
from attnwidgets.tracing.algebra.steps import Affine, Gated, Pointwise, apply_steps, is_norm, read_steps
from attnwidgets.tracing.recording.borrow import origin
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block
    from attnwidgets.tracing.algebra.steps import Function, Norm, Step

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# Number of tokens an MLP is checked on, and the relative error allowed: above rounding, since models compute
# norms in single precision, and far below the difference to another MLP.
_CHECKED_TOKENS = 8
_TOLERANCE = 1e-4
# Bytes of the states that pass through the hidden layer at once.
_CACHE_BYTES = 2**21
_DEVICE_BYTES = 2**26
# Up to this size, the vectors of all keys are cached while a layer is computed.
_CACHED_BYTES = 2**26
# Blocks whose MLP passed the check, with their structure at that time.
_verified: weakref.WeakKeyDictionary[nn.Module, tuple[Any, ...]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class MLP:
    """f(x) = second(function(x first_1) * (x first_2)), without the second factor if not gated; then `rest`.

    Args:
        first: Projections to the hidden layer.
        function: The activation.
        second: The projection back.
        rest: Steps that follow.
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
        """Return f [..., dim] from the outputs of `first`, [..., hidden] each, which are overwritten."""
        active = self.function(hidden[0])
        for factor in hidden[1:]:
            active = factor.mul_(active)
        return apply_steps(self.rest, self._back(active))


def read_mlp(block: Block, x: Tensor) -> MLP | None:
    """Return a block's MLP, or None if its kind is unknown or its modules have hooks.

    Args:
        block: A verified block.
        x: Inputs of the MLP [token, dim] to check it on.
    """
    parts = [resolve_path(block.module, path) for path in block.layout.mlp]
    modules = [module for part in parts if isinstance(part, nn.Module) for module in part.modules()]
    if any(getattr(module, kind) for module in modules for kind in _HOOKS):
        return None
    try:
        steps = read_steps([_module(part) for part in parts if part is not None], x.shape[-1], x)
    except UnsupportedModelError:
        return None
    match steps:
        case Gated(gate, function, up), Affine() as second, *rest:
            mlp = MLP((gate, up), function, second, tuple(rest))
        case Affine() as first, Pointwise(function), Affine() as second, *rest:
            mlp = MLP((first,), function, second, tuple(rest))
        case _:
            return None
    module = origin(block.module)
    structure = structure_of(module)
    if _verified.get(module) != structure:
        x = x[:_CHECKED_TOKENS]
        expected = block.through(block.layout.mlp, x)
        error = mlp.finish([first(x) for first in mlp.first]) - expected
        if not error.norm() <= _TOLERANCE * expected.norm():
            return None
        _verified[module] = structure
    return mlp


def _module(part: nn.Module | Tensor | float) -> nn.Module | Function:
    """Return a layout step as a module or function; a vector or number becomes a multiplication."""
    return part if isinstance(part, nn.Module) else partial(torch.mul, other=part)


class Tail:
    """The part of a block that follows its attention.

    Args:
        block: A verified block.
        mlp: Its MLP; None for a parallel block, whose MLP does not read the attention output.
        parallel: Output of the MLP in a parallel block [query, dim].
    """

    def __init__(self, block: Block, mlp: MLP | None, parallel: Tensor | None) -> None:
        path = block.layout.after
        self._after = block.norm(path) if path and is_norm(resolve_path(block.module, path)) else None
        inner, *_ = block.branch()
        self._values = block.head_values()
        self._mlp = mlp
        self._post = block.layout.order == "post"
        self._norm = block.norm1 if self._post else block.norm2
        self._last = block.norm2 if self._post else None
        if self._after is None:
            self._matrix, self._whole = inner, block.middle if parallel is None else block.middle + parallel
        else:
            self._matrix, self._whole = block.projection[0].reshape(inner.shape), block.attended()
        self._hidden = block.hidden if parallel is None else block.hidden + parallel
        self._layers = [] if mlp is None else [self._first(first, inner) for first in mlp.first]

    def _first(self, first: Affine, inner: Tensor) -> _First:
        """Return a first layer of the MLP, composed with the linear part of the norms before it."""
        matrix = Product(first.matrix)
        bias = self._whole.new_zeros(first.matrix.shape[1]) if first.bias is None else first.bias
        if self._norm is not None and self._norm.shift is not None:
            bias = bias + self._norm.shift @ first.matrix
        # Composing with the heads' matrices pays off with more keys than dimensions of a head.
        _, n_keys, head_dim = self._values.shape
        composed = matrix(self._outer(inner)) if n_keys > head_dim else None
        residual = None
        if self._after is not None:
            shift = self._after.shift
            residual = matrix(self._outer(self._hidden if shift is None else self._hidden + shift))
        return _First(matrix, bias, matrix(self._direct(self._whole)), residual, composed)

    def _direct(self, vectors: Tensor) -> Tensor:
        """Return vectors after the linear part of both norms."""
        return self._outer(vectors if self._after is None else self._after.direct(vectors))

    def _outer(self, vectors: Tensor) -> Tensor:
        return vectors if self._norm is None else self._norm.direct(vectors)

    def plain(self) -> Tensor:
        """Return the block's output [query, dim] with nothing removed."""
        none = self._whole.new_zeros(1, len(self._whole), 0)
        vectors = [none.new_zeros(1, 0, len(layer.bias)) for layer in self._layers]
        return self._finish(self._whole[None], slice(None), none, vectors)[0]

    def without(self, rows: slice, weights: Tensor, keys: Tensor) -> Tensor:
        """Return the block's output [element, row, dim] without the values of some keys.

        Args:
            rows: The queries.
            weights: Attention of these queries to the keys of each element [element, row, key * head].
            keys: The keys of each element [element, key].
        """
        flat = keys.flatten()
        of_keys = self._vectors(flat) if self._all is None else [tensor[flat] for tensor in self._all]
        vectors, *removed = [tensor.reshape(len(keys), -1, tensor.shape[-1]) for tensor in of_keys]
        return self._finish(_subtract(self._whole[rows], weights, vectors), rows, weights, removed)

    def _vectors(self, keys: Tensor | slice) -> list[Tensor]:
        """Return the heads' vectors for some keys [key, head, dim], and the first layers' images of them."""
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
        """The vectors of all keys; None if they are too large to cache."""
        n_heads, n_keys, _ = self._values.shape
        width = self._whole.shape[-1] + sum(len(layer.bias) for layer in self._layers)
        if n_heads * n_keys * width * self._whole.element_size() > _CACHED_BYTES:
            return None
        return [vectors.contiguous() for vectors in self._vectors(slice(None))]

    def _finish(self, whole: Tensor, rows: slice, weights: Tensor, removed: list[Tensor]) -> Tensor:
        """Return the block's output [element, row, dim].

        The hidden layer is the widest, so a few elements pass through at a time to keep it in the caches.

        Args:
            whole: The sum after attention, or the attention output if a norm follows it, less the removed
                vectors [element, row, dim].
            rows: The queries.
            weights: Weights of the removed vectors [element, row, vector].
            removed: Images of these vectors under the first layers [element, vector, hidden].
        """
        states, within = whole, None
        if self._after is not None:
            normed, within = _normalize(self._after, whole)
            states = normed + self._hidden[rows]
        if self._mlp is None:
            return states
        start, inverse = _normalize(self._norm, states)
        start = start if self._post else states
        count, n_rows, _ = states.shape
        budget = _CACHE_BYTES if states.device.type == "cpu" else _DEVICE_BYTES
        size = max(1, budget // max(1, n_rows * self._mlp.width * states.element_size()))
        added = torch.empty_like(states)
        for first in range(0, count, size):
            some = slice(first, first + size)
            hidden = []
            for layer, vectors in zip(self._layers, removed, strict=True):
                image = _subtract(layer.image[rows], weights[some], vectors[some])
                if within is not None and layer.residual is not None:
                    torch.addcmul(layer.residual[rows], image, within[some], out=image)
                hidden.append(torch.addcmul(layer.bias, image, inverse[some], out=image))
            torch.add(self._mlp.finish(hidden), start[some], out=added[some])
        return added if self._last is None else _normalize(self._last, added)[0]


@dataclass(frozen=True)
class _First:
    """A first layer of an MLP, composed with the linear part of the norm before it.

    Args:
        matrix: The layer's matrix [dim, hidden].
        bias: The layer's bias plus its image of the norm's shift [hidden].
        image: Image of the sum from which vectors are removed [query, hidden], before the division by
            deviations.
        residual: Image of the residual stream to which a normed attention output is added [query, hidden].
        composed: Map from a head's values [head, head dim, hidden]; None to apply `matrix` each time.
    """

    matrix: Product
    bias: Tensor
    image: Tensor
    residual: Tensor | None
    composed: Tensor | None


def read_tail(block: Block) -> Tail | None:
    """Return a block's tail, or None if its parts cannot be composed."""
    layout = block.layout
    if layout.order == "parallel":
        parallel = block.through((layout.norm2, *layout.mlp), block.hidden)
        return Tail(block, None, parallel)
    norm = block.norm1 if layout.order == "post" else block.norm2
    mlp = read_mlp(block, block.middle if norm is None else norm(block.middle))
    return None if mlp is None else Tail(block, mlp, None)


def _subtract(whole: Tensor, weights: Tensor, vectors: Tensor) -> Tensor:
    """Return `whole` [row, dim] minus `weights` [element, row, vector] @ `vectors` [element, vector, dim]."""
    return torch.baddbmm(whole.expand(len(weights), *whole.shape), weights, vectors, alpha=-1)


def _normalize(norm: Norm | None, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x [..., dim] after a norm, and one over its deviation [..., 1]."""
    if norm is None:
        return x, x.new_ones(1).expand(*x.shape[:-1], 1)
    if norm.centred:
        normed, _, inverse = torch.native_layer_norm(x, x.shape[-1:], norm.gain, norm.shift, norm.eps)
        return normed, inverse
    inverse = (torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / x.shape[-1] + norm.eps).rsqrt()
    normed = x * inverse * norm.gain
    return normed if norm.shift is None else normed + norm.shift, inverse


class Product:
    """x matrix + bias, by the fastest of torch's kernels.

    In single precision on a CPU, torch multiplies with MKL, which leaves half of an AMD CPU idle. Inputs in
    oneDNN's layout are multiplied with oneDNN, which uses all of it.

    Args:
        matrix: [input, output].
        bias: [output], or None.
    """

    def __init__(self, matrix: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._bias = matrix.T.contiguous(), bias
        single = matrix.device.type == "cpu" and matrix.dtype == torch.float32
        backend = torch.backends.mkldnn
        self._by_onednn = single and backend.is_available() and backend.enabled

    def __call__(self, x: Tensor) -> Tensor:
        """Return x matrix + bias [..., output] for x [..., input]."""
        rows = x.reshape(-1, x.shape[-1])
        if self._by_onednn and len(rows) and not torch.is_autocast_enabled("cpu"):
            product = nn.functional.linear(rows.to_mkldnn(), self._weight, self._bias).to_dense()
        else:
            product = nn.functional.linear(rows, self._weight, self._bias)
        return product.reshape(*x.shape[:-1], product.shape[-1])
