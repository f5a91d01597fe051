"""A question and its answer without a browser: as HTML, as text and as a figure."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from attnwidgets.views.page.escaping import safe_text

if TYPE_CHECKING:
    from attnwidgets.ask.question import Question
    from attnwidgets.figures.sheet import Sheet


def as_text(question: Question) -> str:
    """Return the question, its answer and its receipt as lines of text."""
    lines = [f"{question.id}: {question.prompt}"]
    if question.answer is None:
        lines.append("not answered yet")
    else:
        lines += [f"answer: {question.said}", question.receipt]
    return "\n".join(lines)


def as_html(question: Question) -> str:
    """Return the question, its answer and its receipt as HTML, which a converted notebook shows."""
    points = f"{question.points:g} point{'s' * (question.points != 1)}"
    answered = question.answer is not None
    answer = (
        f"Answer: <b>{safe_text(question.said)}</b>"
        f"<br><small>Receipt, to paste into a form:</small> <code>{question.receipt}</code>"
        if answered
        else "Not answered yet."
    )
    picture = question.picture()
    image = (
        f'<img alt="{safe_text(question.inner[0].describe())}" style="max-width:100%" '
        f'src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
        if picture
        else ""
    )
    return (
        '<div class="attnwidgets-question" '
        'style="border-left:4px solid #0969c7;padding:4px 12px;margin:8px 0">'
        f'<p dir="auto" style="margin:4px 0;overflow-wrap:anywhere"><b>{safe_text(question.prompt)}</b> '
        f"<small>{safe_text(question.id)} · {points}</small></p>"
        f'<p style="margin:4px 0;overflow-wrap:anywhere">{answer}</p>{image}</div>'
    )


def sheet_of(question: Question) -> Sheet:
    """Return what a figure of a question consists of: its prompt, and its answer."""
    from attnwidgets.figures.sheet import Sheet, Words

    points = f"{question.id} · {question.points:g} point{'s' * (question.points != 1)}"
    lines = [points, f"answer: {question.said}" if question.answer is not None else "not answered yet"]
    return Sheet(question.prompt, [Words(line) for line in lines], question.receipt)
