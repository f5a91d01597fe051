"""HeadStatistics: what every head does, in numbers [statistic, layer, head]."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed, pick, position
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import Array, as_floats, read_only
from attnwidgets.statistics.statistic import Statistic, statistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matplotlib.figure import Figure
    from typing_extensions import Self

    from attnwidgets.explanations.results.tables import Columns
    from attnwidgets.statistics.row_shares import Float

_NAMES = ("statistic", "layer", "head")


class RankedHead(NamedTuple):
    """A head and what it scores.

    Attributes:
        layer: Original layer number.
        head: Original head number; None where the map has no heads.
        value: The statistic.
    """

    layer: int
    head: int | None
    value: float


class HeadStatistics(Explanation):
    """Statistics of heads [statistic, layer, head]; without "head" where the map has no head axis.

    `stats["entropy"]` is one of them [layer, head]. NaN stands where there is nothing to measure: a head that
    a layer does not have (pruned), or one that every query that counts is masked for.

    Args:
        values: [statistic, layer, head], or [statistic, layer]; copied.
        names: Names of the statistics.
        layers: Original layer numbers.
        heads: Original head numbers, or None.
        left_out: Statistics that the map does not have, with the reason.
        method, unit, stack, provenance, trace_id, warning, predictions: see `Explanation`.

    Raises:
        ValueError: Where shapes and labels do not agree, or a statistic is unknown.
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
            raise ValueError(f"values has shape {array.shape}, and the labels [{axes}] ask for {expected}.")
        if len(set(names)) < len(names):
            raise ValueError(f"names has one twice: {listed(names)}.")
        for name in names:
            _described(name)
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
        """("statistic", "layer", "head"), without "head" where the map has none."""
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
        return self._exact[self._place(name)]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def _place(self, name: str) -> int:
        if name in self.names:
            return self.names.index(name)
        if name in self.left_out:
            message = f"statistic {name!r} is not defined here: {self.left_out[name]}."
        else:
            near = suggest(str(name), self.names)
            message = f"statistic {name!r} is not here; there is {listed(self.names)}.{near}"
        raise KeyError(message)

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """What the statistics are: title, definition, range, what high means, source."""
        return tuple(_described(name) for name in self.names)

    def top(self, name: str, k: int | None = 10, *, lowest: bool = False) -> list[RankedHead]:
        """Return the heads that score highest, highest first; equal ones in the order of layer and head.

        Args:
            name: The statistic.
            k: How many; None: all.
            lowest: Return the heads that score lowest instead, lowest first.

        Returns:
            (layer, head, value); heads without a value (NaN) are left out.

        Raises:
            KeyError: Where there is no such statistic; the message lists those there are, or says why not.
        """
        found = [head for head in self._rows(name) if not np.isnan(head.value)]
        ranked = sorted(found, key=lambda head: head.value if lowest else -head.value)
        return ranked[:k]

    def _rows(self, name: str) -> list[RankedHead]:
        values = self[name]
        return [
            RankedHead(layer, None if self.heads is None else self.heads[rest[0]], float(value))
            for place, layer in enumerate(self.layers)
            for rest, value in np.ndenumerate(values[place])
        ]

    # Verbs

    def select(self, name: str | Iterable[str] | None = None, layer: Any = None, head: Any = None) -> Self:
        """Return some statistics, layers and heads.

        Args:
            name: A statistic or several.
            layer: An original layer number, several, or a slice.
            head: The same for heads.

        Raises:
            KeyError, IndexError: Where there is no such statistic, layer or head.
        """
        several = [name] if isinstance(name, str) else list(self.names if name is None else name)
        layers = self.layers if layer is None else pick(layer, self.layers, "layer")
        values = self._exact[[self._place(one) for one in several]]
        values = values[:, [position(one, self.layers, "layer") for one in layers]]
        heads = self.heads
        if head is not None:
            if self.heads is None:
                raise IndexError("head cannot be selected: there is no head axis.")
            heads = pick(head, self.heads, "head")
            values = values[:, :, [position(one, self.heads, "head") for one in heads]]
        return type(self)(
            values, names=several, layers=layers, heads=heads, left_out=self.left_out, **self._common()
        )

    def join(self, other: HeadStatistics) -> Self:
        """Return these statistics and another table's of the same model, such as `aw.induction_score`.

        Raises:
            ValueError: Where layers or heads differ, or a statistic is in both.
        """
        for what in ("layers", "heads"):
            if getattr(self, what) != getattr(other, what):
                raise ValueError(f"{what} differ: {getattr(self, what)} here, {getattr(other, what)} there.")
        if both := [name for name in other.names if name in self.names]:
            raise ValueError(
                f"statistic {both[0]!r} is in both tables; take it out of one with .select(...)."
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

    # Shown

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

    def plot(self, names: str | Iterable[str] | None = None, **options: Any) -> Figure:
        """Return a matplotlib figure: a panel of layers x heads for every statistic, each on its own scale.

        Args:
            names: Some statistics; all by default.
            **options: `title`: the heading.
        """
        from attnwidgets.statistics.panels import panels

        return panels(self if names is None else self.select(names), **options)

    def _repr_html_(self) -> str:
        from attnwidgets.statistics.html_table import html_of

        return html_of(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    # Kept

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
        """Return the statistics that `to_description` described."""
        labels = {name: described[name] for name in ("names", "layers", "heads", "left_out")}
        return cls(arrays["values"], **labels, **restore_common(described))


def _described(name: str) -> Statistic:
    table = statistics()
    if name not in table:
        raise ValueError(
            f"statistic {name!r} is unknown; there is {listed(table)}.{suggest(str(name), table)}"
        )
    return table[name]
