"""A figure of influence in coloured words: the test, and the first texts that helped and harmed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.concepts.figures import influence_sheet
from attnwidgets.figures.parts.text import Text
from attnwidgets.figures.sheet import Beside, Sheet, Stack, Words
from attnwidgets.views.still.colours import strip_colours

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attnwidgets.concepts.influence_result import Influence, InfluentialText
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.concepts.coloured_texts import Part

_MOST = 4  # training texts of each kind


def coloured_sheet(shown: Influence, test: int, words: Mapping[str, Any], note: str, theme: Theme) -> Sheet:
    """Return the test and training texts in coloured words.

    Args:
        shown: The influence.
        test: Number of the test.
        words: The colours of its words and of those of the training texts (`Coloured`).
        note: What the colours are.
        theme: Colours of the page.
    """

    def column(title: str, ranked: list[InfluentialText]) -> Stack:
        texts = []
        for each in ranked:
            size = f"{each.influence:+.3g}".replace("-", "\N{MINUS SIGN}")
            texts.append(_text(words["train"][str(each.number)], f"{each.label} {size}".lstrip(), theme))
        return Stack([Words(title, bold=True), *texts])

    columns = Beside(
        column("helped", shown.helpful(test, _MOST)), column("harmed", shown.harmful(test, _MOST)), share=0.5
    )
    test_text = _text(words["test"], shown.test_labels[test], theme)
    return Sheet("influence", [test_text, columns], f"{influence_sheet(shown, test, k=0).note}; {note}")


def _text(parts: Iterable[Part], name: str, theme: Theme) -> Text:
    """Return a coloured text as a part of a figure; blanks between words are left out."""
    words = [(word, np.nan if value is None else value) for word, value in parts if word.strip()]
    row = np.array([value for _, value in words], dtype=float)
    colours, norm = strip_colours({}, theme, row, signed=True)
    return Text(row[None], [word for word, _ in words], colours, norm, names=(name,))
