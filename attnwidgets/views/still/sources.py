"""The figure of a SourcesView: a sentence of the answer, and its parts as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.figures.parts.numbers import Bar, Bars
from attnwidgets.figures.sheet import Sheet, Words

if TYPE_CHECKING:
    from attnwidgets.figures.theme import Theme

_LETTERS = 60  # of a part


def sources_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure: the chosen sentence or word, a bar for each part, and what was written without."""
    del theme
    shown = view.shown
    sentence, word, chosen = (view.options[name] for name in ("sentence", "word", "part"))
    marked = shown.strongest(sentence) if chosen is None else chosen
    unfolded = [at for at in shown.unfolded(sentence) if sentence or shown.parts[at].kind != "answer"]
    bars = [
        Bar(
            " ".join(filter(None, shown.parts[at][:3])),
            shown.score(sentence, at, word),
            quiet=bool(shown.parts[at].kind),
            bold=at == marked,
        )
        for at in unfolded
    ]
    said = shown.rests(sentence)
    if word is not None:
        said = f"“{shown.words[sentence][word][0]}” in “{shown.sentences[sentence]}”"
    folded = len(shown.parts) - len(shown.unfolded(sentence))
    notes = [f"{folded} {shown.unit}s that are smaller are left out."] if folded else []
    for part, text in view.written().items():
        notes.append(f"Without {shown.named(part)} it would have said: “{text}”")
    if notes and view.written():
        notes.append(f"With every {shown.unit}: “{view.written_without(None)}”")
    return Sheet(
        str(view.options["title"]) or f"{shown.question} it rest on?",
        [
            Words(said, quiet=False, bold=True),
            Bars(bars, form="{:+.2f}", title=shown.title, letters=_LETTERS),
            *(Words(note, quiet=False) for note in notes),
        ],
        shown.cover,
    )
