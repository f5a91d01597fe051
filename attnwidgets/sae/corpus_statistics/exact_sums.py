"""Exact sums of float32 numbers, equal to the last bit for any grouping and order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOWEST = 149  # float32 numbers are whole multiples of 2^-149
_MANTISSA = 24
_BITS = 32  # of a digit
DIGITS = 10
"""Digits of a sum in base 2^32: enough for 2^43 numbers below 2^128, the upper limit of float32."""


def zeros(rows: int) -> NDArray[np.int64]:
    """Return empty sums [row, digit], lowest digit first."""
    return np.zeros((rows, DIGITS), dtype=np.int64)


def add(sums: NDArray[np.int64], rows: NDArray[np.int64], values: NDArray[np.float32]) -> None:
    """Add values to the sums of their rows, fewer than 2^20 per row and call.

    Args:
        sums: Sums [row, digit]; changed in place.
        rows: Row of each value [value].
        values: Finite values [value].
    """
    doubles = values.astype(np.float64)
    exponents = np.maximum(np.frexp(doubles)[1].astype(np.int64) - _MANTISSA, -_LOWEST)
    digits, shifts = np.divmod(exponents + _LOWEST, _BITS)
    whole = np.ldexp(doubles, -exponents).astype(np.int64) << shifts
    for digit, part in ((digits, whole & (2**_BITS - 1)), (digits + 1, whole >> _BITS)):
        # The parts are integers and their sums stay below 2^53, so float64 adds them exactly.
        carried = np.bincount(rows * DIGITS + digit, weights=part, minlength=sums.size)
        sums += carried.astype(np.int64).reshape(sums.shape)
    carry(sums)


def carry(sums: NDArray[np.int64]) -> None:
    """Bring every digit except the highest below 2^32, in place, so that equal sums have equal digits."""
    for digit in range(DIGITS - 1):
        sums[:, digit + 1] += sums[:, digit] >> _BITS
        sums[:, digit] &= 2**_BITS - 1


def to_floats(sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sums [row] in float64, rounded once."""
    integers = (sum(digit << (_BITS * i) for i, digit in enumerate(digits)) for digits in sums.tolist())
    return np.array([integer / 2**_LOWEST for integer in integers], dtype=np.float64)
