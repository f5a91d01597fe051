"""Alignment of two texts: columns of elements that stand at the same position.

Tokens of one tokenizer, words, or sentences are aligned by edit distance: as few substitutions, insertions
and deletions as possible (Levenshtein 1966). Tokens of two tokenizers are aligned by the characters that they
spell, so that a column can hold several tokens of either text.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.tracing.text.display import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets.tracing.text.units import TokenAxis, Unit

By = Literal["element", "character"]
"""By edit distance over elements, or by the characters that they spell."""

NUMBERED = ("message", "turn")
"""Units whose labels begin with a number, which moves with every element before it, and are cut."""

MOST_CELLS = 2**29
"""Pairs of elements among which the shortest edit is searched for, a byte each."""

_SPACE_SIGNS = str.maketrans("", "", "▁Ġ␣⏎↵⇥Ċ")
_PAIRED, _ONLY_FIRST, _ONLY_SECOND = range(3)
_NEVER = 3  # edits, more than a deletion and an insertion


class Column(NamedTuple):
    """Aligned elements of two texts.

    Attributes:
        first: Numbers of its elements in the first text; () if it has none.
        second: The same in the second text.
        same: Whether both texts read the same.
    """

    first: tuple[int, ...]
    second: tuple[int, ...]
    same: bool

    def of(self, side: int) -> tuple[int, ...]:
        """Return its elements in the first text (0) or the second (1)."""
        return self.second if side else self.first


@dataclass(frozen=True, repr=False)
class Alignment:
    """Two texts, column by column.

    Attributes:
        columns: The aligned elements, in the order of both texts; every element is in one column.
        units: The elements that were aligned, of the first text and of the second.
    """

    columns: tuple[Column, ...]
    units: tuple[Unit, Unit]

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        differ = [f"{first or 'nothing'!r} for {second or 'nothing'!r}" for first, second in self.changes()]
        summary = ", ".join(differ[:5]) + (", ..." if len(differ) > 5 else "")  # noqa: PLR2004
        return f"<Alignment of {len(self)} columns by {self.units[0].name}; {summary or 'no difference'}>"

    @property
    def differing(self) -> tuple[int, ...]:
        """Numbers of the columns in which the texts differ: a column for each edit of the edit distance."""
        return tuple(number for number, column in enumerate(self.columns) if not column.same)

    def groups(self, side: int) -> tuple[tuple[int, ...], ...]:
        """Return the elements of the first text (0) or the second (1) in each column."""
        return tuple(column.of(side) for column in self.columns)

    def label(self, column: int, side: int) -> str:
        """Return the label of a column in the first text (0) or the second (1); "" without elements."""
        unit, elements = self.units[side], self.columns[column].of(side)
        if len(elements) == 1:
            return unit.labels[elements[0]]
        return joined([unit.labels[i] for i in elements], unit.labels) if elements else ""

    def special(self, column: int) -> bool:
        """Return whether a column holds special tokens only."""
        aligned = self.columns[column]
        return all(unit.special[i] for side, unit in enumerate(self.units) for i in aligned.of(side))

    def changes(self) -> Iterator[tuple[str, str]]:
        """Yield the labels of each differing column in the first text and in the second."""
        for number in self.differing:
            yield self.label(number, 0), self.label(number, 1)


def align(first: TokenAxis, other: TokenAxis, unit: str = "token", *, by: By = "element") -> Alignment:
    """Return the alignment of two axes.

    Edits are as few as possible. Ties are broken by rules that depend on the elements only: a special token
    is never substituted for another element; elements that differ only in case are paired first, then words
    with words and signs with signs; insertions and deletions come as early as possible.

    Args:
        first: The axis of the first text.
        other: The axis of the second.
        unit: The unit whose elements are aligned, which both have.
        by: "element" for elements of one kind; "character" for tokens of two tokenizers. Then words are
            aligned by edit distance, and the tokens of a word by where they end in it.

    Raises:
        ValueError: `unit` or `by` is unknown, or the texts differ over more than 2^29 pairs of elements.
    """
    require_choice("by", by, ("element", "character"))
    for axis in (first, other):
        require_choice("unit", unit, tuple(axis.units))
    units = first.units[unit], other.units[unit]
    if by == "character" and unit == "token":
        columns = _by_character(first, other)
    else:
        columns = _by_element(_elements(first, unit), _elements(other, unit))
    return Alignment(tuple(columns), units)


def letters(label: str) -> str:
    """Return the letters of a token without spaces, "##", case and accents, which depend on tokenizers."""
    bare = label.removeprefix("##") if len(label) > len("##") else label
    plain = unicodedata.normalize("NFKD", bare.translate(_SPACE_SIGNS).casefold())
    return "".join(sign for sign in plain if not unicodedata.combining(sign) and not sign.isspace())


def _elements(axis: TokenAxis, unit: str) -> tuple[tuple[str, bool], ...]:
    """Return what elements are compared by: label and special; of numbered units, the text in their place."""
    chosen = axis.units[unit]
    labels: Sequence[str] = chosen.labels
    if unit in NUMBERED:
        labels = [joined([axis.tokens[i] for i in span], axis.tokens) for span in chosen.spans]
    return tuple(zip(labels, chosen.special, strict=True))


def _by_element(first: Sequence[tuple[str, bool]], second: Sequence[tuple[str, bool]]) -> list[Column]:
    """Return the columns of two lists of (label, special) by edit distance."""
    start = _shared_start(first, second)
    end = _shared_start(first[start:][::-1], second[start:][::-1])
    middle = first[start : len(first) - end], second[start : len(second) - end]
    columns = [Column((i,), (i,), same=True) for i in range(start)]
    first_at = second_at = start
    for step in _steps(*middle):
        in_first, in_second = step != _ONLY_SECOND, step != _ONLY_FIRST
        same = in_first and in_second and first[first_at] == second[second_at]
        columns.append(Column((first_at,) if in_first else (), (second_at,) if in_second else (), same))
        first_at, second_at = first_at + in_first, second_at + in_second
    columns += [Column((first_at + i,), (second_at + i,), same=True) for i in range(end)]
    return columns


def _shared_start(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the number of equal elements at the start of two lists."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (item, two) in pairs if item != two), min(len(first), len(second)))


def _steps(first: Sequence[tuple[str, bool]], second: Sequence[tuple[str, bool]]) -> list[int]:
    """Return the shortest edit that leads from one list to the other, step by step.

    A row of the table of distances depends on itself only by insertions, for which a running minimum is
    taken: every row is computed by numpy at once, and only the steps are stored, a byte each.

    Raises:
        ValueError: There are more than `MOST_CELLS` pairs.
    """
    rows, cols = len(first), len(second)
    if rows * cols > MOST_CELLS:
        raise ValueError(
            f"the texts differ over {rows:,} and {cols:,} elements, too many to align; compare shorter "
            "texts, or read them by a coarser unit."
        )
    # Ties are decided by a second number, too small to change how many edits there are.
    edit = 2 * (rows + cols) + 1
    (text, other_text), (special, other_special), (folded, other_folded), (worded, other_worded) = (
        _coded(first, second, read) for read in (_whole, _is_special, _folded, _is_worded)
    )
    insertions = np.arange(cols + 1, dtype=np.int64) * edit
    best = insertions.copy()
    steps = np.full((rows + 1, cols + 1), _ONLY_SECOND, dtype=np.uint8)
    steps[:, 0] = _ONLY_FIRST
    for row in range(rows):
        tie = np.where(other_folded == folded[row], 0, np.where(other_worded == worded[row], 1, 2))
        cost = np.where(other_text == text[row], 0, edit + tie)
        cost[other_special != special[row]] = _NEVER * edit
        paired = best[:-1] + cost
        alone = best + edit
        reached = alone.copy()
        np.minimum(reached[1:], paired, out=reached[1:])
        best = np.minimum.accumulate(reached - insertions) + insertions
        line = steps[row + 1]
        line[best == alone] = _ONLY_FIRST
        line[1:][best[1:] == paired] = _PAIRED
    result = []
    row, col = rows, cols
    while row or col:
        step = int(steps[row, col])
        result.append(step)
        row, col = row - (step != _ONLY_SECOND), col - (step != _ONLY_FIRST)
    return result[::-1]


def _coded(
    first: Sequence[Any], second: Sequence[Any], read: Callable[[Any], Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a number for each element: equal numbers where `read` returns equal values."""
    numbers: dict[Any, int] = {}
    coded = [[numbers.setdefault(read(item), len(numbers)) for item in side] for side in (first, second)]
    return np.array(coded[0], dtype=np.int64), np.array(coded[1], dtype=np.int64)


