"""Figures of texts: sentences with arcs, and words coloured by influence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.concepts.figures import influence_sheet
from attnwidgets.figures.parts.matrix import Scale
from attnwidgets.figures.parts.numbers import Bar, Bars
from attnwidgets.figures.parts.text import Arc, Arcs, Text
from attnwidgets.figures.sheet import Beside, Sheet, Stack, Words
from attnwidgets.figures.theme import printable
from attnwidgets.views.base.opening import last_content
from attnwidgets.views.presentation import title_of
from attnwidgets.views.still.colours import map_colours, strip_colours

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from attnwidgets.concepts.influence_result import Influence, InfluentialText
    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.concepts.coloured_texts import Part as ColouredPart
    from attnwidgets.views.presentation import Presentation

    Float = NDArray[np.float64]
    Link = tuple[int, int, float]
    """(sentence that depends, sentence that it depends on, value)."""

_BY_SENTENCE, _MOST = 3, 300  # arcs that are drawn at most, as in links.ts
_LISTED, _NAMED = 6, 3
_FEWEST = 2
_LONGEST = 60  # characters of a sentence in words
_NOTHING = "This text has one {}: there is nothing between them."

_MOST_TEXTS = 4  # training texts of each kind


@dataclass(frozen=True)
class _Shown:
    """The sentences and arcs that a SentenceView shows.

    Attributes:
        state: Its source, layer and head.
        title: Its title, with layer and head if there are several.
        labels: The sentences.
        numbers: Their numbers.
        links: All dependences, the strongest first.
        drawn: Those that are drawn.
        chosen: Index of the chosen sentence; -1 where there are fewer than two.
    """

    state: Presentation
    title: str
    labels: list[str]
    numbers: list[str]
    links: list[Link]
    drawn: list[Link]
    chosen: int

    @property
    def top(self) -> float:
        """The largest size; 0 without any."""
        return abs(self.links[0][2]) if self.links else 0.0


def _shown(state: Presentation) -> _Shown:
    options = state.options
    axis = state.source.axes()[0]
    labels, special = axis["labels"], np.asarray(axis["special"], dtype=bool)
    has_place = len(state.source.layers) > 1 or state.source.heads is not None
    title = state.title(state.head) if has_place else str(options["title"]) or state.source.title
    numbers = [str(index + options["indexBase"]) for index in range(len(labels))]
    if (~special).sum() < _FEWEST:
        return _Shown(state, title, labels, numbers, [], [], -1)
    matrix = np.asarray(state.source.matrix(state.layer, state.head), dtype=np.float64)
    links = links_of(matrix, options["distance"], special)
    least = options["least"] * abs(links[0][2]) if links else 0.0
    drawn = [link for link in links if abs(link[2]) >= least][: min(_MOST, _BY_SENTENCE * len(labels))]
    last = last_content(labels, axis["special"])
    return _Shown(
        state, title, labels, numbers, links, drawn, state.row if state.pinned else _opening(drawn, last)
    )


def sentence_sheet(state: Presentation, theme: Theme) -> Sheet:
    """Return the figure of a SentenceView: the text with its arcs, and both lists of the chosen sentence."""
    shown = _shown(state)
    source, top, chosen = shown.state.source, shown.top, shown.chosen
    if chosen < 0:
        return Sheet(shown.title, [Words(_NOTHING.format(source.unit))])
    ends = np.array([-top, top] if source.signed else [0.0, top])
    colours, norm = map_colours({}, theme, ends, signed=source.signed)
    arcs = [
        Arc(query, key, value / (top or 1.0), chosen in {query, key}) for query, key, value in shown.drawn
    ]
    parts: list[Part] = [
        Arcs(shown.labels, shown.numbers, arcs, colours, chosen, signed=source.signed),
        Scale(colours, norm, source.title),
    ]
    name = shown.numbers[chosen]
    lists = {
        f"{name} depends on": [(key, value) for query, key, value in shown.links if query == chosen],
        f"what depends on {name}": [(query, value) for query, key, value in shown.links if key == chosen],
    }
    for words, result in lists.items():
        bars = [
            Bar(f"{shown.numbers[number]} {shown.labels[number]}", value)
            for number, value in result[:_LISTED]
        ]
        if bars:
            parts.append(Bars(bars, top=top, title=words))
    distance = state.options["distance"]
    note = f"only {source.unit}s that are {distance} or more apart" if distance > 1 else ""
    return Sheet(shown.title, parts, note)


def sentence_words(state: Presentation) -> str:
    """Return the strongest dependences of the chosen sentence, and the strongest of all, in words."""
    shown = _shown(state)
    title, chosen = title_of(shown.title), shown.chosen
    if chosen < 0:
        return f"{title}. {_NOTHING.format(shown.state.source.unit)}"
    name = f"“{printable(shown.labels[chosen], _LONGEST)}”"
    dependences = [
        f"{shown.numbers[key]} ({value:.2f})" for query, key, value in shown.links if query == chosen
    ]
    first = (
        f"{name} depends most on {', '.join(dependences[:_NAMED])}"
        if dependences
        else f"{name} depends on no other"
    )
    best = [f"{shown.numbers[q]} on {shown.numbers[k]} ({value:.2f})" for q, k, value in shown.links[:_NAMED]]
    return f"{title}: {first}. Strongest of all: {', '.join(best) or 'none'}."


def _opening(drawn: list[Link], last: int) -> int:
    """Return the last sentence; if it has no arc, the sentence with the strongest."""
    return last if not drawn or any(last in link[:2] for link in drawn) else drawn[0][0]


def links_of(matrix: Float, distance: int, special: NDArray[np.bool_]) -> list[Link]:
    """Return the dependences that are not zero, the strongest first: the twin of `linksOf` in links.ts.

    Args:
        matrix: [query, key]: how much a sentence depends on another.
        distance: Sentences nearer to each other are left out.
        special: Sentences that are left out [sentence].
    """
    numbers = np.arange(len(matrix))
    near = np.abs(numbers[:, None] - numbers[None]) < distance
    values = np.where(near | special[:, None] | special[None] | ~np.isfinite(matrix), 0.0, matrix)
    result = [(int(query), int(key), float(values[query, key])) for query, key in np.argwhere(values)]
    return sorted(result, key=lambda link: -abs(link[2]))


def coloured_sheet(shown: Influence, test: int, words: Mapping[str, Any], note: str, theme: Theme) -> Sheet:
    """Return the test and training texts in coloured words.

    Args:
        shown: The influence.
        test: Number of the test.
        words: The colours of its words and of those of the training texts (`Coloured`).
        note: The meaning of the colours.
        theme: Colours of the page.
    """

    def column(title: str, ranked: list[InfluentialText]) -> Stack:
        texts = []
        for each in ranked:
            size = f"{each.influence:+.3g}".replace("-", "\N{MINUS SIGN}")
            texts.append(_text(words["train"][str(each.number)], f"{each.label} {size}".lstrip(), theme))
        return Stack([Words(title, bold=True), *texts])

    columns = Beside(
        column("helped", shown.helpful(test, _MOST_TEXTS)),
        column("harmed", shown.harmful(test, _MOST_TEXTS)),
        share=0.5,
    )
    test_text = _text(words["test"], shown.test_labels[test], theme)
    return Sheet("influence", [test_text, columns], f"{influence_sheet(shown, test, k=0).note}; {note}")


def _text(parts: Iterable[ColouredPart], name: str, theme: Theme) -> Text:
    """Return a coloured text as a part of a figure; blanks between words are left out."""
    words = [(word, np.nan if value is None else value) for word, value in parts if word.strip()]
    row = np.array([value for _, value in words], dtype=float)
    colours, norm = strip_colours({}, theme, row, signed=True)
    return Text(row[None], [word for word, _ in words], colours, norm, names=(name,))
