"""A study without a browser: its first item in every condition, as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.parts.text import Text
from attnwidgets.figures.sheet import Sheet, Words
from attnwidgets.views.still.colours import strip_colours

if TYPE_CHECKING:
    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme
    from attnwidgets.people.study import Study


def sheet_of(study: Study, theme: Theme) -> Sheet:
    """Return the sheet of a study: the question, and its first item in every condition."""
    parts: list[Part] = [Words(study.question)] if study.question != study.title else []
    words = study.words[0]
    for condition, explanations in zip(study.conditions, study.shown[0], strict=True):
        for explanation in explanations:
            labels = explanation.words or words
            values = np.array(explanation.values) if explanation.values else np.zeros(len(labels))
            colours, norm = strip_colours({}, theme, values, signed=explanation.signed, top=1.0)
            parts += [Words(condition), Text(values[None], labels, colours, norm)]
            if explanation.text:
                parts.append(Words(explanation.text))
    answers = ", ".join(study.labels)
    count = f"item 1 of {len(study.items)}, in every condition; people see one"
    return Sheet(study.title, parts, f"{count}. Answers: {answers}." if answers else f"{count}.")
