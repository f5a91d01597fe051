"""What a view shows, in words: its alternative text, from the numbers that its filters leave."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.explanations.results.verbalise import SPANS, matrix_words, row_words
from attnwidgets.views.still.view_state import Shown

if TYPE_CHECKING:
    from attnwidgets.views.base.view import View

_MOST_CELLS = 2**22


def words_of(view: View) -> str:
    """Return one or two sentences on the layer and head that a view shows.

    Args:
        view: A view. What is not computed yet is not computed for it.
    """
    if not view.sources():
        return str(view.options["title"] or view.name)
    shown = Shown.of(view)
    source = shown.source
    rows, columns = source.shape
    if source.explanation.method == "comparison" or source.coarse or rows * columns > _MOST_CELLS:
        return f"{shown.title()}: {rows} by {columns} {source.unit}s"
    if source.on_demand and shown.layer not in source.ready:
        return f"{shown.title()}: not computed yet"
    queries, keys = shown.labels
    name = title_of(source.title)
    matrix = shown.seen(source.matrix(shown.layer, shown.head), masked=False)
    if source.of_targets:
        said = []
        for label, values in list(zip(queries, matrix, strict=True))[:SPANS]:
            target, _, foil = label.partition(" − ")
            said.append(row_words(name, values, keys, target=target.strip(), foil=foil, unit=source.unit))
        more = len(queries) - len(said)
        return " ".join([*said, *([f"And {more} more target{'s' * (more > 1)}."] if more else [])])
    base = view.options["indexBase"]
    where = f" in layer {shown.layer + base}"
    if shown.head != "-":
        named = isinstance(shown.head, str)
        where += f", {shown.head} over heads" if named else f", head {int(shown.head) + base}"
    return matrix_words(f"{name}{where}", np.asarray(matrix), queries, keys, shares=source.stochastic)


def title_of(title: str) -> str:
    """Return a source's title as sentences begin with it: without its target, which they name."""
    short = re.split(" for ['\"]", title, maxsplit=1)[0]
    return short[:1].upper() + short[1:]
