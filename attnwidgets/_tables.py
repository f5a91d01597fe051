"""Tables: numbers as rows, as a CSV file and, with pandas installed, as a data frame."""

from __future__ import annotations

import csv
import re
from abc import ABC, abstractmethod
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import Suggesting, not_installed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    Columns = Mapping[str, Any]
    """Values of equal number, by column."""

# Full-width signs run, too; a blank before a sign does not stop a spreadsheet.
_FORMULA = re.compile(r"^[\s\0]*(?:[=@＝＋＠－](?!$)|[+-](?!([\d.]+(e[+-]?\d+)?|inf)?$))")


class Table(Suggesting, ABC):
    """Numbers that can be written as a table; only `to_dataframe` needs pandas."""

    @abstractmethod
    def _columns(self) -> Iterator[Columns]:
        """Yield consecutive parts of the table, all with the same columns."""

    def to_rows(self) -> list[dict[str, Any]]:
        """Return the table as a dict per row, of Python numbers and strings."""
        return [dict(zip(part, row, strict=True)) for part in self._columns() for row in rows_of(part)]

    def to_csv(self, path: str | Path) -> Path:
        """Write the table as CSV (UTF-8, all digits) in an atomic step; needs no pandas.

        Strings that a spreadsheet would run as a formula begin with an apostrophe.

        Returns:
            The path.

        Raises:
            OSError: If `path` cannot be written.
        """
        from attnwidgets._files import write_bytes

        parts = list(self._columns())
        rows = [[*part] for part in parts[:1]] + [row for part in parts for row in rows_of(part)]
        target = Path(path)
        write_bytes(target, csv_of(rows).encode("utf-8"))
        return target

    def to_dataframe(self) -> pd.DataFrame:
        """Return the table as a pandas DataFrame.

        Raises:
            ImportError: If pandas is not installed; `.to_rows()` and `.to_csv(path)` do not need it.
        """
        frames = [pandas().DataFrame(dict(part)) for part in self._columns()]
        return frames[0] if len(frames) == 1 else pandas().concat(frames, ignore_index=True)


def cells(axes: Mapping[str, Sequence[Any]], values: Mapping[str, Any]) -> Columns:
    """Return arrays over the same axes as columns, with a row for each cell where the first has a number.

    Args:
        axes: Labels by the name of the axis, in the order of the arrays' axes.
        values: The arrays by the name of their column.
    """
    index = np.argwhere(~np.isnan(next(iter(values.values()))))
    columns: dict[str, Any] = {
        name: [labels[at] for at in index[:, axis]] for axis, (name, labels) in enumerate(axes.items())
    }
    return columns | {name: np.asarray(array)[tuple(index.T)] for name, array in values.items()}


def rows_of(part: Columns) -> Iterator[tuple[Any, ...]]:
    return zip(*(_plain(column) for column in part.values()), strict=True)


def _plain(column: Any) -> list[Any]:
    """Return a column in Python types; a list may hold several types."""
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    return [cell.item() if isinstance(cell, np.generic) else cell for cell in column]


def pandas() -> Any:
    """Return pandas, or raise ImportError that names the remedy."""
    try:
        import pandas as pd
    except ImportError as error:
        instead = ".to_rows() returns the same table as a list of dicts, and .to_csv(path) writes it."
        raise not_installed("to_dataframe()", "pandas", f"Without it, {instead}") from error
    return pd


def csv_of(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV: no text is run by a spreadsheet, and line breaks in a text are quoted."""
    lines: list[str] = []
    writer = csv.writer(SimpleNamespace(write=lines.append))  # it writes a row at once
    for row in rows:
        writer.writerow([spreadsheet_label(cell) if isinstance(cell, str) else cell for cell in row])
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


def spreadsheet_label(label: str) -> str:
    """Return a label that a spreadsheet does not run: an apostrophe precedes a formula."""
    return "'" + label if _FORMULA.match(label) else label
