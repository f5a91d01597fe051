"""Attributions: how much every element of the input speaks for a target.

`select`, `reduce` and `to` return new attributions, made by `_derive`. A coarser unit sums the values of its
pieces (`units.py`). The map of every layer, if the method has a map, goes along.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice, suggest
from attnwidgets._selecting import element, listed, position
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import (
    Array,
    Reduction,
    as_floats,
    read_only,
    reduce_first,
    reduction_name,
    require_finite,
)
from attnwidgets.explanations.results.description import describe_axis, plain, restore_axis
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.units import new_unit, regroup, sum_groups
from attnwidgets.tracing.text.units import TokenAxis, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets._tables import Columns
    from attnwidgets.explanations.results.units import Spans

_MAP = "map/"


class Attributions(Explanation):
    """Signed values [source], or [target, source] for several targets.

    Args:
        values: [source] or [target, source]; copied.
        target: Label of the explained target ("positive", " Paris"); a sequence of labels if values has a
            target axis.
            a target axis.
        foil: Label of the alternative that the target is contrasted with, or None.
        residual: The target's score less the sum of the values, if the method is meant to conserve it; a
            number, or one for each target.
        map: The method's map of every layer, or None; saved and read by coarser units along with the
            values.
        reach: How many of the axis' first tokens each target depends on, if others follow (as in generated
            text): a number, or one for each target. Values beyond it are 0, and no view paints them.
        unit: The unit of the axis.
        method: Name of the method.
        stack, provenance, trace_id, warning, predictions, dtype: See `Explanation`.

    Raises:
        ValueError: If shapes and labels do not agree, or a value is NaN or infinite.
    """

    kind = "Attributions"
    viewed_by = "best_view:view_of_attributions"
    axis: TokenAxis
    target: str | tuple[str, ...] | None
    foil: str | None
    residual: float | tuple[float, ...] | None
    reach: tuple[int, ...] | None
    map: MixingMap | None
    _values: Array

    def __init__(
        self,
        values: Any,
        *,
        axis: TokenAxis | Sequence[str],
        target: str | Sequence[str] | None = None,
        foil: str | None = None,
        residual: float | Sequence[float] | None = None,
        reach: int | Sequence[int] | None = None,
        map: MixingMap | None = None,  # noqa: A002 - the name of the attribute, as in MixingMap
        unit: str = "token",
        method: str = "given",
        **common: Any,
    ) -> None:
        array = np.array(as_floats(values, common.get("dtype")))
        axis = axis if isinstance(axis, TokenAxis) else TokenAxis.plain(axis, name=unit)
        if unit not in axis.units:
            raise ValueError(f"unit {unit!r} is not on the axis, which has {listed(axis.units)}.")
        if array.ndim not in (1, 2) or array.shape[-1] != len(axis.units[unit]):
            raise ValueError(
                f"values has shape {array.shape}; accepted shapes are [source] and [target, source] "
                f"with {len(axis.units[unit])} sources, one for each {unit}."
            )
        require_finite(array, "values")
        many = array.ndim > 1
        if many and target is None:
            target = [str(index) for index in range(len(array))]
        targets = target if target is None or isinstance(target, str) else tuple(str(item) for item in target)
        if (len(targets) != len(array)) if isinstance(targets, tuple) else many:
            raise ValueError(
                f"target {target!r} does not fit values of shape {array.shape}: one label for each target."
            )
        reaches = None if reach is None else tuple(int(count) for count in np.atleast_1d(reach))
        residuals = _numbers(residual)
        for name, numbers in {"reach": reaches, "residual": residuals}.items():
            if isinstance(numbers, tuple) and len(numbers) != (len(array) if many else 1):
                raise ValueError(
                    f"{name} {list(numbers)} does not fit values of shape {array.shape}: one number for each "
                    "target."
                )
        self._set_common(unit=unit, method=method, **(common | {"dtype": array.dtype.name}))
        self._set(
            axis=axis,
            target=targets,
            foil=foil,
            residual=residuals,
            reach=reaches,
            map=map,
            _values=read_only(array),
        )

    def _derive(self, values: Any, step: str, **changes: Any) -> Attributions:
        arguments: dict[str, Any] = {
            "axis": self.axis,
            "target": self.target,
            "foil": self.foil,
            "residual": self.residual,
            "reach": self.reach,
            "map": self.map,
        }
        return Attributions(values, **(arguments | self._common(step) | changes))

    @property
    def values(self) -> Array:
        """[target?, source] (read-only)."""
        return self._values

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(self._values.shape)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """("source",) or ("target", "source")."""
        return ("target", "source")[-self._values.ndim :]

    @property
    def signed(self) -> bool:
        """Whether any value is negative, or the map of the layers is signed."""
        return bool((self._values < 0).any()) or bool(self.map is not None and self.map.known("signed"))

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets' labels; an empty label if no target was named."""
        return self.target if isinstance(self.target, tuple) else (self.target or "",)

    @property
    def source_unit(self) -> Unit:
        """The elements of the axis."""
        return self.axis.units[self.unit]

    @property
    def labels(self) -> tuple[str, ...]:
        """Display strings of the sources."""
        return self.source_unit.labels

    @property
    def title(self) -> str:
        """The method, its target and foil, and the operations on its numbers."""
        about = self.target if isinstance(self.target, str) else ""
        contrast = f" rather than {self.foil!r}" if self.foil else ""
        named = f"{self.provenance.get('title') or self.method}{f' for {about!r}' if about else ''}{contrast}"
        return ", ".join([named, *self._short_steps()])

    def _remarks(self) -> list[str]:
        from attnwidgets.explanations.results.conservation_note import sums_of

        sums = sums_of(self)
        return [*(sums if len(sums) == 1 else []), *super()._remarks()]

    def select(self, target: int | str) -> Attributions:
        """Return the attributions of a target, by its number or its label.

        Raises:
            IndexError: If the target does not exist; the message lists the targets.
        """
        if isinstance(target, str):
            if target not in self.targets:
                raise IndexError(
                    f"target {target!r} is not one of {listed(self.targets)}.{suggest(target, self.targets)}"
                )
            target = self.targets.index(target)
        row = position(target, range(len(self.targets)), "target")
        if self._values.ndim == 1:
            return self
        residual = self.residual[row] if isinstance(self.residual, tuple) else self.residual
        reach = None if self.reach is None else self.reach[row]
        return self._derive(self._values[row], "", target=self.targets[row], residual=residual, reach=reach)

    def reduce(self, axis: Literal["target"], how: Reduction) -> Attributions:
        """Return a row of attributions reduced over the targets.

        Raises:
            ValueError: Without a target axis, or if the reduction is unknown.
        """
        if axis != "target" or self._values.ndim == 1:
            raise ValueError(
                f"there is no {axis!r} axis to reduce; the axes are {', '.join(self.axis_names)}."
            )
        name = reduction_name(how)
        values = reduce_first(self._values, how)
        reach = None if self.reach is None else max(self.reach)
        return self._derive(values, f"{name} over targets", target=None, residual=None, reach=reach)

    def mean(self, axis: Literal["target"] = "target") -> Attributions:
        """Return the mean over targets."""
        return self.reduce(axis, "mean")

    def max(self, axis: Literal["target"] = "target") -> Attributions:
        """Return the largest value over targets."""
        return self.reduce(axis, "max")

    def sum(self, axis: Literal["target"] = "target") -> Attributions:
        """Return the sum over targets."""
        return self.reduce(axis, "sum")

    def beyond(self) -> NDArray[np.bool_]:
        """Return which values [target, source] belong to sources after those that the target depends on."""
        rows = np.atleast_2d(self._values)
        if self.reach is None:
            return np.zeros(rows.shape, dtype=bool)
        first = np.array([min(span, default=0) for span in self.source_unit.spans])
        return first >= np.array(self.reach)[:, None]

    def available_units(self) -> tuple[str, ...]:
        """Return the units that these attributions can be read in."""
        return tuple(n for n, unit in self.axis.units.items() if regroup(self.source_unit, unit) is not None)

    def to(self, unit: str | Unit | Spans) -> Attributions:
        """Return the attributions in a coarser unit: the signed sum over its pieces, so that totals stay.

        Args:
            unit: A unit's name (see `available_units`), a Unit, or spans of tokens as pairs (start, end), the
                end not included: `.to([(0, 2), (2, 6)])` reads six tokens as two elements.

        Raises:
            TypeError: For spans that are not pairs of numbers.
            ValueError: If the unit is unknown, finer than the present one, or does not divide the tokens: a
                token lies in no span or in several, or a span leaves the axis.
        """
        if not isinstance(unit, str):
            unit = new_unit(unit, self.axis, self.unit, "source")
            axis = dataclasses.replace(self.axis, units={**self.axis.units, unit.name: unit})
            coarser = None if self.map is None else _coarser(self.map, unit)
            return self._derive(self._values, "", axis=axis, map=coarser).to(unit.name)
        if unit == self.unit:
            return self
        require_choice("unit", unit, self.available_units())
        groups = regroup(self.source_unit, self.axis.units[unit]) or ()
        coarser = self.map
        if coarser is not None and unit in coarser.available_units():
            coarser = coarser.to(unit)
        step = f"by {unit} (sum over pieces)"
        return self._derive(sum_groups(self._values, groups), step, unit=unit, map=coarser)

    def value(self, source: int | str, *, target: int | str | None = None, unit: str | None = None) -> float:
        """Return the number that a view shows for an element.

        Args:
            source: Number of the element, from 0, counted in `unit`; negative numbers count from the last. Or
                its label, if it occurs once, or "first", "last" or "cls".
            target: Number or label of the target; optional if there is a single target.
            unit: Unit of the elements, see `to`; None: the attributions' unit.

        Raises:
            IndexError: If the element or target does not exist.
            ValueError: If a target must be named, the unit is unknown, or no element or several have the
                label (the message names their positions).

        Example:
            >>> attributions = aw.results.Attributions([0.5, -1.0, 2.0], axis=["a", "b", "c"])
            >>> attributions.value(1), attributions.value("c")
            (-1.0, 2.0)
        """
        shown = self if unit is None else self.to(unit)
        if target is None and len(self.targets) > 1:
            raise ValueError(f"target is missing: there are {listed(self.targets)}.")
        values = np.atleast_2d((shown if target is None else shown.select(target)).values)[0]
        return float(values[element(source, shown.labels, "source")])

    def figure(
        self,
        target: int | str | None = None,
        *,
        ax: Axes | None = None,
        title: str | None = None,
        cmap: str | Colormap | None = None,
        vmin: float | None = None,
        vmax: float | None = None,
    ) -> Figure:
        """Return a matplotlib figure: a strip of highlighted tokens for every target.

        Args:
            target: Number or label of a target; all by default.
            ax: Axes to draw into, instead of a new figure.
            title: Heading; by default the method and the operations on its numbers.
            cmap: Colour map; by default paper to ink; for signed values orange (for) and violet (against).
            vmin: Value of the first colour; by default zero, or -vmax for signed values.
            vmax: Value of the last colour; by default the largest.

        Raises:
            IndexError: If the target does not exist.
        """
        from attnwidgets.figures.maps import strip

        shown = self if target is None else self.select(target)
        return strip(
            np.where(shown.beyond(), np.nan, np.atleast_2d(shown.values)),
            shown.labels,
            names=shown.targets,
            title=title or shown.title,
            signed=shown.signed,
            cmap=cmap,
            vmin=vmin,
            vmax=vmax,
            ax=ax,
        )

    def _columns(self) -> Iterator[Columns]:
        """Yield target, source_index, source, value."""
        rows = np.atleast_2d(self._values)
        index = np.indices(rows.shape).reshape(2, -1)
        yield {
            "target": np.asarray(self.targets, dtype=object)[index[0]],
            "source_index": index[1],
            "source": np.asarray(self.labels, dtype=object)[index[1]],
            "value": rows.reshape(-1),
        }

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the array."""
        described = self._describe_common() | {"axis": describe_axis(self.axis)}
        described |= {name: plain(getattr(self, name)) for name in ("target", "foil", "residual", "reach")}
        arrays = {"values": self._values}
        if self.map is not None:
            described["map"], layers = self.map.to_description()
            arrays |= {f"{_MAP}{name}": layer for name, layer in layers.items()}
        return described, arrays

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the attributions that `to_description` described."""
        layers = {name.removeprefix(_MAP): array for name, array in arrays.items() if name.startswith(_MAP)}
        return cls(
            arrays["values"],
            axis=restore_axis(described["axis"]),
            map=MixingMap.from_description(described["map"], layers) if "map" in described else None,
            reach=described.get("reach"),
            **{name: described[name] for name in ("target", "foil", "residual")},
            **restore_common(described),
        )


def _coarser(by_layer: MixingMap, unit: Unit) -> MixingMap:
    """Return a map by a given unit of its keys, and of its queries if they are the same tokens."""
    query_unit = by_layer.query_unit
    same = query_unit.spans == by_layer.key_unit.spans
    return by_layer.to(unit if same else (dataclasses.replace(query_unit, name=unit.name), unit))


def _numbers(residual: Any) -> float | tuple[float, ...] | None:
    if residual is None:
        return None
    numbers = np.asarray(residual, dtype=np.float64)
    return float(numbers) if numbers.ndim == 0 else tuple(float(number) for number in numbers)
