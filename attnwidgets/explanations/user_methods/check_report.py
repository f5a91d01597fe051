"""The report of a check of a user's method: text for a terminal, a box for a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.explanations.results.arrays import Array
    from attnwidgets.explanations.user_methods.invariants import Difference, SmallInput, Violation

_SHOWN = 8
"""Most tokens for which matrices are printed."""


@dataclass(frozen=True)
class Failure:
    """The smallest input on which a check failed.

    Attributes:
        on: The input in words.
        said: Description of the failure.
        attention: The attention of the input, if it is small enough to print.
        violation: The wrong numbers, if there are any.
        labels: Their labels: of rows and columns, or of sources alone.
        traceback: The user's lines, if their function raised.
        error: The exception, if their function raised.
    """

    on: str
    said: str
    attention: SmallInput | None = None
    violation: Violation | None = None
    labels: tuple[tuple[str, ...], ...] = ()
    traceback: str = ""
    error: Exception | None = None

    def lines(self, name: str) -> list[str]:
        """Return the failure as lines of text."""
        tables: list[tuple[str, Array | None, Sequence[Sequence[str]]]] = []
        if self.attention is not None:
            weights, tokens = self.attention.attention, self.attention.tokens
            for layer, head in np.ndindex(weights.shape[:2]):
                of = f", head {head}" if weights.shape[1] > 1 else ""
                tables.append((f"attention, layer {layer}{of}", weights[layer, head], (tokens, tokens)))
        if self.violation is not None:
            at = "" if self.violation.layer is None else f", layer {self.violation.layer}"
            tables.append((f"{name} returned{at}", self.violation.returned, self.labels))
            tables.append((f"expected{at}", self.violation.expected, self.labels))
        lines = [f"on {self.on}"]
        for heading, values, labels in tables:
            lines += [] if values is None else [heading, *_table(values, labels)]
        return [*lines, self.said, *self.traceback.rstrip().splitlines()]


@dataclass(frozen=True)
class Result:
    """The result of an invariant.

    Attributes:
        name: The invariant's name.
        words: The invariant as a sentence.
        inputs: Number of inputs on which it was checked.
        failure: The failure, or None.
        unasked: Why it was not checked, or "".
    """

    name: str
    words: str
    inputs: int
    failure: Failure | None = None
    unasked: str = ""

    @property
    def word(self) -> str:
        """Return "holds", "fails" or "not checked"."""
        return "fails" if self.failure else "holds" if self.inputs else "not checked"


@dataclass(frozen=True)
class ReferenceComparison:
    """A comparison of a method with its reference, layer by layer.

    Attributes:
        reference: The reference's name.
        on: The input in words.
        rows: The largest difference in every layer.
        unlike: Why they cannot be compared, or "".
    """

    reference: str
    on: str
    rows: tuple[Difference, ...] = ()
    unlike: str = ""

    def lines(self, name: str) -> list[str]:
        """Return the comparison as lines of text."""
        rows = [
            f"  {row.matrix or 'values'}: largest difference {row.largest:.3g}, at {row.cell} "
            f"({name} {row.value:.4g}, {self.reference} {row.reference:.4g})"
            for row in self.rows
        ]
        lines = [f"  not comparable: {self.unlike}"] if self.unlike else rows
        return [f"compared with {self.reference}, on {self.on}", *lines]


@dataclass(frozen=True)
class CheckReport:
    """The report of a check of a method: text and, at the end of a cell, a box.

    Attributes:
        name: The method's name.
        results: Results of the invariants, and of an error or a modified trace.
        inputs: Number of inputs on which it ran.
        beside: The comparison with its reference, if any was named.
        notes: Other remarks.
    """

    name: str
    results: tuple[Result, ...] = ()
    inputs: int = 0
    beside: ReferenceComparison | None = None
    notes: tuple[str, ...] = ()

    @property
    def failing(self) -> tuple[str, ...]:
        """Names of the invariants that fail."""
        return tuple(result.name for result in self.results if result.failure)

    @property
    def passed(self) -> bool:
        """Whether nothing fails; invariants that could not be checked do not count."""
        return not self.failing

    @property
    def error(self) -> Exception | None:
        """The exception that the function raised, or None."""
        errors = (result.failure.error for result in self.results if result.failure)
        return next(filter(None, errors), None)

    @property
    def mark(self) -> str:
        """The remark next to the name in menus: "fails: causal", "raises IndexError", or ""."""
        raised = [name for name in self.failing if name.startswith("raises ")]
        failed = [name for name in self.failing if name not in raised]
        return "; ".join([*raised, *([f"fails: {', '.join(failed)}"] if failed else [])])

    @property
    def headline(self) -> str:
        """The outcome in a line."""
        if not self.inputs:
            return f"{self.name}: not run yet"
        on = f"{self.inputs} input{'' if self.inputs == 1 else 's'}"
        return f"{self.name}{f' {self.mark}' if self.mark else ': nothing fails'} (run on {on})"

    def lines(self) -> list[str]:
        """Return everything below the headline, as lines of text."""
        lines = []
        for result in self.results:
            why = result.unasked or (f"on {result.inputs} inputs" if result.inputs > 1 else "on 1 input")
            lines.append(
                f"{result.word}  {result.name}: {result.words}{'' if result.failure else f' ({why})'}"
            )
            if result.failure:
                lines += [f"       {line}" for line in result.failure.lines(self.name)]
        if self.beside is not None:
            lines += self.beside.lines(self.name)
        return lines + [f"note: {note}" for note in self.notes]

    def __repr__(self) -> str:
        return "\n".join([self.headline, *(f"  {line}" for line in self.lines())])

    def _repr_html_(self) -> str:
        colour = "#2e8b57" if self.passed else "#d9822b"
        body = html.escape("\n".join(self.lines()))
        return (
            f"<div style='border-left:4px solid {colour};padding:.3em .8em;margin:.3em 0'>"
            f"<b>{html.escape(self.headline)}</b>"
            f"<pre style='margin:.3em 0 0;background:none;color:inherit;font-family:monospace'>{body}</pre>"
            "</div>"
        )


class InvariantError(ValueError):
    """A method fails an invariant that was declared for it, under `strict=True`.

    Attributes:
        report: The report of the check.
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__(repr(report))
        self.report = report


def _table(values: Array, labels: Sequence[Sequence[str]]) -> list[str]:
    """Return [query, key] or [source] as lines with labels; of a large array, its size."""
    if max(values.shape) > _SHOWN:
        return [f"    ({' x '.join(map(str, values.shape))} numbers)"]
    rows = np.atleast_2d(values)
    queries, keys = (labels[0] if values.ndim > 1 else ("",)), labels[-1]
    cells = [[f"{number:.4g}" for number in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(keys, *cells, strict=True)]
    side = max(map(len, queries))
    lines = [[" " * side, *(key.rjust(width) for key, width in zip(keys, widths, strict=True))]]
    lines += [
        [query.rjust(side), *(cell.rjust(width) for cell, width in zip(row, widths, strict=True))]
        for query, row in zip(queries, cells, strict=True)
    ]
    return ["    " + "  ".join(line) for line in lines]
