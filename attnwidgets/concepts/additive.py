"""Additive: a model on a template as a sum over slots and pairs of slots, and its error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from attnwidgets._errors import quoted, suggest
from attnwidgets._selecting import listed
from attnwidgets._tables import Table
from attnwidgets.concepts.template import predicted
from attnwidgets.explanations.viewable import Viewable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.concepts.template import Template

    Float = NDArray[np.float64]

_SEEN = 0.005  # an error of the student that two digits show


class Misjudged(NamedTuple):
    """A text of the template with the outputs of the model and of its student.

    Attributes:
        text: The text.
        model: Output of the model.
        student: Output of the student.
        error: Student less model.
    """

    text: str
    model: float
    student: float
    error: float


@dataclass(frozen=True, eq=False)
class Additive(Table, Viewable):
    """A student of a model on a template: mean + a shape for every slot + pairs, by `aw.concepts.distill`.

    Attributes:
        slots: The levels of every slot, by name, in the order of the axes.
        numeric: Slots whose levels are numbers.
        target: Name of the target.
        mean: Mean of the target over all texts.
        shapes: Effect of each level [level], by slot, with mean zero.
        pairs: Effect of each pair of levels beyond shapes [level, level], by two slots, with means zero; {}
            at order 1.
        shares: Share of the variance that each slot, pair, ... explains, by names joined with " x ", 0 to 1.
            On a full grid they add up to 1.
        values: Output of the model [text].
        cells: Level of every slot of the texts [text, slot].
        order: 1 for slots alone, 2 with pairs.
        estimated: Whether the template has more texts than were run, so that all numbers are estimates.
        fidelities: Share of the variance that the student explains (R2), by order; of estimates, on texts
            that were not fitted.
        model: The model's id.
        notes: Caveats.
    """

    kind: ClassVar[str] = "Additive"
    viewed_by: ClassVar[str] = "concepts.shape_view:ShapeView"

    slots: Mapping[str, tuple[Any, ...]]
    numeric: tuple[str, ...]
    target: str
    mean: float
    shapes: Mapping[str, Float]
    pairs: Mapping[tuple[str, str], Float]
    shares: Mapping[str, float]
    values: Float
    cells: NDArray[np.int64]
    order: int
    estimated: bool
    fidelities: Mapping[int, float]
    model: str = ""
    notes: tuple[str, ...] = ()
    _template: Template | None = field(default=None, repr=False)
    _effects: Any = field(default=None, repr=False)

    @property
    def fidelity(self) -> float:
        """Share of the variance that a sum over slots explains (R2), at most 1; NaN of a constant."""
        return self.fidelities[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of levels of every slot."""
        return tuple(len(levels) for levels in self.slots.values())

    @property
    def texts(self) -> list[str]:
        """The texts that were run."""
        return [self._text(cell) for cell in self.cells]

    def _text(self, cell: Any) -> str:
        return "" if self._template is None else self._template.text(cell)

    def predict(self, levels: Mapping[str, Any], *, order: int | None = None) -> float:
        """Return the student's output for a text.

        Args:
            levels: The level of every slot, by name.
            order: 1 for slots alone, 2 with pairs; by default the largest order that was fitted.

        Raises:
            ValueError: If a slot is missing, or a level is unknown.
        """
        cell = []
        for name, options in self.slots.items():
            if name not in levels:
                raise ValueError(f"levels lacks slot {name!r}; it has {listed(map(str, levels))}.")
            if levels[name] not in options:
                near = suggest(str(levels[name]), map(str, options))
                raise ValueError(
                    f"slot {name!r} has no level {levels[name]!r}; there are "
                    f"{', '.join(map(repr, options))}.{near}"
                )
            cell.append(options.index(levels[name]))
        return float(predicted(self._effects, np.array([cell]), self._order(order))[0])

    def student(self, *, order: int | None = None) -> Float:
        """Return the student's output for every text that was run [text].

        Args:
            order: 1 for slots alone, 2 with pairs; by default the largest order that was fitted.

        Raises:
            ValueError: If that order was not fitted.
        """
        return predicted(self._effects, self.cells, self._order(order))

    def worst(self, k: int = 5, *, order: int = 1) -> list[Misjudged]:
        """Return the texts of which the student is furthest from the model, the worst first.

        Args:
            k: Largest number of texts.
            order: 1 for slots alone, 2 with pairs.

        Raises:
            ValueError: If that order was not fitted.
        """
        outputs = self.student(order=order)
        errors = outputs - self.values
        rows = np.argsort(-np.abs(errors), kind="stable")[:k]
        return [
            Misjudged(
                self._text(self.cells[at]), float(self.values[at]), float(outputs[at]), float(errors[at])
            )
            for at in rows
        ]

    def _order(self, order: int | None) -> int:
        chosen = self.order if order is None else order
        if chosen not in range(1, self.order + 1):
            raise ValueError(f"order {chosen} was not fitted; the orders are 1 to {self.order}.")
        return chosen

    def _columns(self) -> Iterator[Columns]:
        """Yield slot, level and effect; for pairs, two slots and two levels joined with " x "."""
        rows: list[tuple[str, str, float]] = [
            (name, str(level), float(effect))
            for name, shape in self.shapes.items()
            for level, effect in zip(self.slots[name], shape, strict=True)
        ]
        for (first, second), grid in self.pairs.items():
            for a, b in np.ndindex(grid.shape):
                levels = f"{self.slots[first][a]} x {self.slots[second][b]}"
                rows.append((f"{first} x {second}", levels, float(grid[a, b])))
        names, levels_, effects = (list(column) for column in zip(*rows, strict=True))
        yield {"slot": names, "level": levels_, "effect": effects}

    def figure(self, *, columns: int = 2) -> Figure:
        """Return a matplotlib figure: shares of the variance, and the shape of every slot.

        Args:
            columns: How many columns of a page it takes, 1 or 2.
        """
        from attnwidgets.concepts.figures import additive_sheet

        return additive_sheet(self).figure(columns)

    @property
    def summary(self) -> str:
        """The shares of the variance that a sum over slots keeps and loses, in a sentence."""
        if np.isnan(self.fidelity):
            return f"{self.target} is the same for every text of the template: there is nothing to explain."
        about = "about " if self.estimated else ""
        keeps, lost = f"{about}{self.fidelity:.1%}", f"{about}{max(0.0, 1 - self.fidelity):.1%}"
        pairs = f"; with pairs it keeps {about}{self.fidelities[2]:.1%}" if 2 in self.fidelities else ""  # noqa: PLR2004
        return f"A sum over slots keeps {keeps} of the variance and loses {lost}{pairs}."

    def __repr__(self) -> str:
        how = "estimated from" if self.estimated else "all"
        lines = [self.summary, f"Additive, {self.target}, {how} {len(self.values):,} texts, {self.model}"]
        ranked = sorted(self.shares.items(), key=lambda item: -item[1])[:8]
        lines += [f"  {share:6.1%}  {name}" for name, share in ranked if not np.isnan(share)]
        lines += [
            f"  worst: {quoted(text.text)} {text.model:+.2f}, student {text.student:+.2f}"
            for text in self.worst(2)
            if abs(text.error) >= _SEEN
        ]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])
