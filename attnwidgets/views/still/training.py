"""The figure of a training: the map of a head at a step, and the curves over all steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.figures.parts.lines import Line, Lines
from attnwidgets.figures.parts.matrix import Map, Scale
from attnwidgets.figures.sheet import Beside, Sheet, Stack, Words
from attnwidgets.views.still.colours import map_colours

if TYPE_CHECKING:
    from attnwidgets.figures.theme import Theme

_EVERY = 24  # tokens with a name


def run_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of a RunView."""
    layer, head = view.options["layer"], view.options["head"]
    run = view.run
    trace = run.trace(view._text, view.step)  # noqa: SLF001 - a part of the view
    weights = np.asarray(trace.attention_rows(layer, [head], None), dtype=np.float64)[0]
    if trace.is_causal():
        weights = np.where(np.tri(*weights.shape) > 0, weights, np.nan)
    colours, norm = map_colours({"scale": "sqrt"}, theme, weights, signed=False, top=1.0)
    tokens = trace.axes()[0].tokens
    every = max(1, -(-len(tokens) // _EVERY))
    at = [float(place) for place in range(0, len(tokens), every)]
    names = tokens[::every]
    map_ = Map(weights, names, names, colours, norm, row_at=at, column_at=at, numbers=False)
    chosen = [name for name in ("behaviour", "pattern", "cause") if name == "pattern" or not view._why]  # noqa: SLF001
    curves = [view.curve(name) for name in chosen]
    chart = Lines(
        [Line(curve.name, curve.values) for curve in curves],
        run.steps,
        "step",
        marked=float(view.step),
    )
    words = [Words(curve.describe()) for curve in curves]
    title = str(view.options["title"]) or f"step {view.step:,} of {run.steps[-1]:,}, head {layer}.{head}"
    left, right = Stack([map_, Scale(colours, norm, "share of the row")]), Stack([chart, *words])
    return Sheet(title, [Beside(left, right, share=0.5)], view._why)  # noqa: SLF001
