"""Vectors that add up to a state, taken along through what is done to the state.

Every row (a token of the model) holds one vector for every source. Linear maps act on each of them; norms do
with the deviation of the real state held fixed; a bias is shared out among them; an activation becomes a
line. So they go on adding up to the state, step by step (Modarressi et al. 2023, DecompX, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch

from attnwidgets.tracing.algebra.modules import Norm
from attnwidgets.tracing.algebra.steps import Affine, Gated, Scale

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from attnwidgets.tracing.algebra.steps import Function, Step

Bias = Literal["absdot", "abssim", "norm", "equal", "cls", "dot"]
Activation = Literal["zero_origin", "linear_approximation", "relu"]
Gate = Literal["half", "fixed"]

# What the authors' code adds where it divides.
_GUARD = 1e-12
# Below which products with a bias are none at all.
_NONE = 1e-9
# How much less work is to be had before a map waits: multiplying maps takes more memory than vectors.
_WORTH = 1.2
# What torch.nn.functional.cosine_similarity takes for the least length.
_LEAST = 1e-8
# Shares that follow from products with the bias alone.
BY_PRODUCT = ("absdot", "dot")


@dataclass(frozen=True)
class Rules:
    """How what is not linear is shared out.

    Args:
        bias: Among the vectors t_j of a row, a bias b goes by |t_j b| ("absdot"), t_j b ("dot"),
            |cos(t_j, b)| ("abssim"), |t_j| ("norm"), in equal parts to those that are not zero ("equal"), or
            to the first source ("cls"); None drops it. Where all products are zero, parts are equal.
        activation: f(x) is f(x) / x times its parts ("zero_origin"), f'(x) times its parts with the rest as a
            bias ("linear_approximation"), or its parts where x > 0 and nothing elsewhere ("relu").
        gate: Of f(g) u, each factor's parts with the other held fixed count "half"; or f(g) is "fixed" and
            the parts are those of u.
    """

    bias: Bias | None = "absdot"
    activation: Activation = "zero_origin"
    gate: Gate = "half"


@dataclass
class Vectors:
    """base + sum over tails of share x vector: the sources' vectors, and the state of which they are parts.

    Biases stay in `tails` until somebody needs the numbers, so that a wide layer is passed over once. A map
    into a wide layer may be `pending`: where there are more sources than a row's two maps, in and out, take
    to be multiplied, that is less work.

    Args:
        state: The model's own state [row, dim]; norms and activations are taken of it.
        base: [row, source, dim], contiguous.
        tails: Pairs of shares [row, source] and a vector [row or 1, dim].
        pending: The matrix [row or 1, base's dim, dim] that is still to be applied to `base`, which is then
            another's and not to be written over; None for none.
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
        """Return every vector's product with one vector [row or 1, dim] a row, [row, source]."""
        ahead = vector if self.pending is None else torch.matmul(self.pending, vector[..., None])[..., 0]
        if len(ahead) == 1:
            found = torch.matmul(self.base, ahead[0])
        else:
            found = torch.bmm(self.base, ahead[..., None])[..., 0]
        for share, tail in self.tails:
            found = torch.addcmul(found, share, (tail * vector).sum(-1, keepdim=True))
        return found

    def add(self, bias: Tensor | None, rules: Rules, products: Tensor | None = None) -> None:
        """Share a bias [row or 1, dim] out; the state is not touched.

        Args:
            bias: None for none.
            rules: How.
            products: Its product with every vector [row, source], where somebody has them.
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
            # No vector has a part of this bias, as of a constant one behind a norm: it would be lost.
            present = (self.whole() != 0).any(-1).to(shares)
            shares = torch.where(
                total.abs() < _NONE, present / present.sum(-1, keepdim=True).clamp(min=1), shares
            )
        self.tails.append((shares, bias))

    def through(self, steps: Iterable[Step], rules: Rules) -> Vectors:
        """Return the vectors after some steps; an activation writes over them and is not to be the first."""
        found = self
        for step in steps:
            found = found.after(step, rules)
        return found

    def after(self, step: Step, rules: Rules) -> Vectors:
        """Return the vectors after one step."""
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
        """Return the vectors after a norm whose deviation is that of the state."""
        factor = norm.gain / norm.deviation(self.state)
        base = self.base if self.pending is None else self.whole()
        base = base - base.mean(-1, keepdim=True) if norm.centred else base.clone()
        base.mul_(factor[:, None])
        tails = [
            (share, (vector - vector.mean(-1, keepdim=True) if norm.centred else vector) * factor)
            for share, vector in self.tails
        ]
        found = Vectors(norm(self.state), base, tails)
        found.add(None if norm.shift is None else norm.shift[None], rules)
        return found

    def projected(
        self, step: Affine, rules: Rules, products: Tensor | None = None, *, passes: int = 2
    ) -> Vectors:
        """Return the vectors after an affine map.

        Args:
            step: The map.
            rules: How its bias is shared out.
            products: What to share it by, where that is not its product with every vector [row, source].
            passes: Of a map into a wide layer, how many such maps every vector passes to be out of it again.
        """
        tails = self.tails_through(lambda vector: vector @ step.matrix)
        found = Vectors(step(self.state), self.base, tails, step.matrix[None])
        if self.pending is not None:
            matrix = torch.matmul(self.pending, step.matrix)
            found.base, found.pending = torch.matmul(self.base, matrix), None
        elif not self._waits(step, rules, passes):
            found.base, found.pending = torch.matmul(self.base, step.matrix), None
        if step.bias is not None and rules.bias is not None:
            # A product with the bias is the same before the map, where vectors may be shorter.
            shorter = step.matrix.shape[0] < step.matrix.shape[1] and rules.bias in BY_PRODUCT
            products = self.dot((step.matrix @ step.bias)[None]) if shorter and products is None else products
            found.add(step.bias[None], rules, products)
        return found

    def _waits(self, step: Affine, rules: Rules, passes: int) -> bool:
        """Return whether a map into a wide layer is better multiplied with the one out of it, row by row."""
        narrow, wide = step.matrix.shape
        ahead = self.base.shape[1] * (passes * wide - narrow) > _WORTH * narrow * wide
        return ahead and rules.bias in (*BY_PRODUCT, None)

    def activated(self, function: Function, rules: Rules) -> Vectors:
        """Return the vectors after a function of every component, taken for a line through the state."""
        slope, rest = line(function, self.state, rules)
        found = self.times(function(self.state), slope)
        found.add(rest, rules)
        return found

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
        """Return the vectors times factors [row, dim], as parts of `state`; the base is written over."""
        tails = self.tails_through(lambda vector: vector * factor)
        if self.pending is not None:
            return Vectors(state, self.base, tails, self.pending * factor[:, None])
        return Vectors(state, self.base.mul_(factor[:, None]), tails)

    def tails_through(self, step: Function) -> list[tuple[Tensor, Tensor]]:
        """Return the tails after a linear map."""
        return [(share, step(vector)) for share, vector in self.tails]


def line(function: Function, state: Tensor, rules: Rules) -> tuple[Tensor, Tensor | None]:
    """Return slope and intercept [row, dim] of the line that stands for a function at a state.

    The intercept is None where the line goes through the origin.
    """
    if rules.activation == "relu":
        return (state > 0).to(state), None
    made = function(state)
    if rules.activation == "zero_origin":
        return made / (state + _GUARD), None
    with torch.enable_grad():
        point = state.detach().requires_grad_()
        (slope,) = torch.autograd.grad(function(point).sum(), point)
    return slope, made - slope * state
