"""One weight of a kernel as a chain: what a key writes, and what every later position leaves of it.

The state of a recurrence goes through the text. What position j writes is read by position i after every
position between them has let it decay, or overwritten a part of it. The chain follows it in this order, and
so computes by hand what `Kernel.rows` computes backwards, from the query.
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
    """What some consecutive positions leave of what a key wrote.

    Each value follows from the one before: value = before * factor - erased.

    Attributes:
        first: The first of the positions.
        last: The last of them.
        factor: What decay leaves of the value, as a factor.
        erased: What a delta rule takes from it to write something else in its place.
        value: What the query would read of the key if it stood here.
    """

    first: int
    last: int
    factor: float
    erased: float
    value: float


@dataclass(frozen=True)
class Chain:
    """How one weight of a kernel comes about: weight = (value after the last step + skip) / total.

    Attributes:
        formula: What `start` is, in symbols.
        start: What the query would read of the key if it followed at once.
        steps: The positions after the key, up to the query, in the order of the text.
        skip: What a connection around the state adds, where a position reads itself.
        total: What the value is divided by: the sum of the row, where weights are shares of it.
        components: Number of components of the state that decay at rates of their own; 1 if all share one.
            A factor is then what is left of their sum, which need not lie between 0 and 1.
    """

    formula: str
    start: float
    steps: tuple[Step, ...]
    skip: float = 0.0
    total: float = 1.0
    components: int = 1

    @property
    def value(self) -> float:
        """What the query reads of the key, before `skip` and `total`."""
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
        formula: What `start` is.
        start: A number.
        factors: What each position leaves [step].
        first: The position of the first of them.
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
        formula: What `query . written` is.
        query: What the query reads of the state [component].
        written: What the key writes into it [component].
        decays: [step, component], or [step, 1] if all decay alike.
        first: The position of the first step.
        erasing: Keys [step, component] and betas [step] of a delta rule, which replaces the share beta of
            what its key reads; None if nothing is erased.
        skip: See `Chain`.
    """
    start = before = float(query @ written)
    steps = []
    for at, decay in enumerate(decays):
        written = written * decay
        left = float(query @ written)
        # Of components that cancelled each other no share is left: what appears counts as written anew.
        factor = float(decay[0]) if len(decay) == 1 else left / before if before else float(decay.mean())
        if erasing is not None:
            key, beta = erasing[0][at], erasing[1][at]
            written = written - beta * (key @ written) * key
        value = float(query @ written)
        steps.append(Step(first + at, first + at, factor, (left if before else 0.0) - value, value))
        before = value
    return Chain(formula, start, tuple(steps), skip, components=decays.shape[1])


def condensed(chain: Chain, most: int) -> tuple[Step, ...]:
    """Return the steps of a chain, of which those that change least are joined with their neighbours.

    Args:
        chain: The chain.
        most: Number of steps that stand by themselves; a chain of up to twice as many is returned whole.
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
    """Return consecutive steps as one, given the value before them."""
    factor, value = prod(step.factor for step in run), run[-1].value
    erased = before * factor - value if any(step.erased for step in run) else 0.0
    return Step(run[0].first, run[-1].last, factor, erased, value)
