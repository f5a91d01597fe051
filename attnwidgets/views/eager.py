"""What is sent before anyone asks: thumbnails, and everything else that is small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.codec import GAMMA, pool, quantise, scale_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.views.sources import Source

THUMB_SIDE = 64
THUMB_BUDGET = 1_200_000
"""Bytes that all thumbnails together may take."""
TILE_BUDGET = 1_000_000
"""Bytes up to which tiles are sent without being asked for."""
_LEAST = 8


class Pack:
    """The eager bytes, and where everything lies in them.

    Sources are packed in the order given: a source comes whole while the tile budget lasts, else as
    thumbnails with the tiles that are looked at first.

    Args:
        sources: Most important first.
        first: Layer and head that a view opens with.
    """

    def __init__(self, sources: Sequence[Source], first: tuple[int, int | str]) -> None:
        self.thumbs: list[dict[str, Any]] = []
        self.tiles: list[dict[str, Any]] = []
        self._parts: list[bytes] = []
        self._length = 0
        self._for_tiles = TILE_BUDGET
        self._for_thumbs = THUMB_BUDGET
        for source in sources:
            self._add(source, first)

    @property
    def data(self) -> bytes:
        """Return the bytes."""
        return b"".join(self._parts)

    def _add(self, source: Source, first: tuple[int, int | str]) -> None:
        rows, cols = source.shape
        heads = 1 if source.heads is None else len(source.heads)
        dense = len(source.layers) * heads * rows * cols
        reduced = 0 if source.heads is None else 2 * len(source.layers) * rows * cols
        fits = dense + reduced <= self._for_tiles
        if fits and max(rows, cols) <= THUMB_SIDE and dense <= self._for_thumbs:
            self._whole(source, rows, cols)
            return
        if source.heads is not None:
            self._thumbnails(source, rows, cols)
        layer = first[0] if first[0] in source.layers else source.layers[0]
        keys = source.heads_of_tiles(layer)
        wanted = (
            [(n, key) for n in source.layers for key in source.heads_of_tiles(n)]
            if fits
            else [(layer, first[1] if first[1] in keys else keys[0])]
        )
        for number, key in wanted:
            self._tile(source, number, key)

    def _whole(self, source: Source, rows: int, cols: int) -> None:
        # Nothing is pooled here, so that one byte a value serves as tile and as thumbnail.
        start, scales = self._length, []
        for layer in source.layers:
            values = _padded(source, layer)
            scale = [scale_of(head, stochastic=source.stochastic) for head in values]
            block = quantise(values, np.asarray(scale, dtype=np.float32)[:, None, None], signed=source.signed)
            scales.append(scale)
            present = len(source.layer(layer))
            for place, (key, value) in enumerate(zip(source.heads or ("-",), scale, strict=True)):
                self._length += rows * cols
                if place >= present:
                    continue
                self.tiles.append(
                    {
                        "source": source.id,
                        "layer": layer,
                        "head": key,
                        "rows": rows,
                        "cols": cols,
                        "codec": "i8" if source.signed else "u8",
                        "gamma": GAMMA,
                        "scale": value,
                        "offset": self._length - rows * cols,
                        "length": rows * cols,
                    }
                )
            self._parts.append(block.tobytes())
        self._for_tiles -= self._length - start
        self._for_thumbs -= self._length - start
        self._thumbs_at(source, rows, cols, scales, start)
        if source.heads is not None:
            for layer in source.layers:
                for key in ("mean", "max"):
                    self._tile(source, layer, key)

    def _thumbnails(self, source: Source, rows: int, cols: int) -> None:
        count = len(source.layers) * len(source.heads or (0,))
        small_rows, small_cols = min(THUMB_SIDE, rows), min(THUMB_SIDE, cols)
        while count * small_rows * small_cols > self._for_thumbs:
            if small_rows <= 1 and small_cols <= 1:
                return
            small_rows, small_cols = max(1, small_rows // 2), max(1, small_cols // 2)
        if small_rows < min(_LEAST, rows):
            return  # a few dots tell nothing; the budget is spent on sources that came first
        start, scales = self._length, []
        for layer in source.layers:
            values = pool(_padded(source, layer), small_rows, small_cols)
            scale = np.abs(values).max(axis=(1, 2))
            scales.append([float(value) for value in scale])
            self._append(quantise(values, scale[:, None, None], signed=source.signed).tobytes())
        self._for_thumbs -= self._length - start
        self._thumbs_at(source, small_rows, small_cols, scales, start)

    def _thumbs_at(self, source: Source, rows: int, cols: int, scales: list[list[float]], start: int) -> None:
        self.thumbs.append(
            {
                "source": source.id,
                "rows": rows,
                "cols": cols,
                "gamma": GAMMA,
                "signed": source.signed,
                "scale": scales,
                "offset": start,
                "length": len(scales) * len(scales[0]) * rows * cols,
            }
        )

    def _tile(self, source: Source, layer: int, head: int | str) -> None:
        tile = source.tile(layer, head)
        self.tiles.append({**tile.meta(), "offset": self._length, "length": len(tile.data)})
        self._append(tile.data)
        self._for_tiles -= len(tile.data)

    def _append(self, data: bytes) -> None:
        self._parts.append(data)
        self._length += len(data)


def _padded(source: Source, layer: int) -> NDArray[np.float32]:
    """Return a layer with as many heads as the source counts: empty ones where heads were pruned."""
    values = source.layer(layer)
    missing = len(source.heads or (0,)) - len(values)
    return np.pad(values, ((0, missing), (0, 0), (0, 0))) if missing else values
