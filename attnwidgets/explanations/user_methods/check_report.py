"""What came of checking a user's method: text for a terminal, a box for a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.explanations.results.arrays import Array
    from attnwidgets.explanations.user_methods.invariants import Difference, Violation
    from attnwidgets.explanations.user_methods.small_inputs import SmallInput

_SHOWN = 8
"""Tokens up to which matrices are printed."""


@dataclass(frozen=True)
class Failure:
    """The smallest input on which something failed.

    Attributes:
        on: The input in words.
        said: What is wrong.
        attention: The attention that was given, where it is small enough to look at.
        violation: The numbers that are wrong, where there are numbers.
        labels: Their labels: of rows and columns, or of sources alone.
        traceback: The user's own lines, where their function raised.
        error: What was raised.
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
        found = [f"on {self.on}"]
        if self.attention is not None:
            labels = (self.attention.tokens, self.attention.tokens)
            layers, heads = self.attention.attention.shape[:2]
            for layer, head in np.ndindex(layers, heads):
                of = f", head {head}" if heads > 1 else ""
                found += [
                    f"attention, layer {layer}{of}",
                    *_table(self.attention.attention[layer, head], labels),
                ]
        violation = self.violation
        if violation is not None and violation.returned is not None:
            at = "" if violation.layer is None else f", layer {violation.layer}"
            found += [f"{name} returned{at}", *_table(violation.returned, self.labels)]
            if violation.expected is not None:
                found += [f"expected{at}", *_table(violation.expected, self.labels)]
        found.append(self.said)
        return found + self.traceback.rstrip().splitlines()


@dataclass(frozen=True)
class Result:
    """What came of one invariant.

    Attributes:
        name: The invariant's name.
        words: What must hold.
        asked: On how many inputs it was asked.
        failure: Where it failed, or None.
        unasked: Why it was asked of none, or "".
    """

    name: str
    words: str
    asked: int
    failure: Failure | None = None
    unasked: str = ""

    @property
    def word(self) -> str:
        """Return "holds", "fails" or "not asked"."""
        return "fails" if self.failure else "holds" if self.asked else "not asked"


@dataclass(frozen=True)
class Beside:
    """A method beside its reference, layer by layer.

    Attributes:
        reference: The reference's name.
        on: The input in words.
        rows: The largest difference of every layer.
        unlike: Why they cannot be compared, or "".
    """

    reference: str
    on: str
    rows: tuple[Difference, ...] = ()
    unlike: str = ""

    def lines(self, name: str) -> list[str]:
        """Return the comparison as lines of text."""
        found = [f"beside {self.reference}, on {self.on}"]
        if self.unlike:
            return [*found, f"  not comparable: {self.unlike}"]
        return found + [
            f"  {row.place or 'values'}: largest difference {row.largest:.3g}, at {row.cell} "
            f"({name} {row.own:.4g}, {self.reference} {row.other:.4g})"
            for row in self.rows
        ]


@dataclass(frozen=True)
class CheckReport:
    """What came of checking a method: readable as text and, last in a cell, as a box.

    Attributes:
        name: The method's name.
        results: One for each invariant, and one for an error or a trace that was written into.
        inputs: On how many inputs it was run.
        beside: The comparison with its reference, where one was named.
        notes: What else there is to know.
    """

    name: str
    results: tuple[Result, ...] = ()
    inputs: int = 0
    beside: Beside | None = None
    notes: tuple[str, ...] = ()

    @property
    def failing(self) -> tuple[str, ...]:
        """Names of what fails."""
        return tuple(result.name for result in self.results if result.failure)

    @property
    def passed(self) -> bool:
        """Whether nothing fails; what could not be asked does not count."""
        return not self.failing

    @property
    def error(self) -> Exception | None:
        """What the function raised, or None."""
        return next(
            (found.failure.error for found in self.results if found.failure and found.failure.error), None
        )

    @property
    def mark(self) -> str:
        """What a menu says beside the name: "fails: causal", "raises IndexError", or ""."""
        raised = [name for name in self.failing if name.startswith("raises ")]
        failed = [name for name in self.failing if name not in raised]
        return "; ".join([*raised, *([f"fails: {', '.join(failed)}"] if failed else [])])

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        if not self.inputs:
            return f"{self.name}: not run yet"
        on = f"{self.inputs} input{'' if self.inputs == 1 else 's'}"
        return (
            f"{self.name} {self.mark} (run on {on})"
            if self.mark
            else f"{self.name}: nothing fails (run on {on})"
        )

    def lines(self) -> list[str]:
        """Return everything below the headline, as lines of text."""
        found = []
        for result in self.results:
            why = result.unasked or (f"on {result.asked} inputs" if result.asked > 1 else "on 1 input")
            found.append(
                f"{result.word}  {result.name}: {result.words}{'' if result.failure else f' ({why})'}"
            )
            if result.failure:
                found += [f"       {line}" for line in result.failure.lines(self.name)]
        if self.beside is not None:
            found += self.beside.lines(self.name)
        return found + [f"note: {note}" for note in self.notes]

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
    """A method fails what was declared of it, and `strict=True` asked for an error.

    Attributes:
        report: What came of the check.
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__(repr(report))
        self.report = report


def _table(values: Array, labels: Sequence[Sequence[str]]) -> list[str]:
    """Return [query, key] or [source] as lines with its labels; what is large is not printed."""
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
