"""How a page stores numbers: float32, float16, and groups of 32 numbers in 8 or 4 bits with a scale.

The twin of js/src/engine/kinds.ts. Only matrices whose rows are whole groups are stored in 8 or 4 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Packed = tuple[NDArray[Any], NDArray[np.float16]]  # numbers and scales

GROUP = 32
"""Numbers that share a scale."""

ALIGNED = 16
"""The numbers and the scales of a tensor start at multiples of this many bytes."""

_PIECE = 2048 * GROUP  # numbers that are packed at once


@dataclass(frozen=True)
class Tensor:
    """A matrix or a vector as a page stores it.

    Attributes:
        kind: "f32", "f16", "q8" or "q4m".
        shape: [to, from] of a matrix, [number] of a vector.
        numbers: The numbers, row by row, little-endian.
        scales: Of every group: its scale in float16; for "q4m", also its least number.
    """

    kind: str
    shape: tuple[int, ...]
    numbers: bytes
    scales: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of the numbers and the scales."""
        return len(self.numbers) + len(self.scales)

    def unpacked(self) -> Floats:
        """Return the numbers that the page computes with."""
        return _KINDS[self.kind][1](self.numbers, self.scales).reshape(self.shape)


def pack(values: Floats, kind: str) -> Tensor:
    """Return a matrix or a vector in a kind, rounded where the kind does not hold its numbers.

    Raises:
        OverflowError: The numbers are beyond the range of the kind.
    """
    parts = []
    for piece in _pieces(values):
        part = _packed(piece, kind)
        if part is None:
            raise OverflowError(f"{np.abs(values).max():.3g} is beyond float16")
        parts.append(part)
    return _joined(values, kind, parts)


def pack_exactly(values: Floats, kinds: Iterable[str] = ("q4m", "q8", "f16", "f32")) -> Tensor | None:
    """Return a matrix or a vector in the first kind that gives back every number bit for bit.

    Args:
        values: float32 numbers.
        kinds: The kinds to try, the smallest first.

    Returns:
        None if they are exact in none of the kinds.
    """
    whole_groups = is_grouped(values)
    for kind in kinds:
        if kind.startswith("q") and not whole_groups:
            continue
        parts = []
        for piece in _pieces(values):
            part = _packed(piece, kind)
            if part is None or not np.array_equal(_bits(_KINDS[kind][1](*part)), _bits(piece)):
                break
            parts.append(part)
        else:
            return _joined(values, kind, parts)
    return None


def _pieces(values: Floats) -> Iterator[Floats]:
    """Yield numbers, row by row, in pieces that stay in the caches of a CPU."""
    flat = values.reshape(-1)
    return (flat[start : start + _PIECE] for start in range(0, len(flat), _PIECE))


def _packed(piece: Floats, kind: str) -> tuple[bytes, bytes] | None:
    """Return the bytes of some numbers in a kind, and those of their scales; None beyond its range."""
    with np.errstate(over="ignore"):
        numbers, scales = _KINDS[kind][0](piece)
    is_within = np.isfinite(numbers if kind == "f16" else scales).all()
    return (numbers.tobytes(), scales.tobytes()) if is_within else None


def _bits(values: Floats) -> NDArray[np.uint32]:
    return values.reshape(-1).view(np.uint32)


def _joined(values: Floats, kind: str, parts: Sequence[tuple[bytes, bytes]]) -> Tensor:
    numbers, scales = (b"".join(part[side] for part in parts) for side in (0, 1))
    return Tensor(kind, values.shape, numbers, scales)


def is_grouped(values: Floats) -> bool:
    """Return whether the rows of a tensor consist of whole groups; those of a vector never do."""
    return values.ndim > 1 and values.shape[-1] % GROUP == 0


def joined(tensors: Iterable[Tensor]) -> bytes:
    """Return the bytes of tensors one after the other, as the page reads them."""
    joined = bytearray()
    for tensor in tensors:
        for part in filter(None, (tensor.numbers, tensor.scales)):
            joined += bytes(-len(joined) % ALIGNED) + part
    return bytes(joined)


def _divided(values: Floats, scales: NDArray[np.float16]) -> Floats:
    """Return numbers [group, number] divided by their scales; 0 where a scale is 0."""
    divisors = scales.astype(np.float32)[:, None]
    return np.divide(values, divisors, out=np.zeros_like(values), where=divisors != 0)


def _pack_q8(flat: Floats) -> Packed:
    groups = flat.reshape(-1, GROUP)
    scales = (np.abs(groups).max(1) / np.float32(127)).astype("<f2")
    return np.clip(np.rint(_divided(groups, scales)), -127, 127).astype(np.int8), scales


def _unpack_q8(numbers: bytes, scales: bytes) -> Floats:
    groups = np.frombuffer(numbers, np.int8).reshape(-1, GROUP).astype(np.float32)
    return groups * np.frombuffer(scales, "<f2").astype(np.float32)[:, None]


def _pack_q4m(flat: Floats) -> Packed:
    groups = flat.reshape(-1, GROUP)
    least = groups.min(1)
    scales = np.stack([(groups.max(1) - least) / np.float32(15), least], axis=1).astype("<f2")
    shifted = groups - scales[:, 1:].astype(np.float32)
    codes = np.clip(np.rint(_divided(shifted, scales[:, 0])), 0, 15).astype(np.uint8)
    half = GROUP // 2
    return codes[:, :half] | (codes[:, half:] << 4), scales


def _unpack_q4m(numbers: bytes, scales: bytes) -> Floats:
    pairs = np.frombuffer(numbers, np.uint8).reshape(-1, GROUP // 2)
    codes = np.concatenate([pairs & 15, pairs >> 4], axis=1).astype(np.float32)
    scale, least = np.frombuffer(scales, "<f2").astype(np.float32).reshape(-1, 2, 1).swapaxes(0, 1)
    return codes * scale + least


_NO_SCALES = np.zeros(0, np.float16)

_KINDS: Mapping[str, tuple[Callable[[Floats], Packed], Callable[[bytes, bytes], Floats]]] = {
    "f32": (
        lambda flat: (flat.astype("<f4"), _NO_SCALES),
        lambda numbers, _: np.frombuffer(numbers, "<f4").astype(np.float32),
    ),
    "f16": (
        lambda flat: (flat.astype("<f2"), _NO_SCALES),
        lambda numbers, _: np.frombuffer(numbers, "<f2").astype(np.float32),
    ),
    "q8": (_pack_q8, _unpack_q8),
    "q4m": (_pack_q4m, _unpack_q4m),
}
"""How flat numbers are packed, and unpacked from their bytes and the bytes of their scales."""