def _whole(element: tuple[str, bool]) -> tuple[str, bool]:
    return element


def _is_special(element: tuple[str, bool]) -> bool:
    return element[1]


def _folded(element: tuple[str, bool]) -> str:
    return letters(element[0])


def _is_worded(element: tuple[str, bool]) -> bool:
    return any(sign.isalnum() for sign in element[0])


def _by_character(first: TokenAxis, other: TokenAxis) -> list[Column]:
    """Return the columns of tokens of two tokenizers: words first, then tokens by their ends."""
    words = [axis.units.get("word", axis.units["token"]) for axis in (first, other)]
    tokens = [axis.units["token"] for axis in (first, other)]
    spelled = [[letters(label) for label in unit.labels] for unit in tokens]
    read = [
        [
            (label if special else "".join(parts[token] for token in span) or label, special)
            for label, span, special in zip(unit.labels, unit.spans, unit.special, strict=True)
        ]
        for unit, parts in zip(words, spelled, strict=True)
    ]
    columns = []
    for word in _by_element(*read):
        first_tokens, second_tokens = (
            tuple(token for element in word.of(side) for token in unit.spans[element])
            for side, unit in enumerate(words)
        )
        if not word.same or not first_tokens or not second_tokens:
            columns.append(Column(first_tokens, second_tokens, word.same))
            continue
        columns += _shared_pieces(first_tokens, second_tokens, spelled)
    return columns


def _shared_pieces(
    first: Sequence[int], second: Sequence[int], spelled: Sequence[Sequence[str]]
) -> Iterator[Column]:
    """Yield the shortest stretches of a word that end where a token ends in both."""
    ends = [
        list(accumulate(len(parts[token]) for token in span))
        for span, parts in zip((first, second), spelled, strict=True)
    ]
    # The last token ends the word in both, whatever it spells; a token without letters joins those before it.
    shared = sorted(set(ends[0]) & set(ends[1]) - {0})[:-1]
    at = [0, 0]
    for end in (*shared, None):
        stops = [
            len(stops_of_side)
            if end is None
            else next(i for i, stop in enumerate(stops_of_side) if stop > end)
            for stops_of_side in ends
        ]
        yield Column(tuple(first[at[0] : stops[0]]), tuple(second[at[1] : stops[1]]), same=True)
        at = stops
