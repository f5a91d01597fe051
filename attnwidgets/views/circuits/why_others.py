"""Other texts in a WhyView: the sentence, and tokens that would be looked at, or would look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets.circuits.scores.bank import has_bank, reads_texts
from attnwidgets.circuits.scores.other_texts import said_of
from attnwidgets.views.circuits.why_words import rounded, signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.circuits.scores.bank import RankedToken
    from attnwidgets.circuits.scores.other_texts import OtherTexts
    from attnwidgets.tracing.trace import Trace

SHOWN, OFFERED, NONE = "shown", "offered", ""
EXAMPLES = 5
"""Tokens in each list."""


def state_of_others(trace: Trace, stack: str, texts: Any) -> str:
    """Return whether other texts are compared as a view opens, or on request, or cannot be."""
    if has_bank(trace, stack, texts):
        return SHOWN
    return OFFERED if reads_texts(trace, texts) else NONE


@dataclass(frozen=True)
class ShownOthers:
    """Tokens of other texts as a WhyView shows them.

    Args:
        other: The tokens.
        words: Query and key in quotes, as the view writes them.
    """

    other: OtherTexts
    words: tuple[str, str]

    def said(self) -> list[tuple[str, bool]]:
        """Return the sentence above the lists, in pieces, those that are stressed with True."""
        return said_of(self.other, self.words)

    def titles(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Return the headings of both lists, each with the number of this cell."""
        query, key = self.words
        return (
            (f"{query} would look at", f"{key} has {signed(self.other.score)}"),
            (f"would look at {key}", f"{query} gives {self.other.attention:.2f}"),
        )

    def examples(self) -> Iterator[tuple[str, list[tuple[str, RankedToken]]]]:
        """Yield the heading of each list, and its tokens with their number."""
        scores, weights = (f"{title} ({number})" for title, number in self.titles())
        keys, queries = self.other.keys[:EXAMPLES], self.other.queries[:EXAMPLES]
        yield scores, [(signed(token.score), token) for token in keys]
        yield weights, [(f"{token.attention:.2f}", token) for token in queries]

    def described(self) -> dict[str, Any]:
        """Return the `ShownOthers` of others.ts."""
        titles = self.titles()
        lists = (self.other.keys, self.other.queries)
        numbers = ("score", "attention")
        return {
            "said": [list(piece) for piece in self.said()],
            "more": self.other.ranked(),
            "warning": self.other.warning,
            "lists": [
                {
                    "title": title,
                    "cell": cell,
                    "isSigned": name == "score",
                    "tokens": _described(tokens, name),
                }
                for (title, cell), tokens, name in zip(titles, lists, numbers, strict=True)
            ],
        }


def _described(tokens: Sequence[RankedToken], number: str) -> list[dict[str, Any]]:
    return [
        {
            "before": token.before,
            "token": token.token,
            "after": token.after,
            "value": rounded(getattr(token, number)),
        }
        for token in tokens[:EXAMPLES]
    ]
