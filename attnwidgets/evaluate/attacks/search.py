"""Changes of embeddings that an attack tries, all within its budget: along a gradient, and at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.evaluate.attacks.forms import Pass, targets_of
from attnwidgets.evaluate.documentation import documented
from attnwidgets.tracing.gradients.differentiable import differentiable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from torch import Tensor

    from attnwidgets.evaluate.arrays import Bools, Float
    from attnwidgets.evaluate.attacks.forms import At, Form
    from attnwidgets.tracing.trace import Trace

_STEP = 0.35
"""The length of a step, as a share of the budget."""

_START = 0.05
"""The length of the first change, likewise: at 0 the gradient of a ranking may vanish."""

_WITHIN = 0.6
"""The share of the tolerance from which on a step is drawn back to the prediction."""

_FORCE = 4.0
"""How strongly it is."""

_ROUNDING = 1e-5
"""Differences below this share of the largest number are rounding."""


@documented
@dataclass(frozen=True, kw_only=True)
class AttackSearch:
    """How `attack` and `attacks` search, and which changes are allowed.

    Args:
        budget: How far each embedding may move, as a share of its length; 0 or more.
        tolerance: How far the probability of the prediction may move, 0 to 1.
        steps: Steps along the gradient.
        draws: Random changes of embeddings, at least 1.
        most: With `words`: how many replacements are tried; drawn if there are more.
        seed: {seed}

    Raises:
        ValueError: If an option is out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A film of great charm and little plot.")
        >>> near = aw.evaluate.AttackSearch(budget=0.01, steps=4, draws=2)
        >>> aw.evaluate.attack(trace, "rollout", search=near).budget
        0.01
    """

    budget: float = 0.1
    tolerance: float = 0.05
    steps: int = 8
    draws: int = 9
    most: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.budget >= 0:
            raise ValueError(
                f"budget must be a share of an embedding's length, 0 or more, not {self.budget!r}."
            )
        if not 0 <= self.tolerance <= 1:
            raise ValueError(
                f"tolerance must be a difference of probabilities, 0 to 1, not {self.tolerance!r}."
            )
        for name in ("most", "steps", "draws"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}.")


@dataclass(frozen=True)
class Ball:
    """The changes that are allowed.

    Attributes:
        lengths: How far each token's embedding may move [token]; 0 for special tokens.
        dim: Numbers in an embedding.
    """

    lengths: Float
    dim: int

    def projected(self, change: Float) -> Float:
        """Return a change [token, dim] with every token's part shortened into the ball."""
        lengths = np.linalg.norm(change, axis=-1)
        share = np.divide(self.lengths, lengths, out=np.ones_like(lengths), where=lengths > self.lengths)
        return change * share[:, None]

    def drawn(self, generator: np.random.Generator) -> Float:
        """Return a change of full length in random directions [token, dim]."""
        change = generator.normal(size=(len(self.lengths), self.dim))
        return change / np.linalg.norm(change, axis=-1, keepdims=True) * self.lengths[:, None]


@dataclass(frozen=True)
class Goal:
    """The goal of an attack: the values to move, and the prediction to keep.

    Attributes:
        top: The content tokens with the largest values.
        content: Which tokens count [token].
        row: The row of the logits where the prediction is read; None without rows.
        outcome: Its column.
        probability: Its probability without a change.
        tolerance: How far the probability may move.
    """

    top: tuple[int, ...]
    content: Bools
    row: int | None
    outcome: int
    probability: float
    tolerance: float

    def loss(self, trace: Trace, here: At) -> Tensor:
        """Return the top tokens' share of all sizes, plus the penalty of a prediction that moves too far."""
        size = here.values.abs()
        share = size[list(self.top)].sum() / size[self.content.nonzero()[0]].sum().clamp_min(1e-30)
        row = here.logits if self.row is None else here.logits[self.row]
        moved = (trace.answer.probabilities(row)[self.outcome] - self.probability).abs()
        return share + _FORCE * (moved - _WITHIN * self.tolerance).clamp_min(0)


