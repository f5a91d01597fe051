"""The encoding of a matrix: one byte a value after a square root, half of that for a causal map.

The twin of `js/src/wire/codec.ts`. Attention weights are mostly tiny: linear bytes lose 41 % of those above
0.001. With a square root first (`GAMMA`), every value is within 1/256 of the scale, and small weights are far
more exact. Numbers that are printed or ranked never come from these bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import NDArray

    Codec = Literal["u8", "u8tri", "i8"]

UNREAD = -128
"""Signed code of a cell that a row cannot read: not a number, and not a zero."""

GAMMA = 0.5
"""Exponent of the companding; 1 / GAMMA decodes."""


def quantise(
    values: NDArray[np.float32], scale: NDArray[np.float32] | float, *, signed: bool
) -> NDArray[np.uint8]:
    """Return the codes of values, as bytes (two's complement where signed).

    Args:
        values: Any shape. NaN becomes `UNREAD` where signed, else 0; values beyond the scale are clipped.
        scale: The magnitude that gets the largest code; broadcast against `values`. 0 means all zero.
        signed: Codes -127..127 instead of 0..255.
    """
    limit = 127.0 if signed else 255.0
    divisor = np.where(np.asarray(scale) > 0, scale, 1.0).astype(np.float32)
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float32), nan=0.0, posinf=np.inf, neginf=-np.inf)
    share = numbers / divisor
    magnitude = np.rint(limit * np.sqrt(np.clip(np.abs(share) if signed else share, 0.0, 1.0)))
    if signed:
        codes = np.where(np.isnan(values), UNREAD, np.copysign(magnitude, share))
        return np.asarray(codes.astype(np.int8).view(np.uint8))
    return np.asarray(magnitude, dtype=np.uint8)


def dequantise(codes: NDArray[np.uint8], scale: float, *, signed: bool) -> NDArray[np.float32]:
    """Return the values that the browser decodes."""
    if signed:
        signs = codes.view(np.int8).astype(np.float32)
        share = np.where(signs == UNREAD, np.float32(np.nan), signs / 127.0)
        return np.asarray(np.sign(share) * np.abs(share) ** (1.0 / GAMMA) * scale, dtype=np.float32)
    return np.asarray((codes.astype(np.float32) / 255.0) ** (1.0 / GAMMA) * scale, dtype=np.float32)


def scale_of(values: NDArray[np.float32], *, stochastic: bool) -> float:
    """Return the value of the largest code: 1 for shares of a row, so that tiles compare; else the peak."""
    peak = float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
    # Rounding may lift a share slightly above 1; anything larger is not a share and needs its own scale.
    return 1.0 if stochastic and peak <= 1.0 + 1e-4 else peak


def encode(
    values: NDArray[np.float32], *, scale: float, signed: bool = False, causal: bool = False
) -> tuple[bytes, Codec]:
    """Return a matrix as bytes, and their codec.

    Args:
        values: [query, key].
        scale: See `quantise`.
        signed: Keep the sign. A matrix with a NaN is always encoded as signed.
        causal: The map is triangular. It is packed (row by row, with the diagonal) only if it is square and
            zero above the diagonal: words of many pieces can look ahead.
    """
    signed = signed or bool(np.isnan(values).any())
    codes = quantise(values, scale, signed=signed)
    if signed:
        return codes.tobytes(), "i8"
    rows, cols = values.shape
    if causal and rows == cols and not np.any(np.triu(codes, 1)):
        return codes[np.tril_indices(rows)].tobytes(), "u8tri"
    return codes.tobytes(), "u8"


def decode(data: bytes, codec: Codec, rows: int, cols: int, scale: float) -> NDArray[np.float32]:
    """Return the matrix [rows, cols] that bytes stand for."""
    codes = np.frombuffer(data, dtype=np.uint8)
    if codec == "u8tri":
        square = np.zeros((rows, cols), dtype=np.uint8)
        square[np.tril_indices(rows)] = codes
        codes = square
    return dequantise(codes.reshape(rows, cols), scale, signed=codec == "i8")
