"""Matrices that a page's script computes from others that the page holds, which are smaller.

Weights are computed from the factors of their scores (`score_factors.py`), reductions from heads, words from
tokens, rollout from means over heads. The description of a computed matrix has its `slack`: by how many codes
a cell may differ from the true one, beyond rounding it to a code. Where that would be more than a code, the
page holds the matrix itself.

The twin of `js/src/host/computed.ts`.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.page.contents import LEVEL
from attnwidgets.views.page.score_factors import TOP, factors, weights_of
from attnwidgets.views.wire.reader import REDUCTIONS
from attnwidgets.views.wire.thumbnails import GAMMA, decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets.views.wire.sources import Source

    Address = tuple[str, int, int | str]
    """Id of a source, layer and head."""

_LEAST_CELLS = 10_000
"""Cells from which on a matrix is computed: smaller ones take few bytes, and are exact to half a code."""

_MOST_SLACK = 1.0

_PRODUCT_BYTES = 2**26
"""Bytes of the products of rollout, one for each layer, that a browser keeps."""

_SMALLER = 0.8
"""Share of the bytes of codes that factors take at most: they are less exact."""

_OF_FACTORS, _OF_CODES = 0.85, 0.5
"""Bytes that a number of the factors and a code take, about, when they are compressed."""


@dataclass(frozen=True)
class PageMatrix:
    """A matrix of the page: its description, and compressed bytes, none if it is computed from others."""

    meta: dict[str, Any]
    data: bytes

    @property
    def address(self) -> Address:
        """Which matrix it is."""
        return self.meta["source"], self.meta["layer"], self.meta["head"]

    @property
    def slack(self) -> float:
        """By how many codes a cell may differ from the true one, before it is rounded to a code."""
        return float(self.meta["slack"]) if "from" in self.meta else 0.5


class Computed:
    """The matrices that a page holds, and those that its script computes from them.

    Args:
        sources: The sources of a store.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = {source.id: source for source in sources}
        self._matrices: dict[Address, PageMatrix] = {}
        self._bases = [source for source in sources if _is_base(source)]
        self._sizes = {source.id: _expected_sizes(source) for source in self._bases}
        self._products: dict[str, list[NDArray[np.float64]]] = {}
        self._values = lru_cache(maxsize=4)(self._read)

    def bases(self) -> list[Source]:
        """Return the maps of attention from whose heads others are computed."""
        return self._bases

    def expected_bytes(self, source: Source, n_heads: int) -> float:
        """Return about how many bytes some heads of a map take."""
        return n_heads * min(self._sizes[source.id])

    def entry(self, source: Source, layer: int, head: int | str) -> PageMatrix:
        """Return a matrix as the page holds it: factors of its scores if they are smaller, else codes."""
        of_factors, of_codes = self._sizes.get(source.id, (math.inf, 0.0))
        products = source.explanation.query_key(layer) if of_factors < _SMALLER * of_codes else None
        if products is not None and isinstance(head, int):
            query, key = (side[numbered(source, layer).index(head)] for side in products)
            rounded = factors(query, key, source.matrix(layer, head), causal=source.causal)
            if rounded is not None:
                data, slack = rounded
                recipe = {"from": "factors", "rank": query.shape[-1], "causal": source.causal}
                return PageMatrix(_described(source, layer, head, slack) | recipe, zlib.compress(data, LEVEL))
        tile = source.tile(layer, head)
        return PageMatrix(tile.meta(), zlib.compress(tile.data, LEVEL))

    def add(self, matrix: PageMatrix) -> None:
        """Record that the page holds a matrix."""
        self._matrices[matrix.address] = matrix

    def has(self, address: Address) -> bool:
        """Return whether the page holds a matrix, or computes it."""
        return address in self._matrices

    def recipes(self) -> Iterator[PageMatrix]:
        """Yield the matrices that can be computed from those that the page holds by then."""
        for base in self._bases:
            for source, whole in self._computable(base):
                for layer in source.ready:
                    # Reductions come after the heads that they are computed from.
                    for head in sorted(source.heads_of_tiles(layer), key=lambda head: head in REDUCTIONS):
                        recipe = None
                        if not self.has((source.id, layer, head)):
                            recipe = self._recipe(source, layer, head, whole, base)
                        if recipe is not None:
                            yield recipe

    def _computable(self, base: Source) -> Iterator[tuple[Source, Source | None]]:
        """Yield the sources that may be computed, each with that of its map in tokens; for this, None."""
        rollouts = [source for source in self._sources.values() if _is_rollout_of(source, base)]
        in_tokens = [base, *(source for source in rollouts if source.unit == base.unit)]
        for whole in in_tokens:
            yield whole, None
            for source in self._sources.values():
                query, key = source.axes()
                is_of_it = source is not whole and source.explanation is whole.explanation and query == key
                if is_of_it and math.prod(source.shape) >= _LEAST_CELLS:
                    yield source, whole

    def _recipe(
        self, source: Source, layer: int, head: int | str, whole: Source | None, base: Source
    ) -> PageMatrix | None:
        """Return a matrix with how it is computed; None if a part is missing, or it would be too inexact."""
        if head in REDUCTIONS:
            parts = [self._matrices.get((source.id, layer, number)) for number in numbered(source, layer)]
            if None in parts:
                return None
            # The root of a mean is a norm of roots: it moves by no more than the root that moves most.
            slack = max(part.slack for part in parts if part is not None)
            return PageMatrix(
                _described(source, layer, head, slack) | {"from": "heads", "count": len(parts)}, b""
            )
        if whole is not None:
            part = self._matrices.get((whole.id, layer, head))
            recipe = {"from": "unit", "base": whole.id}
            # A sum of squares moves by the root of their number, at most.
            slack = math.nan if part is None else part.slack * math.sqrt(max(map(len, _members(source))))
            is_possible = part is not None
        else:
            below = source.layers[: source.layers.index(layer) + 1]
            is_possible = source is not base and all(self.has((base.id, at, "mean")) for at in below)
            recipe, slack = {"from": "layers", "base": base.id}, math.inf
        if is_possible and slack > _MOST_SLACK:
            roots = (np.sqrt(values.clip(0)) for values in self._both(source, layer, head, recipe))
            slack = float(np.abs(np.subtract(*roots)).max()) * TOP
        is_exact = is_possible and slack <= _MOST_SLACK
        return PageMatrix(_described(source, layer, head, slack) | recipe, b"") if is_exact else None

    def _both(
        self, source: Source, layer: int, head: int | str, recipe: dict[str, Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return a matrix as the page would compute it, and as it is."""
        return self._from(recipe, source, layer, head), source.matrix(layer, head)

    # -- the numbers that the script computes --------------------------------------------------------

    def _read(self, address: Address) -> NDArray[np.float32]:
        matrix, source = self._matrices[address], self._sources[address[0]]
        meta = matrix.meta
        if "from" in meta:
            return self._from(meta, source, *address[1:], data=matrix.data)
        return decode(zlib.decompress(matrix.data), meta["codec"], meta["rows"], meta["cols"], meta["scale"])

    def _from(
        self, recipe: dict[str, Any], source: Source, layer: int, head: int | str, data: bytes = b""
    ) -> NDArray[np.float32]:
        if recipe["from"] == "factors":
            inflated = zlib.decompress(data)
            return weights_of(inflated, recipe["rank"], *source.shape, causal=bool(recipe["causal"]))
        if recipe["from"] == "heads":
            parts = np.stack([self._read((source.id, layer, number)) for number in numbered(source, layer)])
            return np.asarray(parts.mean(axis=0) if head == "mean" else parts.max(axis=0))
        if recipe["from"] == "unit":
            members = _members(source)
            belongs = np.zeros((len(members), sum(map(len, members))), dtype=np.float32)
            for element, tokens in enumerate(members):
                belongs[element, list(tokens)] = 1
            sums = belongs @ self._values((recipe["base"], layer, head)) @ belongs.T
            return np.asarray(sums / belongs.sum(axis=1, keepdims=True))
        all_products = self._products.setdefault(source.id, [])
        for number in source.layers[len(all_products) : source.layers.index(layer) + 1]:
            step = self._values((recipe["base"], number, "mean")).astype(np.float64)
            step += np.eye(len(step))
            step /= step.sum(axis=1, keepdims=True)
            all_products.append(step @ all_products[-1] if all_products else step)
        return all_products[source.layers.index(layer)].astype(np.float32)


def numbered(source: Source, layer: int) -> list[int]:
    """Return the heads of a layer, without reductions over them."""
    return [head for head in source.heads_of_tiles(layer) if isinstance(head, int)]


def _described(source: Source, layer: int, head: int | str, slack: float) -> dict[str, Any]:
    """Return the TileMeta of wire.ts of a matrix of shares."""
    rows, cols = source.shape
    place = {"source": source.id, "layer": layer, "head": head, "rows": rows, "cols": cols}
    return place | {"codec": "u8", "scale": 1.0, "gamma": GAMMA, "slack": round(slack + 5e-4, 3)}


def _members(source: Source) -> list[list[int]]:
    """Return the tokens of every element of a source whose queries are its keys."""
    axis, _ = source.axes()
    return axis["spans"] or [[token] for token in range(len(axis["labels"]))]


def _expected_sizes(base: Source) -> tuple[float, float]:
    """Return about how many bytes the factors of a head take, inf without factors, and how many its codes."""
    codes = _OF_CODES * math.prod(base.shape) / (2 if base.causal else 1)
    products = base.explanation.query_key(base.ready[0])
    return (math.inf if products is None else _OF_FACTORS * products[0].shape[-1] * sum(base.shape)), codes


def _is_base(source: Source) -> bool:
    """Return whether other maps may be computed from this map of attention."""
    explanation = source.explanation
    is_plain = source.heads is not None and not (source.signed or source.sink or source.coarse)
    if source.attributions or not is_plain or source.unit != explanation.unit or source.on_demand:
        return False
    if not source.stochastic or math.prod(source.shape) < _LEAST_CELLS:
        return False
    return explanation.method == "attention" and all(source.readable(layer) is None for layer in source.ready)


def _is_rollout_of(source: Source, base: Source) -> bool:
    """Return whether a map may be the rollout of a map of attention; its numbers decide (`_recipe`)."""
    if source.attributions or source.on_demand or source.coarse or source.explanation.method != "rollout":
        return False
    size = 4 * len(source.layers) * math.prod(base.shape)
    same = source.stack == base.stack and source.layers == base.layers[: len(source.layers)]
    return source.heads is None and same and size <= _PRODUCT_BYTES