@dataclass(frozen=True)
class Descent:
    """The changes that a descent tried.

    Attributes:
        changes: The changes [token, dim].
        shifts: How far a value may be moved by any change in the ball [token], if the gradient that the
            values are made of is the same at every change that was tried; else None.
    """

    changes: tuple[Float, ...]
    shifts: Float | None


def descended(
    trace: Trace,
    form: Form,
    options: Mapping[str, Any],
    ball: Ball,
    goal: Goal,
    *,
    query: int,
    steps: int,
    drawn: Sequence[Float],
) -> Descent:
    """Return the changes of projected gradient descent on `Goal.loss`, token by token.

    Args:
        trace: The trace.
        form: The differentiable form of the method.
        options: The method's options.
        ball: The changes that are allowed.
        goal: The goal of the attack.
        query: The query whose row of a map is read.
        steps: Number of steps.
        drawn: Random changes; the first gives the direction of the start.
    """
    import torch

    change = drawn[0] * _START
    changes: list[Float] = []
    gradients: list[Float] = []
    moves = True
    with differentiable(trace, "attack", entry=trace.default_stack) as run:
        at = Pass(run, trace, trace.default_stack, targets_of(trace, options), options, query)
        embeddings = run().inputs[at.stack].detach()[0]

        def there(change: Float) -> tuple[At, Tensor]:
            moved = torch.as_tensor(change).to(embeddings).requires_grad_()
            return form(at, embeddings + moved), moved

        for _ in progress(range(steps), "attacking"):
            here, moved = there(change)
            if here.gradient is not None:
                gradients.append(here.gradient.detach().double().cpu().numpy())
                moves = here.moves
            loss = goal.loss(trace, here)
            slope = torch.autograd.grad(loss, moved, allow_unused=True, materialize_grads=True)[0]
            direction = slope.double().cpu().numpy()
            norms = np.linalg.norm(direction, axis=-1, keepdims=True)
            unit = np.divide(direction, norms, out=np.zeros_like(direction), where=norms > 0)
            change = ball.projected(change - _STEP * ball.lengths[:, None] * unit)
            changes.append(change)
        if _are_equal(gradients):
            gradients += [
                gradient.detach().double().cpu().numpy()
                for draw in drawn
                if (gradient := there(draw)[0].gradient) is not None
            ]
    if not _are_equal(gradients):
        return Descent(tuple(changes), None)
    lengths = np.linalg.norm(gradients[0], axis=-1)
    return Descent(tuple(changes), lengths * ball.lengths if moves else np.zeros_like(lengths))


def _are_equal(gradients: Sequence[Float]) -> bool:
    """Return whether there are gradients, and all are equal up to rounding."""
    if not gradients:
        return False
    first = gradients[0]
    most = max(float(np.abs(gradient - first).max()) for gradient in gradients)
    return most <= _ROUNDING * float(np.abs(first).max())


def settled(values: Float) -> Float:
    """Return values [element] as shares of the largest, in which differences by rounding are ties."""
    largest = float(np.abs(values).max())
    return np.round(values / largest / _ROUNDING) * _ROUNDING if largest else values


def largest_distance(values: Float, shifts: Float) -> float:
    """Return how far 1 - Spearman can get if every value moves by at most its shift.

    A rank moves at most by the number of values that its own can meet. With d these numbers, and r the ranks
    less their mean, 1 - rho is at most |d|^2 / (2 |r| |r'|), and |r'| is at least |r| - |d|.

    Args:
        values: The values [element].
        shifts: How far each may move [element].
    """
    from scipy.stats import rankdata

    if not shifts.any():
        return 0.0
    reach = shifts + _ROUNDING * float(np.abs(values).max())
    meets = np.abs(values[:, None] - values) <= reach[:, None] + reach
    moved = float(np.linalg.norm(meets.sum(1) - 1))
    ranks = float(np.linalg.norm(rankdata(values) - (len(values) + 1) / 2))
    return 2.0 if moved >= ranks else min(2.0, moved**2 / (2 * ranks * (ranks - moved)))
