"""What the figure of a SentenceView consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.figures.parts.arcs import Arc, Arcs
from attnwidgets.figures.parts.bars import Bar, Bars
from attnwidgets.figures.parts.matrix import Scale
from attnwidgets.figures.sheet import Sheet, Words
from attnwidgets.views.base.opening import last_content
from attnwidgets.views.still.colours import map_colours
from attnwidgets.views.still.view_state import ViewState

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme

    Float = NDArray[np.float64]
    Link = tuple[int, int, float]
    """(sentence that depends, sentence that it depends on, value)."""

_BY_SENTENCE, _MOST = 3, 300  # arcs that are drawn at most, as in links.ts
_LISTED = 6
_FEWEST = 2


def sentence_sheet(view: Any, theme: Theme) -> Sheet:
    """Return what a SentenceView shows: the text with its arcs, and both lists of the chosen sentence."""
    state = ViewState.of(view)
    axis = state.source.axes()[0]
    labels, special = axis["labels"], np.asarray(axis["special"], dtype=bool)
    base, distance = view.options["indexBase"], view.options["distance"]
    has_place = len(state.source.layers) > 1 or state.source.heads is not None
    title = state.title(state.head) if has_place else str(view.options["title"]) or state.source.title
    if (~special).sum() < _FEWEST:
        return Sheet(title, [Words(f"This text has one {state.source.unit}: there is nothing between them.")])
    matrix = np.asarray(state.source.matrix(state.layer, state.head), dtype=np.float64)
    links = links_of(matrix, distance, special)
    sizes = np.array([abs(value) for *_, value in links] or [0.0])
    signed = state.source.signed
    colours, norm = map_colours({}, theme, sizes if not signed else np.array([-sizes.max(), sizes.max()]),
                                signed=signed)  # fmt: skip
    drawn = [link for link in links if abs(link[2]) >= view.options["least"] * sizes.max()]
    drawn = drawn[: min(_MOST, _BY_SENTENCE * len(labels))]
    chosen = state.row if state.pinned else _opening(drawn, last_content(labels, axis["special"]))
    arcs = [
        Arc(query, key, value / (sizes.max() or 1.0), chosen in {query, key}) for query, key, value in drawn
    ]
    numbers = [str(place + base) for place in range(len(labels))]
    parts: list[Part] = [
        Arcs(labels, numbers, arcs, colours, chosen, signed=signed),
        Scale(colours, norm, state.source.title),
    ]
    name = numbers[chosen]
    for words, own, other in ((f"{name} depends on", 0, 1), (f"what depends on {name}", 1, 0)):
        found = [link for link in links if link[own] == chosen][:_LISTED]
        bars = [Bar(f"{numbers[int(link[other])]} {labels[int(link[other])]}", link[2]) for link in found]
        if bars:
            parts.append(Bars(bars, top=float(sizes.max()), title=words))
    note = f"only {state.source.unit}s that are {distance} or more apart" if distance > 1 else ""
    return Sheet(title, parts, note)


def _opening(drawn: list[Link], last: int) -> int:
    """Return the last sentence; if it has no arc, the one with the strongest."""
    return last if not drawn or any(last in link[:2] for link in drawn) else drawn[0][0]


def links_of(matrix: Float, distance: int, special: NDArray[np.bool_]) -> list[Link]:
    """Return the dependences that are not zero, the strongest first: the twin of `linksOf` in links.ts.

    Args:
        matrix: [query, key]: how much a sentence depends on another.
        distance: Sentences nearer to each other are left out.
        special: Sentences that are left out [sentence].
    """
    places = np.arange(len(matrix))
    near = np.abs(places[:, None] - places[None]) < distance
    values = np.where(near | special[:, None] | special[None] | ~np.isfinite(matrix), 0.0, matrix)
    found = [(int(query), int(key), float(values[query, key])) for query, key in np.argwhere(values)]
    return sorted(found, key=lambda link: -abs(link[2]))
