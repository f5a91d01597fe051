"""A source: an explanation in a unit, described for the browser and sent tile by tile."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.mixing.discarding import taken_by_first
from attnwidgets.explanations.registry.registry import method_named
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.block_mixers import measure_of
from attnwidgets.explanations.results.conservation_note import accounts_of, balance_of, sums_of, verdict_of
from attnwidgets.explanations.results.description import READING, TARGETS, axis_words
from attnwidgets.explanations.results.verbalise import findings_of
from attnwidgets.tracing.text.words import RULES, STANDARD
from attnwidgets.views.base.options import stands_apart
from attnwidgets.views.wire.axes import axis, is_by_layer, target_axis
from attnwidgets.views.wire.reader import COARSE_SIDE, LAYER_VALUES, TILE_VALUES, Reader
from attnwidgets.views.wire.thumbnails import GAMMA, encode, scale_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.explanations.results.description import AxisWords
    from attnwidgets.views.wire.thumbnails import Codec

_SAMPLE = 16  # rows of a long map that are checked for being shares
_SUM_TO_ONE = 1e-2  # sums of bfloat16 rows are off by a few thousandths
_SINK_DIGITS = 4  # of shares that are sent as text
_FINEST = {"token", "patch", "frame"}


def same(explanation: Any, other: Any) -> bool:
    """Return whether two explanations have the same numbers from the same computation.

    Of maps computed on demand, a computed layer of `explanation` is compared, which `other` may have to
    compute. Of long maps whose rows are computed one by one, some rows of every head are: they come from
    one recorded pass, and their provenance records every later step.
    """
    if explanation is other:
        return True
    if type(explanation) is not type(other) or _origin(explanation) != _origin(other):
        return False
    if isinstance(explanation, Attributions):
        return bool(np.array_equal(explanation.values, other.values))
    if explanation.layers != other.layers or explanation.heads != other.heads:
        return False
    by_rows = explanation.knows_rows and other.knows_rows and explanation.shape == other.shape
    if by_rows and _is_long(explanation):
        count = explanation.shape[-2]
        rows = range(0, count, -(-count // _SAMPLE))
        return all(
            np.array_equal(explanation.rows(layer, None, rows), other.rows(layer, None, rows))
            for layer in explanation.layers
        )
    layers = explanation.layers
    if explanation.on_demand:
        ready = explanation.computed_layers
        layers = tuple(layer for layer in ready if layer in other.computed_layers) or ready[:1]
    return bool(layers) and all(
        np.array_equal(explanation.layer(layer), other.layer(layer)) for layer in layers
    )


def _origin(explanation: Any) -> tuple[str, str, str]:
    return explanation.method, explanation.unit, repr(explanation.provenance)


def _is_long(explanation: Any) -> bool:
    heads = len(explanation.heads or (0,))
    return heads * len(explanation.query) * len(explanation.key) > LAYER_VALUES


def is_special(explanation: Any) -> bool:
    """Return whether an explanation differs from its method's default: another target, or other options.

    The default keeps the method's name as its key, for the entry of the menu.
    """
    from attnwidgets.explanations.registry.registry import methods

    table = methods()
    if explanation.method not in table:
        return False
    method = table[explanation.method]
    if not {"target", "foil"} <= set(method.options):
        return False
    if isinstance(explanation, Attributions):
        predictions = explanation.predictions
        best = predictions.items[0].name if predictions is not None and predictions.items else None
        if explanation.foil is not None or (best is not None and explanation.targets != (best,)):
            return True
    options = explanation.provenance.get("options", {})
    if options.get("discard") is not None:
        return True
    # Where the default is None, the method chooses the value, and the provenance records it.
    defaults = method.default_options()
    return any(defaults.get(name) is not None and value != defaults[name] for name, value in options.items())


@dataclass(frozen=True)
class Tile:
    """An encoded matrix, with its TileMeta of wire.ts; `whole` is the shape of a matrix that was pooled.

    `sink` is the share of each row that goes to no element, None without a sink; `compared` the keys that
    each may read [query, key], None where these are all, or all but the later keys.
    """

    source: str
    layer: int
    head: int | str
    rows: int
    cols: int
    codec: Codec
    scale: float
    data: bytes
    whole: tuple[int, int] | None = None
    sink: NDArray[np.float64] | None = None
    compared: NDArray[np.bool_] | None = None

    def meta(self) -> dict[str, Any]:
        """Return the description that the browser needs to read the bytes."""
        names = ("source", "layer", "head", "rows", "cols", "codec", "scale")
        described = {name: getattr(self, name) for name in names} | {"gamma": GAMMA}
        if self.whole is not None:
            described["whole"] = list(self.whole)
        if self.sink is not None:
            described["sink"] = self.sink.round(_SINK_DIGITS).tolist()
        if self.compared is not None:
            bits = np.packbits(self.compared, bitorder="little")
            described["compared"] = b64encode(bits.tobytes()).decode()
        return described


class Source(Reader):
    """Describes an explanation in a unit for the browser, and encodes its matrices.

    Describing it reads next to no numbers; see `Reader`.

    Args:
        explanation: A MixingMap or Attributions.
        method: Key by which the browser selects it.
        unit: An available unit of the explanation.
        targets: Whether the method can explain another target.
        whole: The attributions whose layers (`.map`) the explanation holds, if it does.
    """

    def __init__(
        self, explanation: Any, method: str, unit: str, *, targets: bool = False, whole: Any = None
    ) -> None:
        self.method = method
        self.targets = targets
        self.stack: str = explanation.stack or "self"
        super().__init__(explanation, unit, f"{method}/{unit}/{self.stack}", whole)
        # Where only a computation could tell, a sign is allowed for, at the cost of a bit of precision.
        self.signed = self._fact("signed", unknown=True, absent=self.attributions)
        self.sink = bool(getattr(self.explanation, "sink", False))
        self.stochastic = self.sink or (bool(self.ready) and self._holds_shares())

    def _holds_shares(self) -> bool:
        if not self.long:
            return bool(getattr(self.explanation, "stochastic", False))
        stochastic: bool | None = self.explanation.known("stochastic")
        if stochastic is None:  # the map's own test, on some rows of its first layer
            count = self.explanation.shape[-2]
            rows = self.explanation.rows(self.layers[0], None, list(range(0, count, -(-count // _SAMPLE))))
            off = np.abs(rows.sum(axis=-1, dtype=np.float64) - 1.0)
            stochastic = bool(rows.min(initial=0.0) >= 0 and off.max(initial=0.0) <= _SUM_TO_ONE)
        return stochastic

    def _fact(self, name: str, *, unknown: bool, absent: bool = False) -> bool:
        if not self.on_demand and not self.long:
            return bool(getattr(self.explanation, name, absent))
        fact = self.explanation.known(name)
        return unknown if fact is None else bool(fact)

    # -- its description ---------------------------------------------------------------------------

    def axes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the query and the key Axis of wire.ts."""
        return self._axes

    @cached_property
    def _axes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        # Once: a display reads them thirty times.
        if self.attributions:
            return target_axis(self.explanation), axis(self.explanation.axis, self.unit)
        return axis(self.explanation.query, self.unit), axis(self.explanation.key, self.unit)

    @property
    def parts(self) -> bool:
        """Whether its thumbnails come a few heads at a time."""
        return self.large and self.heads is not None and not self.on_demand

    @property
    def rescales(self) -> bool:
        """Whether rows without special tokens are divided by their sums; rows with a sink are not."""
        return self.stochastic and not self.sink

    def to_sink(self, layer: int, head: int | str) -> NDArray[np.float64] | None:
        """Return the share of every row that goes to no element [query], 0 to 1; None without a sink."""
        if not self.sink or head == "max" or self.coarse:
            return None
        totals = self.matrix(layer, head).sum(axis=1, dtype=np.float64)
        rest: NDArray[np.float64] = (1.0 - totals).clip(0.0, 1.0)
        return rest

    def readable(self, layer: int) -> NDArray[np.bool_] | None:
        """Return which keys rows of a layer may read [query, key]; None if all, or all but the later ones.

        A window hides the others, or the layer chose these keys.
        """
        is_in_its_unit = not (self.attributions or self.coarse) and self.unit == self.explanation.unit
        allowed: NDArray[np.bool_] | None = self.explanation.compared(layer) if is_in_its_unit else None
        return allowed

    def where_compared(
        self, values: NDArray[np.floating], layer: int, rows: slice = slice(None)
    ) -> NDArray[Any]:
        """Return rows of a layer [..., row, key] with NaN for keys that they may not read, see `readable`.

        Args:
            values: The rows.
            layer: Number of the layer.
            rows: Their queries.
        """
        allowed = self.readable(layer)
        missing = np.asarray(np.nan, values.dtype)
        return values if allowed is None else np.where(allowed[rows], values, missing)

    def read_across(self, layer: int, side: str, index: int) -> NDArray[np.float32]:
        """Return `across` with NaN where the query may not read the key."""
        values, allowed = self.across(layer, side, index), self.readable(layer)
        if allowed is None:
            return values
        line = allowed[index] if side == "query" else allowed[:, index]
        return np.where(line, values, np.float32(np.nan))

    def keys_read(self, layer: int) -> NDArray[np.int64] | None:
        """Return how many keys each row of a layer may read [query]; None where `readable` is."""
        allowed = self.readable(layer)
        return None if allowed is None else allowed.sum(axis=1)

    @property
    def _is_comparison(self) -> bool:
        return bool(self.explanation.method == "comparison")

    @property
    def rows_are_texts(self) -> bool:
        """Whether rows are elements of a text, rather than targets or explanations."""
        return not (self.of_targets or self._is_comparison)

    @property
    def pinnable(self) -> tuple[int, int]:
        """Rows and columns that a pin can name; if rows are explanations, columns are queries as well."""
        rows, cols = self.shape
        return (cols if self._is_comparison else rows), cols

    @property
    def causal(self) -> bool:
        """Whether no query reads a later key, as far as this is certain before a layer is read."""
        return self._fact("causal", unknown=False)

    @property
    def words(self) -> AxisWords:
        """Names of rows and columns."""
        return axis_words(self.explanation, TARGETS if self.of_targets else READING)

    @property
    def title(self) -> str:
        """The method and the steps after it, for readers."""
        title = str(getattr(self.explanation, "title", self.explanation.method)).replace("_", " ")
        if not is_by_layer(self.method):
            return title
        rows = self.explanation.query_labels
        about = f" for {rows[0]!r}" if len(rows) == 1 < len(self.explanation.key_labels) else ""
        return f"{title}{about}, by layer"

    @cached_property
    def content(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which queries and which keys do not stand apart from the map, as special tokens do."""
        query, key = (~stands_apart(np.asarray(axis["special"], dtype=bool)) for axis in self.axes())
        return query, key

    @property
    def has_special(self) -> bool:
        """Whether any element stands apart from the map."""
        return not all(elements.all() for elements in self.content)

    def describe(self, query: str, key: str) -> dict[str, Any]:
        """Return the Source of wire.ts; `query` and `key` name its axes in the header."""
        described = method_named(str(getattr(self._whole or self.explanation, "method", "")))
        return {
            "id": self.id,
            "method": self.method,
            "title": self.title,
            "question": described.answers if described else "",
            "gist": described.reads if described else "",
            "unit": self.unit,
            "stack": self.stack,
            "query": query,
            "key": key,
            "words": list(self.words),
            "layers": list(self.layers),
            "states": dict(self.explanation.provenance.get("states") or {}) or None,
            "computed": list(self.ready) if self.on_demand else None,
            "heads": None if self.heads is None else list(self.heads),
            "mixers": self._described_mixers(),
            "coarse": self.coarse,
            "parts": self.parts,
            "causal": self.causal,
            "signed": self.signed,
            "stochastic": self.stochastic,
            "sink": self.sink,
            "kind": "attributions" if self.of_targets else "map",
            "note": self._note(),
            "warning": str(getattr(self.explanation, "warning", "") or ""),
            "targets": self.targets,
            "accounts": [] if self._whole is None else self._at_input(accounts_of(self._whole)),
            "sums": [] if self._whole is None else self._at_input(sums_of(self._whole)),
            "findings": self._findings,
            "balance": [] if self._whole is None else balance_of(self._whole),
            "verdict": "" if self._whole is None else verdict_of(self._whole),
        }

    @cached_property
    def _findings(self) -> list[str]:
        # Every change of the menu describes all sources again.
        return findings_of(self.explanation) if self.attributions else []

    def _described_mixers(self) -> dict[str, Any] | None:
        """Return the Mixers of wire.ts, of the layers of a map; None for models of attention alone."""
        if self.attributions or not self.mixers:
            return None
        measure = measure_of(self.explanation)
        meanings: dict[str, int] = {}
        layers = {}
        for number, mixers in self.mixers.items():
            starts = np.cumsum([0, *(max(group.heads, 1) for group in mixers.groups)]).tolist()
            layers[str(number)] = [
                {
                    "name": group.name,
                    "heads": group.heads,
                    "meaning": meanings.setdefault(mixers.meaning(start, measure), len(meanings)),
                    "attends": group.attends,
                    "fixed": group.fixed,
                }
                for group, start in zip(mixers.groups, starts[:-1], strict=True)
            ]
        return {"layers": layers, "meanings": list(meanings)}

    def _at_input(self, lines: list[str]) -> list[str]:
        """Return lines about sums; those of layers are about the input."""
        return lines if self.attributions else [f"at the input: {line}" for line in lines]

    def _note(self) -> str:
        aggregated = self._in_unit
        # The first token's share is read from whole layers, which large maps do not load.
        is_in_memory = hasattr(aggregated, "held_layers") and not self.large
        return "; ".join(
            filter(None, (self._unit_note(), taken_by_first(aggregated) if is_in_memory else ""))
        )

    def _unit_note(self) -> str:
        side = self.explanation.axis if self.attributions else self.explanation.key
        rule = side.units[self.unit].rule if self.unit in side.units else ""
        words = f"words by the rule {rule!r}; " if rule in RULES and rule != STANDARD else ""
        if self.attributions:
            return "" if self.unit in _FINEST else f"{words}sum over the pieces of a {self.unit}"
        rows, cols = self.shape
        tokens = f"{max(len(self.explanation.query), len(self.explanation.key)):,} tokens"
        if self.coarse:
            block = f"{-(-rows // COARSE_SIDE)} × {-(-cols // COARSE_SIDE)}"
            return (
                f"{max(rows, cols):,} {self.unit}s: each cell drawn is the largest of {block}; a pin asks "
                "the kernel for its exact row"
            )
        if self.unit in _FINEST:
            return ""
        aggregated = f"{words}sum over key pieces, mean over query pieces"
        if self.weights <= TILE_VALUES:
            return aggregated
        return f"{tokens}: shown by {self.unit}s; choose tokens for single ones · {aggregated}"

    # -- tiles -------------------------------------------------------------------------------------

    def tile(self, layer: int, head: int | str) -> Tile:
        """Return an encoded matrix. Raises like `matrix`."""
        values, means = self.overview(layer, head)
        scale = scale_of(values, stochastic=self.stochastic)
        data, codec = encode(values, scale=scale, signed=self.signed, causal=self.causal)
        rows, cols = values.shape
        if not self.coarse:
            sink = self.to_sink(layer, head)
            compared = self.readable(layer)
            return Tile(self.id, layer, head, rows, cols, codec, scale, data, sink=sink, compared=compared)
        data += means.astype("<f4").tobytes()
        return Tile(self.id, layer, head, rows, cols, codec, scale, data, self.shape)

    @property
    def tile_bytes(self) -> int:
        """Size of a tile in bytes, at most."""
        rows, cols = self.shape
        if not self.coarse:
            return rows * cols
        return min(rows, COARSE_SIDE) * min(cols, COARSE_SIDE) + 4 * cols
