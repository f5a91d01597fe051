"""The figure of a SourcesView: a sentence of the answer and its parts as bars, or copies of a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.figures.palettes import Ramp, heat_map, span_of
from attnwidgets.figures.parts.matrix import Scale
from attnwidgets.figures.parts.media import Copies, boxed
from attnwidgets.figures.parts.numbers import Bar, Bars
from attnwidgets.figures.sheet import Sheet, Words

if TYPE_CHECKING:
    from attnwidgets.figures.theme import Theme

_LETTERS = 60  # of a part


def sources_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure: the chosen sentence or word, a bar for each part, and what was written without."""
    shown = view.shown
    if shown.pictured is not None:
        return _picture_sheet(view, theme)
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
    notes += _written(view, f"With every {shown.unit}")
    return Sheet(
        str(view.options["title"]) or f"{shown.question} it rest on?",
        [
            Words(said, quiet=False, bold=True),
            Bars(bars, form="{:+.2f}", title=shown.title, letters=_LETTERS),
            *(Words(note, quiet=False) for note in notes),
        ],
        shown.cover,
    )


def _written(view: Any, whole: str) -> list[str]:
    """Return what was written without parts, and with all of them."""
    written = view.written()
    lines = [
        f"Without {view.shown.named(part)} it would have said: “{text}”" for part, text in written.items()
    ]
    return [*lines, f"{whole}: “{view.written_without(None)}”"] if lines else []


def _picture_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the answer, and a copy of the picture for each word that rests on it, or for all of them."""
    shown = view.shown
    word = view.options["word"]
    parts = shown.views[view.options["view"]][1]
    words = [None] if word is None else shown.strong() or [word]
    rows = [shown.values[0] if each is None else shown.rows[each] for each in words]
    top = shown.top if word is not None else shown.top_of_answer
    boxes = [np.array(shown.boxes[part]) / (*shown.size, *shown.size) for part in parts]
    names = []
    for each, row in zip(words, rows, strict=True):
        best = max(parts, key=lambda part: row[part])
        name = "the whole answer" if each is None else shown.words[0][each][0]
        names.append((name, f"{shown.amount(row[best])}, {shown.named(best)}"))
    copies = Copies(
        [boxed(shown.pixels, boxes, (row[parts] / top).clip(-1, 1), theme) for row in rows],
        names,
        words.index(word) if word in words else -1,
    )
    extent = "all words on one scale" if word is not None else "the whole answer"
    is_signed = shown.measure != "share"
    colours = heat_map("", signed=True, dark=theme.name == "dark")
    if not is_signed:
        colours = Ramp(np.asarray(colours(np.linspace(0.5, 1, 257)))[:, :3], f"{colours.name}-above")
    return Sheet(
        str(view.options["title"]) or f"{shown.question} the answer rest on?",
        [
            Words(shown.prompt),
            Words(shown.sentences[0], quiet=False, bold=True),
            copies,
            Scale(colours, span_of(shown.rows, signed=is_signed, vmax=top), f"{shown.title}, {extent}"),
            *(Words(note, quiet=False) for note in _written(view, "With the whole picture")),
        ],
        f"{shown.rests(0)} {shown.cover}".strip(),
    )
