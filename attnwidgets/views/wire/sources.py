"""A source: one method in one unit and one stream, described for the browser and read tile by tile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.conservation_note import sums_of, verdict_of
from attnwidgets.explanations.mixing.discarding import taken_by_first
from attnwidgets.tracing.text.words import RULES, STANDARD
from attnwidgets.views.wire.codec import GAMMA, encode, scale_of
from attnwidgets.views.wire.keys import is_by_layer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.tracing.text.units import TokenAxis
    from attnwidgets.views.wire.codec import Codec

REDUCTIONS = ("mean", "max")
"""Reductions over heads a view may ask for by name."""


@dataclass(frozen=True)
class Tile:
    """One encoded matrix and what wire.ts calls its TileMeta."""

    source: str
    layer: int
    head: int | str
    rows: int
    cols: int
    codec: Codec
    scale: float
    data: bytes

    def meta(self) -> dict[str, Any]:
        """Return what the browser needs to read the bytes."""
        return {
            "source": self.source,
            "layer": self.layer,
            "head": self.head,
            "rows": self.rows,
            "cols": self.cols,
            "codec": self.codec,
            "gamma": GAMMA,
            "scale": self.scale,
        }


def is_attributions(explanation: Any) -> bool:
    """Return whether an explanation holds values per token rather than token by token."""
    return not hasattr(explanation, "query")


class Source:
    """Reads one explanation in one unit.

    Aggregation to the unit happens when a number is first asked for; describing a source costs nothing.

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
        self.explanation = explanation
        self.method = method
        self.unit = unit
        self.targets = targets
        self.attributions = is_attributions(explanation)
        # What attributions say of a layer has their targets as rows, unless it is of every pair of tokens.
        self.of_targets = self.attributions or (
            whole is not None
            and explanation.query != explanation.key
            and len(explanation.query) == len(whole.targets)
        )
        self._whole = explanation if self.attributions else whole if self.of_targets else None
        self.stream: str = getattr(explanation, "stream", "") or "self"
        self.id = f"{method}/{unit}/{self.stream}"
        self.layers: tuple[int, ...] = (
            (0,) if self.attributions else tuple(int(n) for n in explanation.layers)
        )
        heads = None if self.attributions else explanation.heads
        self.heads: tuple[int, ...] | None = None if heads is None else tuple(int(n) for n in heads)
        self.on_demand = bool(getattr(explanation, "on_demand", False))
        # What would have to be computed to be known: room for a sign costs a bit of precision.
        self.signed = self._fact("signed", unknown=True, absent=self.attributions)
        self.stochastic = bool(self.ready) and bool(getattr(explanation, "stochastic", False))
        self._lock = Lock()
        self._in_unit: Any = explanation if explanation.unit == unit else None

    def _fact(self, name: str, *, unknown: bool, absent: bool = False) -> bool:
        if not self.on_demand:
            return bool(getattr(self.explanation, name, absent))
        known = self.explanation.known(name)
        return unknown if known is None else bool(known)

    # -- what the browser is told ------------------------------------------------------------------

    def axes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the query and the key Axis of wire.ts."""
        if self.attributions:
            return _target_axis(self.explanation), axis(self.explanation.axis, self.unit)
        return axis(self.explanation.query, self.unit), axis(self.explanation.key, self.unit)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        query, key = self.axes()
        return len(query["labels"]), len(key["labels"])

    @property
    def size(self) -> int:
        """How many values lie behind this source, in the unit that they were given in."""
        return math.prod(self.explanation.shape)

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

    @property
    def ready(self) -> tuple[int, ...]:
        """The layers that can be read at once, without running a model."""
        return self.explanation.computed_layers if self.on_demand else self.layers

    def describe(self, query: str, key: str) -> dict[str, Any]:
        """Return the Source of wire.ts; `query` and `key` name its axes in the header."""
        return {
            "id": self.id,
            "method": self.method,
            "title": self.title,
            "unit": self.unit,
            "stream": self.stream,
            "query": query,
            "key": key,
            "layers": list(self.layers),
            "computed": list(self.ready) if self.on_demand else None,
            "heads": None if self.heads is None else list(self.heads),
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
        taken = taken_by_first(shown) if hasattr(shown, "held_layers") else ""
        return "; ".join(filter(None, (self._unit_note(), taken)))

    def _unit_note(self) -> str:
        if self.unit in {"token", "patch", "frame"}:
            return ""
        axis = self.explanation.axis if self.attributions else self.explanation.key
        rule = axis.units[self.unit].rule if self.unit in axis.units else ""
        found = f"words by the rule {rule!r}; " if rule in RULES and rule != STANDARD else ""
        if self.attributions:
            return f"{found}sum over the pieces of a {self.unit}"
        return f"{found}sum over key pieces, mean over query pieces"

    # -- numbers -----------------------------------------------------------------------------------

    def heads_of_tiles(self, layer: int) -> tuple[int | str, ...]:
        """Return every head key a tile of a layer can have."""
        if self.heads is None:
            return ("-",)
        return (*self.heads[: len(self.layer(layer))], *REDUCTIONS)

    def layer(self, layer: int) -> NDArray[np.float32]:
        """Return [head, query, key] of one layer; one head where there is no head axis.

        A pruned layer has fewer heads than `heads` counts.

        Raises:
            IndexError: The layer is not one of this source's.
        """
        if layer not in self.layers:
            raise IndexError(f"layer={layer} is not in {self.id}, which has layers {span(self.layers)}.")
        held = self._aggregated()
        values = held.values if self.attributions else held.layer(layer)
        values = np.asarray(values, dtype=np.float32)
        if self.heads is None:
            values = values.reshape(1, *self.shape)
        beyond = self._beyond()
        # What comes after what a target was read from is no zero.
        return values if beyond is None else np.asarray(np.where(beyond, np.float32(np.nan), values))

    def _beyond(self) -> NDArray[np.bool_] | None:
        """Return which cells [target, source] stand for sources that a target cannot read; None for none."""
        whole = self._whole
        if whole is None or getattr(whole, "reach", None) is None:
            return None
        found: NDArray[np.bool_] = whole.to(self.unit).beyond()
        return found

    def matrix(self, layer: int, head: int | str) -> NDArray[np.float32]:
        """Return [query, key] of one layer and one head or reduction.

        Raises:
            IndexError: There is no such layer or head.
        """
        values = self.layer(layer)
        if self.heads is None:
            if head in {"-", *REDUCTIONS}:
                return np.asarray(values[0])
            raise IndexError(f"head={head!r} was asked for, but {self.id} has no heads.")
        if head == "mean":
            return np.asarray(values.mean(axis=0))
        if head == "max":
            return np.asarray(values.max(axis=0))
        heads = self.heads[: len(values)]
        if head not in heads:
            offered = f"heads {span(heads)}, 'mean' and 'max'"
            raise IndexError(f"head={head!r} is not in layer {layer} of {self.id}, which has {offered}.")
        return np.asarray(values[heads.index(int(head))])

    def tile(self, layer: int, head: int | str) -> Tile:
        """Return one encoded matrix. Raises like `matrix`."""
        values = self.matrix(layer, head)
        scale = scale_of(values, stochastic=self.stochastic)
        data, codec = encode(values, scale=scale, signed=self.signed, causal=self.causal)
        return Tile(self.id, layer, head, values.shape[0], values.shape[1], codec, scale, data)

    def _aggregated(self) -> Any:
        # Two requests may arrive at once, beside a running cell: aggregate once.
        with self._lock:
            if self._in_unit is None:
                self._in_unit = self.explanation.to(self.unit)
            return self._in_unit


def span(numbers: tuple[int, ...]) -> str:
    """Return "0 to 5", or the numbers where they have gaps."""
    if len(numbers) > 1 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(str(n) for n in numbers)


def axis(tokens: TokenAxis, unit: str) -> dict[str, Any]:
    """Return the Axis of wire.ts: the display elements of a side, with the tokens behind each."""
    elements = tokens.units.get(unit) or next(iter(tokens.units.values()))
    spans = [list(span) for span in elements.spans]
    plain = spans == [[i] for i in range(len(spans))]
    boundary = None
    if tokens.boundary is not None:
        after = [i for i, members in enumerate(spans) if members and min(members) >= tokens.boundary]
        boundary = after[0] if after else None
    return {
        "unit": unit,
        "labels": [str(label) for label in elements.labels],
        "spans": None if plain and len(spans) == len(tokens) else spans,
        "special": [int(flag) for flag in elements.special],
        "segment": [int(tokens.segment[members[0]]) if members else 0 for members in spans],
        "boundary": boundary,
        "grid": None if elements.grid is None else list(elements.grid),
    }


def target_labels(attributions: Any) -> list[str]:
    """Return the name of every row of attributions: its target, less its foil."""
    rows = np.atleast_2d(np.asarray(attributions.values)).shape[0]
    target = attributions.target
    names = list(target) if isinstance(target, (list, tuple)) and len(target) == rows else [target] * rows
    foil = getattr(attributions, "foil", None)
    return [str(name or "") if foil is None else f"{name} − {foil}" for name in names]


def _target_axis(attributions: Any) -> dict[str, Any]:
    labels = target_labels(attributions)
    return {
        "unit": "target",
        "labels": labels,
        "spans": None,
        "special": [0] * len(labels),
        "segment": [0] * len(labels),
        "boundary": None,
        "grid": None,
    }
