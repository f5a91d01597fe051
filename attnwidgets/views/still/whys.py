"""The figure of a WhyView: the sentence, both lists, and the effects of removals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.circuits.scores.other_texts import described_of
from attnwidgets.figures.parts.numbers import Bar, Bars
from attnwidgets.figures.sheet import Beside, Sheet, Words

if TYPE_CHECKING:
    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.circuits.why_others import ShownOthers
    from attnwidgets.views.circuits.why_words import ShownWhy


def why_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of a WhyView: the sentence, both lists, their sum, and attention without parts."""
    del theme
    shown = view.shown()
    why, base = shown.why, view.options["indexBase"]
    query, key = shown.words
    lists = []
    for of, title in (("asks", f"{query} asks"), ("offers", f"{key} offers")):
        bars = [Bar(row.name, row.value, quiet=row.kind != "part") for row in shown.rows(of)]
        lists.append(Bars(bars, form="{:+.2f}", title=title))
    others = view.shown_others()
    said = shown.said() if others is None else others.said()
    parts: list[Part] = [Words("".join(piece for piece, _ in said), quiet=False)]
    if others is not None:
        parts.append(Words(others.other.ranked()))
    if shown.more():
        parts.append(Words(shown.more()))
    notes = (shown.sums(), *shown.removal_words(), shown.about())
    parts += [Beside(lists[0], lists[1], share=0.5), *(Words(note) for note in notes if note)]
    for heading, tokens in () if others is None else others.examples():
        examples = (f"… {token.before}{token.token}{token.after} {number}" for number, token in tokens)
        parts.append(Words(f"{heading}: {'; '.join(examples)}."))
    title = str(view.options["title"]) or (
        f"{query} looks at {key}: {why.attention:.3g} in layer {why.layer + base}, head {why.head + base}"
    )
    warnings = (why.warning, "" if others is None else others.other.warning)
    return Sheet(title, parts, " ".join(filter(None, warnings)))


def why_words(shown: ShownWhy, others: ShownOthers | None = None) -> str:
    """Return a WhyView in sentences: the weight, its parts, their sums, and removals."""
    why, (query, key) = shown.why, shown.words
    said = "".join(piece for piece, _ in shown.said())
    head = f"{query} looks at {key} with {why.attention:.3g} in head {why.layer}.{why.head}."
    compared = "" if others is None else described_of(others.other, others.words)
    return " ".join(filter(None, (head, compared, said, shown.sums(), *shown.removal_words())))
