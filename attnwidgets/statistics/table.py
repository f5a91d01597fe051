"""HeadStatistics: a table of statistics of attention heads, also as HTML."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._errors import require_choice, suggest
from attnwidgets._selecting import at_most, listed, pick, ranking
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import Array, as_floats, read_only
from attnwidgets.figures.html_tables import cell, table
from attnwidgets.statistics.statistic import Statistic, statistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matplotlib.figure import Figure
    from typing_extensions import Self

    from attnwidgets._tables import Columns
    from attnwidgets.statistics.row_shares import Float

_NAMES = ("statistic", "layer", "head")

_LEAD = 3


class RankedHead(NamedTuple):
    """A head and its value of a statistic.

    Attributes:
        layer: Original layer number.
        head: Original head number; None if the map has no heads.
        value: Value of the statistic.
    """

    layer: int
    head: int | None
    value: float


class HeadStatistics(Explanation):
    """Statistics of heads [statistic, layer, head]; without "head" if the map has no head axis.

    `stats["entropy"]` is a statistic [layer, head]. NaN means that there is nothing to measure: the layer
    does not have this head (pruned), or all rows that count are masked.

    Args:
        values: Values [statistic, layer, head] or [statistic, layer]; copied.
        names: Names of the statistics.
        layers: Original layer numbers.
        heads: Original head numbers, or None.
        left_out: Statistics that are not defined for the map, with the reason.
        unit: Unit the map was read in.
        method: Name of the method.
        stack: Stack of the heads: "self", "encoder", "decoder" or "cross".
        provenance: How the numbers were computed; see `Explanation`.
        trace_id: The trace the numbers belong to.
        warning: A caveat, or "".
        predictions: The model's predictions, for the views.
        dtype: Precision of `.values`: "float32" (default) or "float64".

    Raises:
        ValueError: If shapes and labels do not match, or a statistic is unknown.
    """

    kind = "HeadStatistics"
    names: tuple[str, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...] | None
    left_out: Mapping[str, str]
    _exact: Float

    def __init__(
        self,
        values: Any,
        *,
        names: Sequence[str],
        layers: Sequence[int],
        heads: Sequence[int] | None,
        left_out: Mapping[str, str] | None = None,
        unit: str = "token",
        method: str = "head_statistics",
        **common: Any,
    ) -> None:
        array = np.array(values, dtype=np.float64)
        expected = (len(names), len(layers), *(() if heads is None else (len(heads),)))
        if array.shape != expected or not array.size:
            axes = ", ".join(_NAMES[: len(expected)])
            raise ValueError(f"values has shape {array.shape}, but the labels [{axes}] need {expected}.")
        if len(set(names)) < len(names):
            raise ValueError(f"names contains duplicates: {listed(names)}.")
        for name in names:
            require_choice("statistic", name, statistics())
        array.flags.writeable = False
        self._set_common(unit=unit, method=method, **common)
        self._set(
            names=tuple(names),
            layers=tuple(int(number) for number in layers),
            heads=None if heads is None else tuple(int(number) for number in heads),
            left_out=MappingProxyType(dict(left_out or {})),
            _exact=array,
        )

    # Numbers

    @property
    def axis_names(self) -> tuple[str, ...]:
        """("statistic", "layer", "head"), without "head" if the map has none."""
        return _NAMES[: self._exact.ndim]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(self._exact.shape)

    @property
    def values(self) -> Array:
        """[statistic, layer, head] in float32 (read-only); `stats[name]` has float64."""
        return read_only(as_floats(self._exact, "float32"))

    def __getitem__(self, name: str) -> Float:
        return self._exact[self._index(name)]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def _index(self, name: str) -> int:
        if name in self.names:
            return self.names.index(name)
        if name in self.left_out:
            raise KeyError(f"statistic {name!r} is not defined here: {self.left_out[name]}.")
        near = suggest(str(name), self.names)
        raise KeyError(f"statistic {name!r} is not in this table, which has {listed(self.names)}.{near}")

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """Title, definition, range, meaning of high values and source of every statistic."""
        return tuple(statistics()[name] for name in self.names)

    def top(
        self, name: str | int | None = None, k: int | None = 10, *, lowest: bool = False
    ) -> list[RankedHead]:
        """Return the heads with the highest values, highest first; ties in the order of layer and head.

        Args:
            name: The statistic; by default the first. May be left out: `.top(3)`.
            k: Largest number of heads; None: all.
            lowest: Return the heads with the lowest values instead, lowest first.

        Returns:
            (layer, head, value) for each, without heads whose value is NaN.

        Raises:
            KeyError: If the table lacks the statistic; the message lists its statistics or the reason.
            ValueError: If `k` is below 1.
        """
        chosen, k = ranking(name, k)
        ranked = [
            RankedHead(layer, None if self.heads is None else self.heads[index[0]], float(value))
            for layer, values in zip(self.layers, self[chosen or self.names[0]], strict=True)
            for index, value in np.ndenumerate(values)
            if not np.isnan(value)
        ]
        return at_most(sorted(ranked, key=lambda head: head.value if lowest else -head.value), k)

    # Derived tables

    def select(self, name: str | Iterable[str] | None = None, layer: Any = None, head: Any = None) -> Self:
        """Return some statistics, layers and heads.

        Args:
            name: Name of a statistic, or several.
            layer: An original layer number, several, or a slice.
            head: The same for heads.

        Raises:
            KeyError: If the statistic is unknown.
            IndexError: If the layer or head is out of range.
        """
        names = [name] if isinstance(name, str) else list(self.names if name is None else name)
        layers = self.layers if layer is None else pick(layer, self.layers, "layer")
        values = self._exact[[self._index(item) for item in names]]
        values = values[:, [self.layers.index(number) for number in layers]]
        heads = self.heads
        if head is not None:
            if self.heads is None:
                raise IndexError("head cannot be selected: the table has no head axis.")
            heads = pick(head, self.heads, "head")
            values = values[:, :, [self.heads.index(number) for number in heads]]
        return type(self)(
            values, names=names, layers=layers, heads=heads, left_out=self.left_out, **self._common()
        )

    def join(self, other: HeadStatistics) -> Self:
        """Return these statistics together with those of another table, such as of `induction_score`.

        Args:
            other: Statistics of the same model.

        Raises:
            ValueError: If layers or heads differ, or a statistic is in both tables.
        """
        for axis in ("layers", "heads"):
            if getattr(self, axis) != getattr(other, axis):
                raise ValueError(f"{axis} differ: {getattr(self, axis)} here, {getattr(other, axis)} there.")
        if both := [name for name in other.names if name in self.names]:
            raise ValueError(
                f"statistic {both[0]!r} is in both tables; leave it out of one with .select(...)."
            )
        names = (*self.names, *other.names)
        left_out = {k: v for k, v in {**self.left_out, **other.left_out}.items() if k not in names}
        warning = "; ".join(dict.fromkeys(filter(None, (self.warning, other.warning))))
        return type(self)(
            np.concatenate([self._exact, other._exact]),
            names=names,
            layers=self.layers,
            heads=self.heads,
            left_out=left_out,
            **(self._common(f"with {', '.join(other.names)}") | {"warning": warning}),
        )

    # Display

    def _columns(self) -> Iterator[Columns]:
        """Yield statistic, layer, head (if any), value."""
        index = np.indices(self.shape).reshape(len(self.shape), -1)
        columns: dict[str, Any] = {
            "statistic": np.asarray(self.names, dtype=object)[index[0]],
            "layer": np.asarray(self.layers)[index[1]],
        }
        if self.heads is not None:
            columns["head"] = np.asarray(self.heads)[index[2]]
        yield columns | {"value": self._exact.reshape(-1)}

    def figure(self, names: str | Iterable[str] | None = None, *, title: str | None = None) -> Figure:
        """Return a matplotlib figure: a panel of layers x heads for every statistic, with separate scales.

        Args:
            names: Names of some statistics; all by default.
            title: Heading; by default that of the table.
        """
        from attnwidgets.statistics.panels import panels

        return panels(self if names is None else self.select(names), title=title)

    def _repr_html_(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    # Files

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the array."""
        described = self._describe_common() | {
            "names": list(self.names),
            "layers": list(self.layers),
            "heads": None if self.heads is None else list(self.heads),
            "left_out": dict(self.left_out),
        }
        arrays: dict[str, Any] = {"values": self._exact}
        return described, arrays

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the statistics described by `to_description`."""
        labels = {name: described[name] for name in ("names", "layers", "heads", "left_out")}
        return cls(arrays["values"], **labels, **restore_common(described))


def html_of(stats: HeadStatistics) -> str:
    """Return a table with a row per statistic: title and definition, lowest, mean, highest, leading heads."""
    head = ("statistic", "lowest", "mean", "highest", "highest heads (layer.head)", "high means")
    notes = [stats.title.replace("_", " "), str(stats.provenance.get("model") or ""), f"by {stats.unit}"]
    notes += [stats.warning]
    notes += [f"no {name.replace('_', ' ')}: {reason}" for name, reason in stats.left_out.items()]
    rows = (_row(stats, index) for index in range(len(stats.names)))
    return table(head, rows, [" · ".join(filter(None, notes))], left=(0, 4, 5))


def _row(stats: HeadStatistics, index: int) -> list[str]:
    about, name = stats.statistics[index], stats.names[index]
    values = stats[name]
    defined = values[~np.isnan(values)]
    numbers = (defined.min(), defined.mean(), defined.max()) if defined.size else (np.nan,) * 3
    heads = ", ".join(spoken(head) for head in stats.top(name, _LEAD))
    tooltip = f"{about.definition} Range: {about.scale}. {about.paper}"
    return [
        cell(about.title, header=True, title=tooltip, limit=60),
        *(cell("–" if np.isnan(number) else f"{number:.3f}") for number in numbers),
        cell(heads, left=True, style=";white-space:nowrap", limit=120),
        cell(about.high, left=True, limit=200),
    ]


def spoken(head: RankedHead) -> str:
    """Return "3.7 (0.91)": layer 3, head 7, and its value."""
    number = str(head.layer) if head.head is None else f"{head.layer}.{head.head}"
    return f"{number} ({head.value:.2f})"
