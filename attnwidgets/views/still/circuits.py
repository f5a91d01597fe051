"""Figures and alternative texts of circuits: patching, lenses and claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.circuits.claims.report import spoken
from attnwidgets.figures.parts.lines import Line, Lines
from attnwidgets.figures.parts.matrix import Map, Scale
from attnwidgets.figures.parts.numbers import Bar, Bars, Table
from attnwidgets.figures.sheet import Beside, Sheet, Words
from attnwidgets.views.circuits.circuit_view import first_changed
from attnwidgets.views.still.colours import map_colours

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.circuits.lens_result import Lens
    from attnwidgets.circuits.patching import Patching, RankedCell
    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme

SITES = {"state": "state", "attention": "attention", "mlp": "MLP", "head": "heads"}
_LISTED = 5
_LABEL = (34, 8)  # hundredths of a map's width that the name of a token, or of a head, takes
_EVERY = 5  # layers with a number
_ROW = 0.11  # inches of a layer
_ROWS = 24  # of a lens; further layers are folded


def claim_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of a ClaimView: the verdict, the head next to its controls, the texts against it."""
    del theme
    result, report = view.result(), view._report  # noqa: SLF001 - a part of the view
    first = Words(
        f"{result.verdict}: {result.unit} {result.mean:.2f} {spoken(result.interval)}, "
        f"margin {report.margin:g}; "
        f"{result.below(report.margin)} of {len(result.texts)} texts are below it",
        quiet=False,
        bold=True,
    )
    bars = [Bar(result.claim.split(" ")[0] + " " + result.claim.split(" ")[1], result.mean, bold=True)]
    for name, heads in result.heads.items():
        means = [mean for _, _, mean in heads]
        if means:
            bars.append(Bar(f"{len(means)} {name}, mean", float(np.mean(means)), quiet=True))
            best = max(heads, key=lambda head: head[2])
            bars.append(Bar(f"highest: {best[0]}.{best[1]}", best[2], quiet=True))
    bars += [Bar(name, value, quiet=True) for name, value in result.baselines.items() if not np.isnan(value)]
    rows = [
        (f"{text.text} / {text.corrupt}" if text.corrupt else text.text, text.value, text.control)
        for text in result.worst(_LISTED)
    ]
    parts: list[Part] = [
        first,
        Bars(bars, title=result.unit),
        Words("texts that speak most against it"),
        Table(("text", "head", "control"), rows),
    ]
    note = f"{len(result.texts)} of {result.given} texts"
    note += "".join(f"; {count} left out: {why}" for why, count in result.left_out)
    return Sheet(str(view.options["title"]) or result.claim, parts, note)


