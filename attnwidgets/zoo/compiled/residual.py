"""The residual stream of a compiled model: named blocks of coordinates, each written with both signs.

A layer norm with epsilon 2^30 and gain 2^15 returns x - mean(x): both numbers are exact, and every variance
that occurs is small compared to the epsilon. Each coordinate is written twice, as x and as -x. The mean is
then 0, and norms change nothing. Both numbers are powers of two; half precision holds the gain, too.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

EPSILON, GAIN = 2.0**30, 2.0**15
SHARP = 64.0
"""The least attention score, before the softmax, of what a head looks for; all else is at most half of it."""


class Residual:
    """Named blocks of the residual stream.

    Args:
        **sizes: The blocks by name.
    """

    def __init__(self, **sizes: int) -> None:
        self.at: dict[str, int] = {}
        self.size = 0
        for name, size in sizes.items():
            self.at[name] = self.size
            self.size += size
        self._sizes = sizes

    def read(self, *names: str) -> Tensor:
        """Return the matrix [coordinate, value] that reads blocks, one after the other."""
        every = torch.eye(self.size)
        return torch.cat([every[:, self.at[name] : self.at[name] + self._sizes[name]] for name in names], 1)

    def write(self, *names: str) -> Tensor:
        """Return the matrix [value, coordinate] that writes blocks."""
        return self.read(*names).T


def steps(thresholds: Sequence[float], gaps: Sequence[float], reads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return units that tell whether a number is above each of several thresholds.

    Two units make a step: relu(z + 1/2) - relu(z - 1/2) with z = 2 (x - threshold) / gap. It is flat but for
    the middle half of the gap, so that rounding errors of x do not matter.

    Args:
        thresholds: The thresholds.
        gaps: For each, the distance of the two values of x that it separates.
        reads: What x is [coordinate].

    Returns:
        Weights [coordinate, unit], bias [unit], and weights [unit, step].
    """
    slopes = 2 / torch.tensor(gaps, dtype=torch.float64)
    middle = -slopes * torch.tensor(thresholds, dtype=torch.float64)
    read = reads[:, None] * slopes.repeat(2).float()
    bias = torch.cat([middle + 0.5, middle - 0.5]).float()
    return read, bias, torch.cat([torch.eye(len(thresholds)), -torch.eye(len(thresholds))])


def bands(values: Sequence[float], reads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return units that tell which of several values a number has; as `steps`, [unit, value].

    Args:
        values: The values in ascending order; the first and the last are only distinguished, not read.
        reads: What the number is [coordinate].
    """
    thresholds = [(low + high) / 2 for low, high in pairwise(values)]
    read, bias, write = steps(thresholds, [high - low for low, high in pairwise(values)], reads)
    return read, bias, write[:, :-1] - write[:, 1:]


LOGIT = 10.0
"""The logit of the right answer; all others are 0."""


def width_of(residual: Residual, heads: int, least: int) -> int:
    """Return the width of a model: both signs of all coordinates, in `heads` parts of at least `least`."""
    return heads * max(least, math.ceil(2 * residual.size / heads))


def both(written: Tensor, width: int) -> Tensor:
    """Return rows [value, coordinate] as [value, width]: with both signs, and zeros to the width."""
    signed = torch.cat([written, -written], -1)
    return torch.nn.functional.pad(signed, (0, width - signed.shape[-1]))


def first(read: Tensor, width: int) -> Tensor:
    """Return columns [coordinate, value] as [width, value]: the first sign alone is read."""
    return torch.nn.functional.pad(read, (0, 0, 0, width - len(read)))


def sharpened(head_size: int) -> float:
    """Return the power of two that undoes, and at most doubles, the scaling of scores by 1 / sqrt(size)."""
    return 2.0 ** math.ceil(math.log2(math.sqrt(head_size)))


def empty(model: nn.Module) -> None:
    """Set all weights to zero, and those of norms so that they change nothing."""
    for parameter in model.parameters():
        parameter.data.zero_()
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.weight.data.fill_(GAIN)
