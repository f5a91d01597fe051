"""Thumbnails: every matrix of a source, max-pooled to a few cells; and the encoding of a matrix in bytes.

A thumbnail follows the map that it stands for: special tokens are left out where they stand apart from it
(`Source.content`), and are among the cells where it shows them.

The encoding of a matrix: one byte a value after a square root, half of that for a causal map.

The twin of `js/src/wire/codec.ts`. Attention weights are mostly tiny: linear bytes lose 41 % of those above
0.001. With a square root first (`GAMMA`), every value is within 1/256 of the scale, and small weights are far
more exact. Numbers that are printed or ranked never come from these bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.views.wire.reader import SLOW_VALUES, Pooled, even, pool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from numpy.typing import NDArray

    from attnwidgets.views.wire.sources import Source

    Codec = Literal["u8", "u8tri", "i8"]

THUMB_SIDE = 64
"""Largest number of cells along a side of a thumbnail."""

THUMB_BUDGET = 1_200_000
"""Size limit of the thumbnails of a source, and of all that are sent without a request."""

PART_VALUES = 2**26
"""Values that are read at a time for thumbnails that come in parts; a single head may have more."""

_LEAST = 8
PRUNED = -1.0
"""The scale of a thumbnail whose head was pruned."""

UNREAD = -128
"""Signed code of a cell that a row cannot read: not a number, and not a zero."""

GAMMA = 0.5
"""Exponent of the companding; 1 / GAMMA decodes."""


@dataclass(frozen=True)
class Thumbnails:
    """The thumbnails of a source (`Thumbs` of wire.ts), and their bytes.

    `scale` is the largest magnitude [layer][head], `PRUNED` for heads that a layer lacks; `data` holds the
    codes [layer][head][row][col]. Both leave out layers that are not computed yet, and heads of a later part.
    `special` says whether special tokens are among the cells; it is False if there are none.
    `part` is the Part of wire.ts: the indices of a layer and of its first head.
    """

    source: str
    rows: int
    cols: int
    signed: bool
    scale: list[list[float]]
    data: bytes
    special: bool = False
    part: tuple[int, int] | None = None

    def meta(self) -> dict[str, Any]:
        """Return the description that the browser needs to read the bytes."""
        described = {
            name: getattr(self, name) for name in ("source", "rows", "cols", "signed", "scale", "special")
        }
        return described | {"gamma": GAMMA} | ({} if self.part is None else {"part": list(self.part)})


def thumbnails(source: Source, room: int = THUMB_BUDGET, *, special: bool = False) -> Thumbnails | None:
    """Return thumbnails of a source, as large as `room` bytes allow; with its `special` tokens, or without.

    None if other sources left so little of the budget that only a few cells of each would fit: a view then
    requests them. With the whole budget, thousands of heads get small thumbnails rather than none.
    """
    cells = Cells.of(source, room, special=special)
    if cells is None:
        return None
    heads = range(len(source.heads or (0,)))
    is_slow = len(source.layers) * len(heads) * source.weights > SLOW_VALUES
    layers = progress(source.layers, desc="thumbnails") if is_slow else source.layers
    ready = source.ready
    pooled = [_of_layer(source, layer, heads, cells) if layer in ready else ([], b"") for layer in layers]
    scales, codes = zip(*pooled, strict=True)
    return cells.thumbnails(source, list(scales), b"".join(codes))


def first_thumbnails(source: Source, layer: int, most: int, *, special: bool = False) -> Thumbnails | None:
    """Return the thumbnails for which about `most` values are read, those of `layer` first.

    None if no layer fits. The others come in parts; see `some_thumbnails`.
    """
    cells = Cells.of(source, THUMB_BUDGET, special=special)
    left = most // max(1, source.weights)
    if cells is None or not left:
        return None
    by_layer: dict[int, tuple[list[float], bytes]] = {}
    for number in sorted(source.layers, key=lambda number: number != layer):
        heads = range(min(left, len(source.heads or (0,))))
        left -= len(heads)
        by_layer[number] = _of_layer(source, number, heads, cells) if heads else ([], b"")
    scales, codes = zip(*(by_layer[number] for number in source.layers), strict=True)
    return cells.thumbnails(source, list(scales), b"".join(codes))


def some_thumbnails(source: Source, index: int, head: int, *, special: bool = False) -> Thumbnails:
    """Return the thumbnails of a layer, from a head on, that take only a moment; at least one.

    Args:
        source: A source whose thumbnails come in parts.
        index: Index of the layer among those of the source.
        head: Place of the first head.
        special: Whether special tokens are among the cells.

    Raises:
        IndexError: The layer or head is out of range.
        ValueError: There are too many for thumbnails.
    """
    count = len(source.heads or (0,))
    if not (0 <= index < len(source.layers) and 0 <= head < count):
        raise IndexError(f"{source.id} has no thumbnail at layer {index}, head {head}.")
    cells = Cells.of(source, THUMB_BUDGET, special=special)
    if cells is None:
        raise ValueError(f"{source.id} has too many layers and heads for thumbnails.")
    heads = range(head, min(count, head + max(1, PART_VALUES // max(1, source.weights))))
    scale, data = _of_layer(source, source.layers[index], heads, cells)
    scales: list[list[float]] = [[] for _ in source.layers]
    scales[index] = scale
    return cells.thumbnails(source, scales, data, (index, head))


@dataclass(frozen=True)
class Cells:
    """The cells of every thumbnail of a source: how many rows and columns, and of which queries and keys.

    `special` says whether special tokens are among these.
    """

    rows: int
    cols: int
    content: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    special: bool

    @classmethod
    def of(cls, source: Source, room: int, *, special: bool) -> Cells | None:
        """Return the largest number of cells that fit `room` bytes, or None: see `thumbnails`."""
        special = special and source.has_special
        query, key = source.content
        content = (np.ones_like(query), np.ones_like(key)) if special else (query, key)
        count = len(source.layers) * len(source.heads or (0,))
        rows, cols = (min(THUMB_SIDE, int(elements.sum())) for elements in content)
        least = min(_LEAST, rows)
        while count * rows * cols > room:
            if rows <= 1 and cols <= 1:
                return None
            share = min((room / (count * rows * cols)) ** 0.5, 1 - 1 / max(rows, cols))
            rows, cols = max(1, int(rows * share)), max(1, int(cols * share))
        return None if rows < least and room < THUMB_BUDGET else cls(rows, cols, content, special)

    def thumbnails(
        self, source: Source, scale: list[list[float]], data: bytes, part: tuple[int, int] | None = None
    ) -> Thumbnails:
        """Return thumbnails of these cells."""
        return Thumbnails(source.id, self.rows, self.cols, source.signed, scale, data, self.special, part)


def _of_layer(source: Source, layer: int, indices: Sequence[int], cells: Cells) -> tuple[list[float], bytes]:
    """Return the scales and the codes of some heads, by their indices."""
    values = _pooled(source, layer, indices, cells)
    # NaN and infinity do not count towards the scale.
    scale = np.max(np.abs(values), axis=(1, 2), initial=0.0, where=np.isfinite(values))
    present = source.count(layer)
    marks = [float(value) if at < present else PRUNED for at, value in zip(indices, scale, strict=True)]
    return marks, quantise(values, scale[:, None, None], signed=source.signed).tobytes()


def _pooled(source: Source, layer: int, indices: Sequence[int], cells: Cells) -> NDArray[np.float32]:
    rows, cols = cells.content
    if not source.long:
        # A cell that a row cannot read is not a peak.
        whole = padded(source, layer)
        values = whole if len(indices) == len(whole) else whole[list(indices)]
        values = values[:, _where(rows), :][..., _where(cols)]
        if np.isnan(values.max(initial=0.0)):
            values = np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)
        return pool(values, cells.rows, cells.cols)
    present = [at for at in indices if at < source.count(layer)]
    blocks = even(int(rows.sum()), cells.rows), even(int(cols.sum()), cells.cols)
    columns = _where(cols)
    pooled = Pooled((len(present),), *blocks)
    if present:
        heads = None if source.heads is None else [source.heads[at] for at in present]
        for first, values in source.blocks_of(layer, heads):
            selected = rows[first : first + values.shape[-2]]
            if selected.any():
                values = values if selected.all() else values[..., selected, :]  # noqa: PLW2901 - a part of them
                pooled.add(int(rows[:first].sum()), values[..., columns])
    return np.pad(pooled.values, ((0, len(indices) - len(present)), (0, 0), (0, 0)))  # pruned heads are empty


def _where(mask: NDArray[np.bool_]) -> Any:
    """Return a mask as a slice where its elements are adjacent: a mask copies every value that is read."""
    read = np.flatnonzero(mask)
    adjacent = len(read) and read[-1] - read[0] == len(read) - 1
    return slice(read[0], read[-1] + 1) if adjacent else mask


def marked(source: Source, layer: int, scale: NDArray[np.floating] | list[float]) -> list[float]:
    """Return the scales of a layer's heads, `PRUNED` for those that were pruned."""
    present = source.count(layer)
    return [float(value) if head < present else PRUNED for head, value in enumerate(scale)]


def padded(source: Source, layer: int) -> NDArray[np.float32]:
    """Return a layer with all heads of the source: those that were pruned are empty."""
    values = source.layer(layer)
    missing = len(source.heads or (0,)) - len(values)
    return np.pad(values, ((0, missing), (0, 0), (0, 0))) if missing else values


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
    # Rounding may lift a share slightly above 1; anything larger is not a share and needs another scale.
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