def patching_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of a PatchView: both texts, the maps with the chosen cells, and the first heads."""
    patching = view.patching()
    base = view.options["indexBase"]
    chosen = [tuple(cell) for cell in view.options["cells"]]
    shares = {site: view_shares(patching, site) for site in patching.sites}
    every = np.concatenate([values.reshape(-1) for values in shares.values()])
    colours, norm = map_colours({}, theme, np.nan_to_num(every), signed=True, top=1.0)
    maps: list[Part] = [
        _site_map(patching, site, values, chosen, base, (colours, norm), is_first=number == 0)
        for number, (site, values) in enumerate(shares.items())
    ]
    target = " − ".join(_word(name) for name in (patching.target, patching.foil) if name is not None)
    words = [
        Words(f"{name}: {' '.join(map(_word, tokens))}   ({target} {score:+.2f})")
        for name, tokens, score in (
            ("clean", patching.clean_tokens, patching.clean),
            ("corrupt", patching.corrupt_tokens, patching.corrupt),
        )
    ]
    parts: list[Part] = [*words, _beside(maps), Scale(colours, norm, "share of the difference")]
    best = patching.top("head" if "head" in patching.sites else None, _LISTED)
    bars = [Bar(place_words(cell, patching, base), cell.share) for cell in best]
    if bars:
        title = "top heads" if "head" in patching.sites else "top places"
        parts.append(Bars(bars, title=f"{title}, {patching.direction}"))
    title = str(view.options["title"]) or patching.title
    return Sheet(title, parts, patching.warning)


def view_shares(patching: Patching, site: str) -> NDArray[np.float64]:
    """Return the shares of a site [layer, token or head]; without a gap, the raw numbers."""
    raw = np.asarray(patching.raw[site], dtype=np.float64)
    return raw if np.isnan(patching.gap) else raw / patching.gap


def _site_map(
    patching: Patching,
    site: str,
    values: NDArray[np.float64],
    chosen: list[tuple[Any, ...]],
    base: int,
    look: tuple[Any, Any],
    *,
    is_first: bool,
) -> Map:
    first = 0 if site == "head" else first_changed(patching)
    if site == "head":
        columns = [str(head + base) for head in range(values.shape[1])]
    else:
        columns = [_word(label) for label in patching.clean_tokens[first:]]
    every = max(1, -(-len(columns) * _LABEL[site == "head"] // 100))
    index = 3 if site == "head" else 2
    outlines = [
        (cell[1], cell[index] - first) for cell in chosen if cell[0] == site and cell[index] is not None
    ]
    layers = range(0, len(values), _EVERY)
    return Map(
        values[:, first:],
        [str(layer + base) for layer in layers] if is_first else ["" for _ in layers],
        columns[::every],
        *look,
        outlines=[(row, column) for row, column in outlines if column >= 0],
        axis_names=("layer" if is_first else "", SITES[site]),
        row_at=[float(layer) for layer in layers],
        column_at=[float(at) for at in range(0, len(columns), every)],
        cell=0.2 if site == "head" else 0.5,
        square=False,
        tall=_ROW,
    )


def _word(label: str) -> str:
    """Return a token without the space that belongs to its beginning, as `word` of words.ts does."""
    return label.lstrip(" ␣▁") or label


def _beside(maps: list[Part]) -> Part:
    """Return maps next to each other, all equally wide."""
    first, *rest = maps
    return Beside(first, _beside(rest), share=1 / len(maps), least=0.5) if rest else first


def place_words(cell: RankedCell, patching: Patching, base: int) -> str:
    """Return the name of a patched cell: "23.4", "state 10 at France"."""
    if cell.head is not None:
        return f"{cell.layer + base}{'-' if base else '.'}{cell.head + base}"
    token = "" if cell.token is None else f" at {patching.clean_tokens[cell.token]}"
    return f"{SITES[cell.site]} {cell.layer + base}{token}"


def patching_words(patching: Patching) -> str:
    """Return the direction of patching and the cells with the largest shares, in words."""
    foil = "" if patching.foil is None else f" rather than {patching.foil}"
    way = "clean into corrupt" if patching.direction == "denoise" else "corrupt into clean"
    start = (
        f"Patching ({patching.direction}, {way}): {patching.target}{foil}, "
        f"{patching.corrupt:.2f} corrupt to {patching.clean:.2f} clean."
    )
    result = []
    for site in patching.sites:
        best = patching.top(site, 1)
        if best:
            name = (
                f"head {place_words(best[0], patching, 0)}"
                if site == "head"
                else place_words(best[0], patching, 0)
            )
            result.append(f"{name} {best[0].share:.2f}")
    if patching.estimate:
        start += (
            f" Estimated; correlation {patching.agreement:.2f} on {len(patching.checked)} checked places."
        )
    return f"{start} Largest shares: {', '.join(result)}." if result else f"{start} Shares are undefined."


def folded(count: int, ranks: NDArray[np.integer], most: int = _ROWS) -> list[int]:
    """Return the rows of a lens that are shown: all if they fit, else fewer of those before the answer rises.

    The twin of `rowsShown` in lens/rows.ts.
    """
    if count <= most:
        return list(range(count))
    below = [row for row in range(count) if ranks[row] > 0]
    rise = min((below[-1] + 1) if below else 0, count - 1)
    for step in range(2, count + 1):
        rows = [row for row in range(count) if row % step == 0 or row >= rise]
        if len(rows) <= most:
            return rows
        rows = sorted({*range(0, count, step), count - 1})
        if len(rows) <= most:
            return rows
    return [count - 1]


def lens_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of a LensView: the most probable tokens in colour, and the rank of the answer."""
    lens, measure = view._current(), view.options["color"]  # noqa: SLF001 - a part of the view
    base, (row, token) = view.options["indexBase"], view.options["cell"]
    rows = folded(lens.shape[0], lens.rank[:, token])
    values = np.asarray(getattr(lens, measure), dtype=np.float64)[rows]
    shown = np.log10(values + 1) if measure == "rank" else values
    top = 1.0 if measure == "probability" else None
    colours, norm = map_colours({}, theme, shown, signed=False, top=top)
    texts = [[_word(cell[0].label) for cell in lens.top_tokens(1, layer=[at])[0]] for at in rows]
    outlined = [(rows.index(row), token)] if row in rows else []
    names = {"probability": f"probability of {lens.answer}", "rank": f"rank of {lens.answer} (log10)"}
    names |= {"entropy": "entropy (nats)", "kl": "KL(model || lens) (nats)"}
    every = max(1, -(-lens.shape[1] // 10))
    table = Map(
        shown,
        [str(at + base) if at < lens.shape[0] - 1 else "output" for at in rows],
        [_word(label) for label in lens.tokens[::every]],
        colours,
        norm,
        outlines=outlined,
        axis_names=("layer", ""),
        column_at=[float(at) for at in range(0, lens.shape[1], every)],
        cell=0.8,
        square=False,
        tall=0.16,
        texts=texts,
    )
    layers = list(range(lens.shape[0]))
    line = Line(f"{lens.answer} at {lens.tokens[token]}", np.log10(lens.rank[:, token] + 1))
    chart = Lines([line], layers, "layer", "log10 of rank + 1", marked=float(row), tall=1.4)
    title = str(view.options["title"]) or lens.title
    return Sheet(title, [table, Scale(colours, norm, names[measure]), chart], lens.warning)


def lens_words(lens: Lens, token: int) -> str:
    """Return from which layer on the answer is the most probable token, in words."""
    ranks, last = lens.rank[:, token], lens.shape[0] - 1
    name = lens.tokens[token]
    p = float(lens.probability[last, token])
    end = f"rank {int(ranks[0]) + 1} at layer 0, probability {p:.2f} in the output"
    if ranks[last] > 0:
        (best,) = lens.top_tokens(1, layer=[last], token=[token])[0][0]
        return f"{lens.title}, at {name}: {best.label} is predicted, and {lens.answer} nowhere first ({end})."
    below = [row for row in range(last + 1) if ranks[row] > 0]
    since = below[-1] + 1 if below else 0
    where = "only in the output" if since == last else f"from layer {since} on"
    return f"{lens.title}, at {name}: {lens.answer} is the most probable token {where} ({end})."
