"""What the rows and columns of a map are called: they are not always queries that read keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from attnwidgets.explanations.explanation import Explanation


class AxisWords(NamedTuple):
    """Words about a map's rows and columns, kept in `provenance["axes"]` where they are others than these.

    Attributes:
        row: What a row is.
        column: What a column is.
        verb: What an element of a row does to one of a column.
        back: The same, seen from the column.
        question: A question about an element {} of a row.
        question_back: A question about an element {} of a column.
    """

    row: str
    column: str
    verb: str
    back: str
    question: str
    question_back: str

    @property
    def labels(self) -> tuple[str, str]:
        """The labels of a figure's rows and columns, with where a query takes from."""
        return ("query (to)", "key (from)") if self == READING else self[:2]


READING = AxisWords("query", "key", "reads", "is read by", "Where does {} look?", "Who looks at {}?")
TARGETS = AxisWords("target", "source", "draws on", "goes to", "What does {} draw on?", "Where does {} go?")


def axis_words(shown: Explanation, default: AxisWords = READING) -> AxisWords:
    """Return the words of a map, or `default` if it has none of its own."""
    return AxisWords(*shown.provenance.get("axes", default))
