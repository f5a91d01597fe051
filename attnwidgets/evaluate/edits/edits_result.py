"""The edits of a text, ranked: a table, and what it says."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._tables import Table
from attnwidgets.figures.html_tables import cell, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets._tables import Columns

_SHOWN = 10


@dataclass(frozen=True)
class Edit:
    """One edit.

    Attributes:
        place: Number of the word that is replaced.
        old: The word, with its punctuation.
        new: What replaces it.
        text: The edited text.
        label: The class of the edited text.
        margin: The best other logit less that of the original class; above 0, the class flips.
        surprisal: Change of the text's surprisal in nats; NaN without a language model.
    """

    place: int
    old: str
    new: str
    text: str
    label: str
    margin: float
    surprisal: float

    @property
    def flips(self) -> bool:
        """Whether the class is another."""
        return self.margin > 0


@dataclass(frozen=True, repr=False)
class MinimalEdits(Table):
    """Every edit of one word that was tried, best first; iterates over `Edit`s.

    Attributes:
        text: The original text.
        label: Its class.
        margin: Its best other logit less that of its class; below 0.
        edits: The edits: flips first, in the order of `by`, then the others by margin.
        by: How flips are ranked: "surprisal" or "margin".
        judge: The language model that gave the surprisals; "" if none did.
    """

    text: str
    label: str
    margin: float
    edits: tuple[Edit, ...]
    by: str
    judge: str

    @classmethod
    def of(
        cls,
        *,
        text: str,
        edits: Sequence[tuple[int, str, str, float, float]],
        classes: Sequence[int],
        original: int,
        margin: float,
        labels: Sequence[str],
        by: str,
        judge: str,
    ) -> MinimalEdits:
        """Return the result of edits (place, new word, text, margin, surprisal) in order."""
        words = text.split(" ")
        rows = tuple(
            Edit(place, words[place], new, edited, labels[label], float(gap), float(nats))
            for (place, new, edited, gap, nats), label in zip(edits, classes, strict=True)
        )
        return cls(text, labels[original], margin, rows, by, judge)

    @property
    def flips(self) -> tuple[Edit, ...]:
        """The edits that change the class, best first."""
        return tuple(edit for edit in self.edits if edit.flips)

    @property
    def caveat(self) -> str:
        """What the ranking does and does not say, in a sentence."""
        if not self.judge:
            return (
                "Ranked by the classifier's margin alone: no language model judged whether these texts are "
                "English, and most are not (fluency=(model, tokenizer))."
            )
        return (
            f"Surprisal by {self.judge}: how likely it finds the text, not whether the text makes sense or "
            "what its true class is."
        )

    def __len__(self) -> int:
        return len(self.edits)

    def __iter__(self) -> Iterator[Edit]:
        return iter(self.edits)

    def __getitem__(self, number: int) -> Edit:
        return self.edits[number]

    def _columns(self) -> Iterator[Columns]:
        names = ("place", "old", "new", "text", "label", "margin", "surprisal")
        columns: dict[str, Any] = {name: [getattr(edit, name) for edit in self.edits] for name in names}
        yield columns | {"flips": [edit.flips for edit in self.edits]}

    @property
    def _summary(self) -> str:
        return (
            f"{len(self.flips)} of {len(self.edits)} edits of one word turn {self.label!r} into another class"
        )

    def __repr__(self) -> str:
        lines = [f"{self._summary}.", *(_line(edit) for edit in self.flips[:_SHOWN]), self.caveat]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = (
            (
                f"<td>{_marked(edit)}</td>",
                cell(edit.label, left=True),
                cell(f"{edit.margin:+.2f}"),
                cell(_nats(edit)),
            )
            for edit in self.flips[:_SHOWN]
        )
        head = ("edited text", "class", "margin", "surprisal, nats")
        return table(head, rows, [f"{self._summary}.", self.caveat], left=(0, 1))


def _nats(edit: Edit) -> str:
    return "" if np.isnan(edit.surprisal) else f"{edit.surprisal:+.1f}"


def _line(edit: Edit) -> str:
    nats = f", surprisal {_nats(edit)}" if _nats(edit) else ""
    return f"  {edit.text!r}: {edit.label} (margin {edit.margin:+.2f}{nats})"


def _marked(edit: Edit) -> str:
    """Return an edited text as HTML, with the new word underlined."""
    words = [html.escape(word) for word in edit.text.split(" ")]
    words[edit.place] = f"<u>{words[edit.place]}</u>"
    return " ".join(words)
