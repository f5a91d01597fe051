"""A source: one method in one unit and one stack, described for the browser and sent tile by tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.mixing.discarding import taken_by_first
from attnwidgets.explanations.results.conservation_note import sums_of, verdict_of
from attnwidgets.tracing.text.words import RULES, STANDARD
from attnwidgets.views.wire.axes import axis, target_axis
from attnwidgets.views.wire.codec import GAMMA, encode, scale_of
from attnwidgets.views.wire.keys import is_by_layer
from attnwidgets.views.wire.reader import COARSE_SIDE, TILE_VALUES, Reader

if TYPE_CHECKING:
    from attnwidgets.views.wire.codec import Codec

_SAMPLE = 16  # rows by which it is told whether those of a long map are shares
_SUM_TO_ONE = 1e-2  # bfloat16 rows miss one by a few thousandths
_FINEST = {"token", "patch", "frame"}


@dataclass(frozen=True)
class Tile:
    """One encoded matrix and what wire.ts calls its TileMeta; `whole` is the shape behind a Coarse one."""

    source: str
    layer: int
    head: int | str
    rows: int
    cols: int
    codec: Codec
    scale: float
    data: bytes
    whole: tuple[int, int] | None = None

    def meta(self) -> dict[str, Any]:
        """Return what the browser needs to read the bytes."""
        described = {
            "source": self.source,
            "layer": self.layer,
            "head": self.head,
            "rows": self.rows,
            "cols": self.cols,
            "codec": self.codec,
            "gamma": GAMMA,
            "scale": self.scale,
        }
        return described if self.whole is None else described | {"whole": list(self.whole)}


class Source(Reader):
    """Describes one explanation in one unit for the browser, and encodes its matrices.

    Describing costs nothing; see `Reader` for what is read.

    Args:
        explanation: A MixingMap, or Attributions.
        method: Key the browser selects it by.
        unit: One of the explanation's available units.
        targets: Whether the method can be asked about another target.
        whole: The attributions of which the explanation is what they say of every layer.
    """

    def __init__(
        self, explanation: Any, method: str, unit: str, *, targets: bool = False, whole: Any = None
    ) -> None:
        self.method = method
        self.targets = targets
        self.stack: str = getattr(explanation, "stack", "") or "self"
        super().__init__(explanation, unit, f"{method}/{unit}/{self.stack}", whole)
        # What would have to be computed to be known: room for a sign costs a bit of precision.
        self.signed = self._fact("signed", unknown=True, absent=self.attributions)
        self.stochastic = bool(self.ready) and self._holds_shares()

    def _holds_shares(self) -> bool:
        if not self.long:
            return bool(getattr(self.explanation, "stochastic", False))
        known: bool | None = self.explanation.known("stochastic")
        if known is None:  # as the map itself does, but from some rows of its first layer
            count = self.explanation.shape[-2]
            rows = self.explanation.rows(
                self.layers[0], None, sorted({*range(0, count, -(-count // _SAMPLE))})
            )
            off = np.abs(rows.sum(axis=-1, dtype=np.float64) - 1.0)
            known = bool(rows.min(initial=0.0) >= 0 and off.max(initial=0.0) <= _SUM_TO_ONE)
        return known

    def _fact(self, name: str, *, unknown: bool, absent: bool = False) -> bool:
        if not self.on_demand and not self.long:
            return bool(getattr(self.explanation, name, absent))
        known = self.explanation.known(name)
        return unknown if known is None else bool(known)

    # -- what the browser is told ------------------------------------------------------------------

    def axes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the query and the key Axis of wire.ts."""
        if self.attributions:
            return target_axis(self.explanation), axis(self.explanation.axis, self.unit)
        return axis(self.explanation.query, self.unit), axis(self.explanation.key, self.unit)

    @property
    def parts(self) -> bool:
        """Whether its thumbnails come a few heads at a time."""
        return self.large and self.heads is not None and not self.on_demand

    @property
    def pinnable(self) -> tuple[int, int]:
        """Rows and columns that a pin may name; where rows are explanations, columns are queries too."""
        rows, cols = self.shape
        return (cols if self.explanation.method == "comparison" else rows), cols

    @property
    def causal(self) -> bool:
        """Whether nothing looks ahead, as far as that is known before a layer is read."""
        return self._fact("causal", unknown=False)

    @property
    def title(self) -> str:
        """The method and what was done to its numbers, as people read it."""
        title = str(getattr(self.explanation, "title", self.explanation.method)).replace("_", " ")
        if not is_by_layer(self.method):
            return title
        rows = self.explanation.query_labels
        about = f" for {rows[0]!r}" if len(rows) == 1 < len(self.explanation.key_labels) else ""
        return f"{title}{about}, by layer"

    def describe(self, query: str, key: str) -> dict[str, Any]:
        """Return the Source of wire.ts; `query` and `key` name its axes in the header."""
        return {
            "id": self.id,
            "method": self.method,
            "title": self.title,
            "unit": self.unit,
            "stack": self.stack,
            "query": query,
            "key": key,
            "layers": list(self.layers),
            "computed": list(self.ready) if self.on_demand else None,
            "heads": None if self.heads is None else list(self.heads),
            "coarse": self.coarse,
            "parts": self.parts,
            "causal": self.causal,
            "signed": self.signed,
            "stochastic": self.stochastic,
            "kind": "attributions" if self.of_targets else "map",
            "note": self._note(),
            "warning": str(getattr(self.explanation, "warning", "") or ""),
            "targets": self.targets,
            "sums": self._sums(),
            "verdict": "" if self._whole is None else verdict_of(self._whole),
        }

    def _sums(self) -> list[str]:
        """Return what attributions sum to, also where it is shown what they say of a layer."""
        if self._whole is None:
            return []
        said = sums_of(self._whole)
        return said if self.attributions else [f"at the input: {line}" for line in said]

    def _note(self) -> str:
        shown = self._in_unit
        # It is read from whole layers, which a large map is spared.
        taken = taken_by_first(shown) if hasattr(shown, "held_layers") and not self.large else ""
        return "; ".join(filter(None, (self._unit_note(), taken)))

    def _unit_note(self) -> str:
        side = self.explanation.axis if self.attributions else self.explanation.key
        rule = side.units[self.unit].rule if self.unit in side.units else ""
        found = f"words by the rule {rule!r}; " if rule in RULES and rule != STANDARD else ""
        if self.attributions:
            return "" if self.unit in _FINEST else f"{found}sum over the pieces of a {self.unit}"
        rows, cols = self.shape
        tokens = f"{max(len(self.explanation.query), len(self.explanation.key)):,} tokens"
        if self.coarse:
            block = f"{-(-rows // COARSE_SIDE)} × {-(-cols // COARSE_SIDE)}"
            what = f"{max(rows, cols):,} {self.unit}s"
            return (
                f"{what}: each cell drawn is the largest of {block}; a pin asks the kernel for its exact row"
            )
        if self.unit in _FINEST:
            return ""
        aggregated = f"{found}sum over key pieces, mean over query pieces"
        if self.weights <= TILE_VALUES:
            return aggregated
        return f"{tokens}: shown by {self.unit}s; choose tokens for single ones · {aggregated}"

    # -- tiles -------------------------------------------------------------------------------------

    def tile(self, layer: int, head: int | str) -> Tile:
        """Return one encoded matrix. Raises like `matrix`."""
        values, means = self.overview(layer, head)
        scale = scale_of(values, stochastic=self.stochastic)
        data, codec = encode(values, scale=scale, signed=self.signed, causal=self.causal)
        rows, cols = values.shape
        if not self.coarse:
            return Tile(self.id, layer, head, rows, cols, codec, scale, data)
        data += means.astype("<f4").tobytes()
        return Tile(self.id, layer, head, rows, cols, codec, scale, data, self.shape)

    @property
    def tile_bytes(self) -> int:
        """How many bytes a tile may have."""
        rows, cols = self.shape
        if not self.coarse:
            return rows * cols
        return min(rows, COARSE_SIDE) * min(cols, COARSE_SIDE) + 4 * cols
