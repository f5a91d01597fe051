"""The alternative text of a view: what it shows in words, from the numbers that pass its filters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.explanations.results.verbalise import SPANS, matrix_words, row_words
from attnwidgets.views.still.view_state import ViewState

if TYPE_CHECKING:
    from attnwidgets.views.base.view import View

_MOST_CELLS = 2**22


def words_of(view: View) -> str:
    """Return one or two sentences on the layer and head that a view shows.

    Args:
        view: A view. Layers that are not computed yet are not computed for this.
    """
    if not view.sources():
        return str(view.options["title"] or view.name)
    state = ViewState.of(view)
    source = state.source
    rows, columns = source.shape
    if source.explanation.method == "comparison" or source.coarse or rows * columns > _MOST_CELLS:
        return f"{state.title()}: {rows} by {columns} {source.unit}s"
    if source.on_demand and state.layer not in source.ready:
        return f"{state.title()}: not computed yet"
    queries, keys = state.labels
    name = title_of(source.title)
    matrix = state.filtered(source.matrix(state.layer, state.head), masked=False)
    if source.of_targets:
        sentences = []
        for label, values in list(zip(queries, matrix, strict=True))[:SPANS]:
            target, _, foil = label.partition(" − ")
            words = row_words(name, values, keys, target=target.strip(), foil=foil, unit=source.unit)
            sentences.append(words)
        more = len(queries) - len(sentences)
        return " ".join([*sentences, *([f"And {more} more target{'s' * (more > 1)}."] if more else [])])
    base = view.options["indexBase"]
    where = f" in layer {state.layer + base}"
    if state.head != "-":
        is_reduction = isinstance(state.head, str)
        where += f", {state.head} over heads" if is_reduction else f", head {int(state.head) + base}"
    return matrix_words(
        f"{name}{where}", np.asarray(matrix), queries, keys, shares=source.stochastic, words=source.words
    )


def title_of(title: str) -> str:
    """Return a source's title as the beginning of a sentence that names its target elsewhere."""
    short = re.split(" for ['\"]", title, maxsplit=1)[0]
    return short[:1].upper() + short[1:]
