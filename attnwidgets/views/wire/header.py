"""The header: the contents of a store (`Header` of wire.ts), and the bytes sent without a request."""

from __future__ import annotations

from math import isnan
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.wire.axes import key_for_target
from attnwidgets.views.wire.reader import REDUCTIONS
from attnwidgets.views.wire.sources import Tile
from attnwidgets.views.wire.thumbnails import (
    THUMB_BUDGET,
    THUMB_SIDE,
    Thumbnails,
    first_thumbnails,
    marked,
    padded,
    quantise,
    scale_of,
    thumbnails,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from attnwidgets.views.base.accepts import Entry
    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.thumbnails import Codec

TILE_BUDGET = 1_000_000
"""Bytes of tiles that are sent without a request."""

OPENING_VALUES = 2**27
"""Values of a large source that are read for the thumbnails that a view opens with."""


def describe(
    sources: Sequence[Source],
    pack: Pack,
    menu: Mapping[str, Entry],
    explains: str = "",
    *,
    computes: bool = True,
) -> dict[str, Any]:
    """Return the Header of wire.ts.

    Args:
        sources: Most important first.
        pack: The eager bytes of these sources.
        menu: Methods that can be chosen, by key.
        explains: Key of the method that explains predictions.
        computes: Whether a kernel can explain predictions that no source explains yet.
    """
    axes: dict[str, dict[str, Any]] = {}
    described = []
    for source in sources:
        query, key = (_axis_key(axes, axis) for axis in source.axes())
        described.append(source.describe(query, key))
    provenance = sources[0].explanation.provenance if sources else {}
    shown = (predictions_of(source.explanation) for source in sources)
    predictions: dict[str, Any] = next((p for p in shown if p["items"]), {"title": "", "items": []})
    explained = None if computes else _explained(sources, explains, predictions["items"])
    return {
        "version": 1,
        "model": model_name(str(provenance.get("model", "") or "")),
        "text": str(provenance.get("text", "") or ""),
        "axes": axes,
        "sources": described,
        "methods": [entry.describe(key) for key, entry in menu.items()],
        "thumbs": pack.thumbs,
        "tiles": pack.tiles,
        "predictions": predictions | {"method": explains, "explained": explained},
    }


def _explained(sources: Sequence[Source], explains: str, items: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the ids of the predictions that a source explains by the method with the key `explains`."""
    keys = {source.method for source in sources}
    by_key = {explained_key(explains, items, index): item["id"] for index, item in enumerate(items)}
    return [number for key, number in by_key.items() if key in keys]


def explained_key(explains: str, items: Sequence[Any], index: int) -> str:
    """Return the key under which the explanation of a prediction is stored; the first needs no target."""
    return key_for_target(explains, items[index]["id"] if index else None, None)


def opening_matrix(
    sources: Sequence[Source], first: tuple[int | None, int | str | None]
) -> tuple[int, int | str]:
    """Return the layer and head that a view opens with; None in `first` stands for the first."""
    if not sources:
        return 0, "-"
    main = sources[0]
    layer = main.layers[0] if first[0] is None else first[0]
    head = (main.heads or ("-",))[0] if first[1] is None else first[1]
    return layer, head


def model_name(name: str) -> str:
    """Return a model's name for display: of a folder only the last two parts, because pages are published."""
    parts = PurePath(name).parts
    return "/".join(parts[-2:]) if len(parts) > 2 or PurePath(name).is_absolute() else name  # noqa: PLR2004


def predictions_of(explanation: Any) -> dict[str, Any]:
    """Return the model's predictions: `Predictions` of wire.ts."""
    title, items = explanation.predictions or ("", ())
    return {"title": str(title), "items": [prediction_of(item, title) for item in items]}


def prediction_of(item: Any, title: str) -> dict[str, Any]:
    """Return a prediction: `Prediction` of wire.ts; a number without the title that stands before it."""
    share = float(item.probability)
    if isnan(share):
        label = item.label.replace(" -", " −").removeprefix(f"{title} ")
        return {"label": label, "probability": None, "id": int(item.id)}
    return {"label": str(item.label), "probability": share, "id": int(item.id)}


def _axis_key(axes: dict[str, dict[str, Any]], axis: dict[str, Any]) -> str:
    """Put an axis into the header once and return its key."""
    for key, listed in axes.items():
        if listed == axis:
            return key
    key = axis["unit"]
    while key in axes:
        key += "'"
    axes[key] = axis
    return str(key)


def opening_first(sources: Sequence[Source], unit: str | None) -> list[Source]:
    """Return sources, of a large explanation the unit first that a view opens in: no other unit is read."""
    main = next(iter(sources), None)
    if main is None or not main.large:
        return list(sources)
    return sorted(sources, key=lambda it: (it.explanation is not main.explanation, it.unit != unit))


class Pack:
    """The eager bytes, and the offsets of all tiles and thumbnails in them.

    Sources are packed in the order given: a source is included whole while the tile budget lasts, else with
    the tiles that a view opens with and, if a view shows them, its thumbnails. A source that is computed on
    demand is included as far as it is computed, a large source only with the matrix that a view opens with.

    Args:
        sources: Most important first.
        first: Layer and head that a view opens with.
        after: The pack to extend: its bytes and entries come first, and use up a part of the budget.
        all_heads: Whether a view opens with every head of the layer; they are included if the budget allows.
        overview: Whether a view shows thumbnails.
        special: Whether views show special tokens in the map, each that a view does: thumbnails are like it.
        shown: The ids of the sources that views open with: of others, thumbnails are left to be requested if
            no range depends on them. None: those of every source are included.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        first: tuple[int, int | str],
        after: Pack | None = None,
        *,
        all_heads: bool = False,
        overview: bool = False,
        special: Collection[bool] = (False,),
        shown: Collection[str] | None = None,
    ) -> None:
        self._all_heads = all_heads
        self._special = special
        self._overview = overview
        self._shown = shown
        self.ids: frozenset[str] = frozenset(source.id for source in sources)
        self.thumbs: list[dict[str, Any]] = []
        self.tiles: list[dict[str, Any]] = []
        self._parts: list[bytes] = []
        self.offsets: dict[bytes, int] = {}
        self.length: int = 0
        self.room_for_tiles: int = TILE_BUDGET
        self.room_for_thumbs: int = THUMB_BUDGET
        if after is not None:
            self.ids |= after.ids
            self.thumbs, self.tiles = list(after.thumbs), list(after.tiles)
            self._parts, self.offsets, self.length = [after.data], dict(after.offsets), after.length
            self.room_for_tiles, self.room_for_thumbs = after.room_for_tiles, after.room_for_thumbs
        for index, source in enumerate(sources):
            if source.on_demand:
                self._add_computed(source, first)
            elif index == 0 or not source.large:
                self._add(source, first)

    @property
    def data(self) -> bytes:
        """Return the bytes."""
        return b"".join(self._parts)

    def include(
        self, sources: Sequence[Source], matrices: Sequence[tuple[str, int, int | str]], *, overview: bool
    ) -> None:
        """Add the matrices that views show now, unless they are packed.

        Args:
            sources: All sources.
            matrices: The id of a source, layer and head of each view.
            overview: Whether a view shows thumbnails.
        """
        by_id = {source.id: source for source in sources if not source.large}
        for name, layer, head in dict.fromkeys(matrices):
            source = by_id.get(name)
            if source is None or layer not in source.ready:
                continue
            if all(
                (tile["source"], tile["layer"], tile["head"]) != (name, layer, head) for tile in self.tiles
            ):
                self._tile(source, layer, head)
            if overview and not source.of_targets and all(thumb["source"] != name for thumb in self.thumbs):
                self._thumbnails(source)

    def _add_computed(self, source: Source, first: tuple[int, int | str]) -> None:
        if not source.ready:
            return
        if self._shows(source):
            self._thumbnails(source)
        for layer in sorted(source.ready, key=lambda number: number != first[0]):
            for key in source.heads_of_tiles(layer):
                if self.room_for_tiles <= 0:
                    return
                self._tile(source, layer, key)

    def _add(self, source: Source, first: tuple[int, int | str]) -> None:
        rows, cols = source.shape
        heads = 1 if source.heads is None else len(source.heads)
        dense = len(source.layers) * heads * rows * cols
        reduced = 0 if source.heads is None else 2 * len(source.layers) * rows * cols
        fits = not source.large and dense + reduced <= self.room_for_tiles
        if fits and max(rows, cols) <= THUMB_SIDE and dense <= self.room_for_thumbs:
            self._whole(source, rows, cols)
            return
        layer = first[0] if first[0] in source.layers else source.layers[0]
        # If rows are not shares, the common range of all maps comes from the thumbnails.
        ranged = not source.stochastic and not source.large
        if source.heads is not None and (self._shows(source) or ranged):
            self._thumbnails(source, layer)
        keys = source.heads_of_tiles(layer)
        opened = first[1] if first[1] in keys else keys[0]
        if fits:
            matrices = [(n, key) for n in source.layers for key in source.heads_of_tiles(n)]
        elif self._all_heads and len(keys) * rows * cols <= self.room_for_tiles:
            matrices = [(layer, key) for key in keys]
        else:
            matrices = [(layer, opened)]
        for number, key in matrices:
            self._tile(source, number, key)

    def _shows(self, source: Source) -> bool:
        """Return whether a view opens with thumbnails of a source."""
        return self._overview and (self._shown is None or source.id in self._shown)

    def _whole(self, source: Source, rows: int, cols: int) -> None:
        # Nothing is pooled here, so that one byte a value serves as tile and as thumbnail. The browser leaves
        # out elements that stand apart.
        start, size = self.length, rows * cols
        codec: Codec = "i8" if source.signed else "u8"
        scales = []
        for layer in source.layers:
            values = padded(source, layer)
            scale = [scale_of(head, stochastic=source.stochastic) for head in values]
            codes = quantise(values, np.asarray(scale, dtype=np.float32)[:, None, None], signed=source.signed)
            scales.append(marked(source, layer, scale))
            compared = source.readable(layer)
            heads: Sequence[int | str] = source.heads or ("-",)
            for index, head in enumerate(heads[: source.count(layer)]):
                sink, scaled = source.to_sink(layer, head), scale[index]
                tile = Tile(source.id, layer, head, rows, cols, codec, scaled, b"", None, sink, compared)
                self.tiles.append({**tile.meta(), "offset": self.length + index * size, "length": size})
            self._append(codes.tobytes())
        length = self.length - start
        thumbs = Thumbnails(source.id, rows, cols, source.signed, scales, b"", source.has_special)
        self.thumbs.append({**thumbs.meta(), "offset": start, "length": length})
        self.room_for_tiles -= length
        self.room_for_thumbs -= length
        for layer in source.layers if source.heads is not None else ():
            for reduction in REDUCTIONS:
                self._tile(source, layer, reduction)

    def _thumbnails(self, source: Source, layer: int = 0) -> None:
        for special in sorted({special and source.has_special for special in self._special}):
            if source.parts:
                thumbs = first_thumbnails(source, layer, OPENING_VALUES, special=special)
            else:
                thumbs = thumbnails(source, self.room_for_thumbs, special=special)
            if thumbs is None:
                return  # earlier sources used up the budget; a view requests these
            before = self.length
            self.thumbs.append({**thumbs.meta(), **self._placed(thumbs.data)})
            self.room_for_thumbs -= self.length - before

    def _tile(self, source: Source, layer: int, head: int | str) -> None:
        tile = source.tile(layer, head)
        before = self.length
        self.tiles.append({**tile.meta(), **self._placed(tile.data)})
        self.room_for_tiles -= self.length - before

    def _placed(self, data: bytes) -> dict[str, int]:
        """Return the offset of bytes. Equal bytes are packed once, as where every word is a token."""
        at = self.offsets.setdefault(data, self.length)
        if at == self.length:
            self._append(data)
        return {"offset": at, "length": len(data)}

    def _append(self, data: bytes) -> None:
        self._parts.append(data)
        self.length += len(data)
