"""A weight of a kernel as a chain: the value that a key writes, and its change at every later position.

The state of a recurrence goes through the text. Position i reads the value that position j wrote after every
position between them has let it decay, or overwritten a part of it. The chain follows the value in this
order; `Kernel.rows` computes the same weight backwards, from the query.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass(frozen=True)
class Step:
    """The change of a key's value at consecutive positions.

    Each value follows from the previous: value = before * factor - erased.

    Attributes:
        first: The first of the positions.
        last: The last of them.
        factor: The factor of the value by decay.
        erased: The part of the value that a delta rule takes away to write another.
        value: The value that a query at this position would read of the key.
    """

    first: int
    last: int
    factor: float
    erased: float
    value: float


@dataclass(frozen=True)
class Chain:
    """How a weight of a kernel comes about: weight = (value after the last step + skip) / total.

    Attributes:
        formula: The formula of `start`.
        start: The value that a query directly after the key would read of it.
        steps: The positions after the key, up to the query, in the order of the text.
        skip: The term of a connection around the state, if a position reads itself.
        total: The divisor of the value: the sum of the row, if weights are shares of it.
        components: Number of components of the state with separate decay rates; 1 if all share a rate. With
            several, a factor is that of their sum, which need not lie between 0 and 1.
    """

    formula: str
    start: float
    steps: tuple[Step, ...]
    skip: float = 0.0
    total: float = 1.0
    components: int = 1

    @property
    def value(self) -> float:
        """The value that the query reads of the key, before `skip` and `total`."""
        return self.steps[-1].value if self.steps else self.start

    @property
    def weight(self) -> float:
        """The weight."""
        return (self.value + self.skip) / self.total


def faded(
    formula: str, start: Tensor, factors: Tensor, first: int, *, skip: float = 0.0, total: float = 1.0
) -> Chain:
    """Return the chain of a state that decays alone.

    Args:
        formula: The formula of `start`.
        start: A number.
        factors: The decay of each position [step].
        first: The position of the first step.
        skip: See `Chain`.
        total: See `Chain`.
    """
    values = (start * factors.cumprod(0)).tolist()
    steps = tuple(
        Step(first + at, first + at, factor, 0.0, value)
        for at, (factor, value) in enumerate(zip(factors.tolist(), values, strict=True))
    )
    return Chain(formula, float(start), steps, skip, total)


def followed(
    formula: str,
    query: Tensor,
    written: Tensor,
    decays: Tensor,
    first: int,
    *,
    erasing: tuple[Tensor, Tensor] | None = None,
    skip: float = 0.0,
) -> Chain:
    """Return the chain of a state of several components.

    Args:
        formula: The formula of `query . written`.
        query: The vector by which the query reads the state [component].
        written: The vector that the key writes into the state [component].
        decays: [step, component], or [step, 1] if all decay alike.
        first: The position of the first step.
        erasing: Keys [step, component] and betas [step] of a delta rule, which replaces the share beta of the
            value that its key reads; None if nothing is erased.
        skip: See `Chain`.
    """
    start = before = float(query @ written)
    steps = []
    for at, decay in enumerate(decays):
        written = written * decay
        left = float(query @ written)
        # If components cancelled each other, the factor is unknown: a new value counts as written anew.
        factor = float(decay[0]) if len(decay) == 1 else left / before if before else float(decay.mean())
        if erasing is not None:
            key, beta = erasing[0][at], erasing[1][at]
            written = written - beta * (key @ written) * key
        value = float(query @ written)
        steps.append(Step(first + at, first + at, factor, (left if before else 0.0) - value, value))
        before = value
    return Chain(formula, start, tuple(steps), skip, components=decays.shape[1])


def condensed(chain: Chain, most: int) -> tuple[Step, ...]:
    """Return the steps of a chain, with those that change least joined with their neighbours.

    Args:
        chain: The chain.
        most: Number of steps that are not joined; a chain of up to twice as many is returned whole.
    """
    steps = chain.steps
    if len(steps) <= 2 * most:
        return steps
    values = [chain.start, *(step.value for step in steps)]
    changes = [abs(after - before) for before, after in pairwise(values)]
    apart = sorted(range(len(steps)), key=lambda at: -changes[at])[:most]
    lines: list[Step] = []
    for is_apart, group in groupby(range(len(steps)), key=set(apart).__contains__):
        run = [steps[at] for at in group]
        lines += run if is_apart else [_joined(run, values[run[0].first - steps[0].first])]
    return tuple(lines)


def _joined(run: Sequence[Step], before: float) -> Step:
    """Return consecutive steps as a single step, given the value before them."""
    factor, value = prod(step.factor for step in run), run[-1].value
    erased = before * factor - value if any(step.erased for step in run) else 0.0
    return Step(run[0].first, run[-1].last, factor, erased, value)
