"""Constants and closed forms shared by the models that mix tokens by a recurrence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.zoo.tokenizers import START

if TYPE_CHECKING:
    import numpy.typing as npt

STEEP = 32.0
"""The input of a silu in place of 1: silu(32) is 32 in single precision, and its slope there is 1."""
LEAD = 1e-6
"""The least difference of two weights that is told from a tie: single precision has 24 bits."""
_LEAST_DECAY = 0.5
_STILL = 1e-20
"""A rate so small that nothing decays, in any precision. The parameter holds its logarithm."""


def rate(decay: float, step: float = 1.0) -> tuple[float, float]:
    """Return the parameters `A_log` and `dt_bias` with which every step multiplies the state by `decay`.

    The state is multiplied by exp(-exp(A_log) dt), with dt = softplus(dt_bias).

    Args:
        decay: The factor, above 0 and at most 1.
        step: dt.
    """
    return math.log(max(-math.log(decay) / step, _STILL)), math.log(math.expm1(step))


def require_share(value: float, name: str, least: float = _LEAST_DECAY) -> float:
    """Return `value`, the argument `name`, as a float; raise an error if it is not `least` to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number from {least} to 1, not {value!r}.")
    if not least <= value <= 1:
        raise ValueError(f"{name} must be {least} to 1, not {value}.")
    return float(value)


def tokens_of(text: str) -> npt.NDArray[np.str_]:
    """Return the tokens of a text's letters, `<s>` first [token]."""
    return np.array([START, *text])


def decays(decay: float, count: int) -> npt.NDArray[np.float64]:
    """Return decay^(i - j) for tokens j up to i, 0 for later tokens [row, column]."""
    lags = np.subtract.outer(np.arange(count), np.arange(count))
    return np.where(lags >= 0, decay ** np.maximum(lags, 0.0), 0.0)


def shares(lengths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return lengths divided by their row's sum; rows of zeros stay so [row, column]."""
    sums = lengths.sum(1, keepdims=True)
    return np.divide(lengths, sums, out=np.zeros_like(lengths), where=sums > 0)


def leader(totals: dict[str, float]) -> str | None:
    """Return the letter with the largest total; None if it leads by no more than `LEAD`."""
    first, second, *_ = sorted([*totals.values(), 0.0, 0.0], reverse=True)
    return max(totals, key=totals.__getitem__) if first - second > LEAD else None
