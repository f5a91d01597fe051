"""Vectors that add up to a state, propagated through the operations on that state.

Each row (a token of the model) has a vector for every source. Linear maps act on each vector, norms do too
with the deviation of the real state fixed, a bias is distributed among the vectors, and an activation is
replaced by a line. The vectors therefore keep adding up to the state (Modarressi et al. 2023, DecompX,
section 3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch

from attnwidgets._gradients import enable_grad
from attnwidgets.tracing.algebra.steps import Affine, Gated, Norm, Scale

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from attnwidgets.tracing.algebra.steps import Function, Step

Bias = Literal["absdot", "abssim", "norm", "equal", "cls", "dot"]
Activation = Literal["zero_origin", "linear_approximation", "relu"]
Gate = Literal["half", "fixed"]

# Added to denominators, as in the authors' code.
_GUARD = 1e-12
# Products with a bias count as zero below this.
_NONE = 1e-9
# Factor of work saved above which a map is deferred: multiplying maps takes more memory than vectors.
_WORTH = 1.2
# The least length in torch.nn.functional.cosine_similarity.
_LEAST = 1e-8
# Bias rules that only need the products with the bias.
BY_PRODUCT = ("absdot", "dot")


@dataclass(frozen=True)
class Rules:
    """How biases and nonlinear functions are distributed among the vectors.

    Args:
        bias: A bias b is distributed among the vectors t_j of a row in proportion to |t_j b| ("absdot"),
            t_j b ("dot"), |cos(t_j, b)| ("abssim") or |t_j| ("norm"), in equal parts to the nonzero vectors
            ("equal"), or to the first source ("cls"); None drops it. If all products are zero, nonzero
            vectors get equal parts.
        activation: The parts of f(x) are f(x) / x times those of x ("zero_origin"), f'(x) times those of x
            with the rest as a bias ("linear_approximation"), or those of x where x > 0 and zero elsewhere
            ("relu").
        gate: The parts of f(g) u are the mean of those with either factor fixed ("half"), or f(g) is fixed
            and the parts are those of u ("fixed").
    """

    bias: Bias | None = "absdot"
    activation: Activation = "zero_origin"
    gate: Gate = "half"


@dataclass
class Vectors:
    """The sources' vectors, base + sum over tails of share x vector, and the state they add up to.

    Biases stay in `tails` until the numbers are needed, so that a wide layer is traversed once. A map into a
    wide layer may stay `pending`: with many sources it is less work to multiply the maps in and out of the
    layer, row by row, than to apply each to all vectors.

    Args:
        state: The model's state [row, dim], from which norms and activations are computed.
        base: [row, source, dim], contiguous.
        tails: Pairs of shares [row, source] and a vector [row or 1, dim].
        pending: Matrix [row or 1, base's dim, dim] still to be applied to `base`, which is then shared and
            must not be overwritten; None if there is none.
    """

    state: Tensor
    base: Tensor
    tails: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    pending: Tensor | None = None

    def whole(self) -> Tensor:
        """Return the vectors [row, source, dim], written to `base`."""
        if self.pending is not None:
            self.base, self.pending = torch.matmul(self.base, self.pending), None
        if self.tails:
            shares = torch.stack([share for share, _ in self.tails], dim=-1)
            vectors = torch.stack([vector.expand(len(self.base), -1) for _, vector in self.tails], dim=1)
            self.base.baddbmm_(shares, vectors)
            self.tails = []
        return self.base

    def dot(self, vector: Tensor) -> Tensor:
        """Return the product of every vector with its row's `vector` [row or 1, dim], [row, source]."""
        through_pending = (
            vector if self.pending is None else torch.matmul(self.pending, vector[..., None])[..., 0]
        )
        if len(through_pending) == 1:
            products = torch.matmul(self.base, through_pending[0])
        else:
            products = torch.bmm(self.base, through_pending[..., None])[..., 0]
        for share, tail in self.tails:
            products = torch.addcmul(products, share, (tail * vector).sum(-1, keepdim=True))
        return products

    def add(self, bias: Tensor | None, rules: Rules, products: Tensor | None = None) -> None:
        """Distribute a bias [row or 1, dim] among the vectors; the state stays as it is.

        Args:
            bias: The bias; None for none.
            rules: How it is distributed.
            products: Its product with every vector [row, source], if computed before.
        """
        if bias is None or rules.bias is None:
            return
        kind = rules.bias
        if kind in BY_PRODUCT:
            weights = self.dot(bias) if products is None else products
            weights = weights.abs() if kind == "absdot" else weights
        elif kind == "cls":
            weights = self.base.new_zeros(self.base.shape[:2])
            weights[:, 0] = 1
        else:
            lengths = self.whole().norm(dim=-1)
            weights = lengths if kind == "norm" else (lengths != 0).to(lengths)
            if kind == "abssim":
                least = torch.as_tensor(_LEAST, dtype=lengths.dtype, device=lengths.device)
                unit = bias / torch.maximum(bias.norm(dim=-1, keepdim=True), least)
                weights = (self.dot(unit) / torch.maximum(lengths, least)).abs()
        total = weights.sum(-1, keepdim=True)
        shares = weights / (total + _GUARD)
        if kind in BY_PRODUCT and bool((total.abs() < _NONE).any()):
            # No vector has a share of this bias, as with a constant one after a norm: it would be lost.
            present = (self.whole() != 0).any(-1).to(shares)
            shares = torch.where(
                total.abs() < _NONE, present / present.sum(-1, keepdim=True).clamp(min=1), shares
            )
        self.tails.append((shares, bias))

    def through(self, steps: Iterable[Step], rules: Rules) -> Vectors:
        """Return the vectors after some steps. An activation overwrites them, so it must not come first."""
        vectors = self
        for step in steps:
            vectors = vectors.after(step, rules)
        return vectors

    def after(self, step: Step, rules: Rules) -> Vectors:
        """Return the vectors after a step."""
        if isinstance(step, Norm):
            return self.normed(step, rules)
        if isinstance(step, Affine):
            return self.projected(step, rules)
        if isinstance(step, Gated):
            return self.gated(step, rules)
        if isinstance(step, Scale):
            return Vectors(step(self.state), self.whole() * step.factor, self.tails_through(step))
        return self.activated(step.function, rules)

    def normed(self, norm: Norm, rules: Rules) -> Vectors:
        """Return the vectors after a norm, with the deviation of the state."""
        factor = norm.gain / norm.deviation(self.state)
        base = self.base if self.pending is None else self.whole()
        base = base - base.mean(-1, keepdim=True) if norm.centred else base.clone()
        base.mul_(factor[:, None])
        tails = [
            (share, (vector - vector.mean(-1, keepdim=True) if norm.centred else vector) * factor)
            for share, vector in self.tails
        ]
        vectors = Vectors(norm(self.state), base, tails)
        vectors.add(None if norm.shift is None else norm.shift[None], rules)
        return vectors

    def projected(
        self, step: Affine, rules: Rules, products: Tensor | None = None, *, passes: int = 2
    ) -> Vectors:
        """Return the vectors after an affine map.

        Args:
            step: The map.
            rules: How its bias is distributed.
            products: Weights to distribute it by [row, source], instead of its product with every vector.
            passes: For a map into a wide layer, how many such maps a vector passes until it is out again.
        """
        tails = self.tails_through(lambda vector: vector @ step.matrix)
        vectors = Vectors(step(self.state), self.base, tails, step.matrix[None])
        if self.pending is not None:
            matrix = torch.matmul(self.pending, step.matrix)
            vectors.base, vectors.pending = torch.matmul(self.base, matrix), None
        elif not self._waits(step, rules, passes):
            vectors.base, vectors.pending = torch.matmul(self.base, step.matrix), None
        if step.bias is not None and rules.bias is not None:
            # The product with the bias is the same before the map, where vectors may be shorter.
            shorter = step.matrix.shape[0] < step.matrix.shape[1] and rules.bias in BY_PRODUCT
            products = self.dot((step.matrix @ step.bias)[None]) if shorter and products is None else products
            vectors.add(step.bias[None], rules, products)
        return vectors

    def _waits(self, step: Affine, rules: Rules, passes: int) -> bool:
        """Return whether multiplying the maps in and out of a wide layer, row by row, is less work."""
        narrow, wide = step.matrix.shape
        less_work = self.base.shape[1] * (passes * wide - narrow) > _WORTH * narrow * wide
        return less_work and rules.bias in (*BY_PRODUCT, None)

    def activated(self, function: Function, rules: Rules) -> Vectors:
        """Return the vectors after an elementwise function, replaced by a line through its value."""
        slope, rest = line(function, self.state, rules)
        vectors = self.times(function(self.state), slope)
        vectors.add(rest, rules)
        return vectors

    def gated(self, step: Gated, rules: Rules) -> Vectors:
        """Return the vectors after function(gate(x)) * up(x)."""
        fixed = rules.gate == "fixed"
        up = self.projected(step.up, rules, passes=2 if fixed else 3)
        gate = step.gate(self.state)
        opened = step.function(gate)
        state = opened * up.state
        if fixed:
            return up.times(state, opened)
        half = self.projected(step.gate, rules, passes=3).activated(step.function, rules)
        half = half.times(state, up.state / 2)
        up = up.times(state, opened / 2)
        if half.pending is not None and up.pending is not None:
            half.pending.add_(up.pending)
        elif half.pending is None and up.pending is None:
            half.base.add_(up.base)
        else:
            half.whole().add_(up.whole())
        half.tails += up.tails
        return half

    def times(self, state: Tensor, factor: Tensor) -> Vectors:
        """Return the vectors times factors [row, dim], as parts of `state`; the base is overwritten."""
        tails = self.tails_through(lambda vector: vector * factor)
        if self.pending is not None:
            return Vectors(state, self.base, tails, self.pending * factor[:, None])
        return Vectors(state, self.base.mul_(factor[:, None]), tails)

    def tails_through(self, step: Function) -> list[tuple[Tensor, Tensor]]:
        """Return the tails after a linear map."""
        return [(share, step(vector)) for share, vector in self.tails]


def line(function: Function, state: Tensor, rules: Rules) -> tuple[Tensor, Tensor | None]:
    """Return slope and intercept [row, dim] of the line that replaces a function at a state.

    The intercept is None if the line goes through the origin.
    """
    if rules.activation == "relu":
        return (state > 0).to(state), None
    value = function(state)
    if rules.activation == "zero_origin":
        return value / (state + _GUARD), None
    with enable_grad():
        point = state.detach().requires_grad_()
        (slope,) = torch.autograd.grad(function(point).sum(), point)
    return slope, value - slope * state
