"""What a figure of two texts consists of: both texts in colour, their difference, and the predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.figures.parts.bars import Bar, Bars
from attnwidgets.figures.parts.matrix import Scale
from attnwidgets.figures.parts.text import Text
from attnwidgets.figures.sheet import Beside, Sheet, Stack, Words
from attnwidgets.views.base.filters import APART, filter_words, filtered, stands_apart
from attnwidgets.views.presentation import Presentation
from attnwidgets.views.still.colours import strip_colours

if TYPE_CHECKING:
    from attnwidgets.explanations.results.aligned import Aligned
    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme

_MOST_BARS = 12
_MOST_OUTCOMES = 7


def two_texts_sheet(view: Any, theme: Theme) -> Sheet:
    """Return both texts under the selected method, the difference by columns, and both predictions."""
    pair, selection, filters = view._pair, view.selection, dict(view.options["filters"])  # noqa: SLF001
    state = Presentation.of(view)
    key, unit = state.source.method.removesuffix(":layers"), state.source.unit
    pinned = view._pinned_query()  # noqa: SLF001
    found, values, query = pair.rows(key, state.source.stack, unit, state.layer, state.head, pinned)
    keys = found.keys
    special = np.array([keys.special(number) for number in range(len(keys))], dtype=bool)
    is_apart = filters.get("special", APART) == APART
    content = ~stands_apart(special) if is_apart else np.ones_like(special)
    rows = filtered(values[:2], filters, special=special, shares=False)
    signed = bool((values[:2] < 0).any())
    scaled = np.where(content, rows, np.nan)
    colours, norm = strip_colours(filters, theme, scaled, signed=signed, top=None)
    names = view.options["names"]
    parts: list[Part] = []
    for side, name in enumerate(names):
        some = [number for number, column in enumerate(keys.columns) if column.of(side)]
        labels = [keys.label(number, side) for number in some]
        framed = [place for place, number in enumerate(some) if not keys.columns[number].same]
        parts.append(
            Text(scaled[side : side + 1, some], labels, colours, norm, names=[name], outlined=framed)
        )
    parts.append(Scale(colours, norm))
    difference = np.where(content, rows[0] - rows[1], np.nan)
    order = [
        number for number in np.argsort(-np.nan_to_num(np.abs(difference)), kind="stable") if content[number]
    ]
    bars = [
        Bar(_named(keys, number), float(difference[number]), bold=not keys.columns[number].same)
        for number in sorted(order[:_MOST_BARS])
    ]
    more = len(order) - len(bars)
    title = f"{names[0]} − {names[1]}" + (f", the {len(bars)} largest" if more > 0 else "")
    left: Part = Stack([Bars(bars, title=title), Words(_totals(found, values, unit))])
    outcomes = pair.predictions(
        selection.target and selection.target.id, selection.foil and selection.foil.id
    )
    if outcomes["rows"]:
        shown = [Bar(label, one, before=two) for _, label, one, two in outcomes["rows"][:_MOST_OUTCOMES]]
        heading = f"{outcomes['titles'][0]}: {names[1]} → {names[0]}"
        left = Beside(left, Bars(shown, top=None if pair.traces[0].answer.is_numbers else 1.0, title=heading))
    parts.append(left)
    about = _title(state, found.sides[0], query, found)
    left_out = filter_words(filters, shares=True)
    return Sheet(" · ".join(filter(None, (str(view.options["title"]) or about, left_out))), parts)


def _named(keys: Any, number: int) -> str:
    first, other = (keys.label(number, side) or "nothing" for side in (0, 1))
    return first if keys.columns[number].same else f"{first} − {other}"


def _totals(found: Any, values: Any, unit: str) -> str:
    """Return what the elements hold of the difference, and what none of them holds, in words."""
    total = float(values[2].sum())
    first, other = (getattr(one, "residual", None) for one in found.sides)
    if first is None or other is None:
        return f"{unit}s {total:+.3g}".replace("-", "−")
    rest = float(first - other)
    return f"{unit}s {total:+.3g}, no {unit} {rest:+.3g}, total {total + rest:+.3g}".replace("-", "−")


def _title(state: Presentation, first: Any, query: int | None, found: Aligned) -> str:
    name = str(first.provenance.get("title") or first.method).replace("_", " ")
    if isinstance(first, Attributions):
        contrast = f" rather than “{first.foil}”" if first.foil else ""
        return f"{name} for “{first.targets[0]}”{contrast}"
    base = state.view.options["indexBase"]
    where = f"layer {state.layer + base}"
    if state.head != "-":
        where += (
            f", head {state.head + base}" if isinstance(state.head, int) else f", {state.head} over heads"
        )
    read = "" if query is None else f" · the row of “{found.queries.label(query, 0)}”"
    return f"{name}, {where}{read}"
