"""Figures of SAE features: a text, a table, and the card of a feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.figures.parts.lines import Line, Lines
from attnwidgets.figures.parts.matrix import Scale
from attnwidgets.figures.parts.numbers import Bar, Bars, Table
from attnwidgets.figures.parts.text import Text
from attnwidgets.figures.sheet import Beside, Sheet, Words
from attnwidgets.views.still.colours import strip_colours

if TYPE_CHECKING:
    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme
    from attnwidgets.sae.corpus_statistics.summary import FeatureSummary

_LISTED = 20
_CONTEXTS = 5
_TOKENS = 6


def strip_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of a FeatureStrip: the text coloured by the selected feature, and its features."""
    return Sheet(_title(view), [*_text(view, theme), *_table(view), *_card(view, theme)])


def table_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of a FeatureTable: the features that fire most."""
    title = str(view.options["title"]) or "features"
    text = _text(view, theme)
    return Sheet(title, [*text, *_table(view)])


def panel_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of a FeaturePanel: the card of the selected feature."""
    card = _card(view, theme)
    return Sheet(_title(view), card or [*_text(view, theme), *_table(view)])


def _sae(view: Any) -> Any:
    """Return the SAE that a view shows: the nearest to the selected layer, or the first."""
    saes = view._features.saes  # noqa: SLF001 - a part of the view
    layers = [sae.describe()["layer"] for sae in saes]
    numbered = [i for i, layer in enumerate(layers) if isinstance(layer, int)]
    return saes[min(numbered, key=lambda i: abs(layers[i] - view.selection.layer))] if numbered else saes[0]


def _feature(view: Any) -> int:
    chosen = view.selection.feature
    number: int = view._features.first if chosen is None else int(chosen)  # noqa: SLF001
    return number


def _name(sae: Any, number: int) -> str:
    return "" if sae.stats is None else str(sae.stats.names.get(number, ""))


def _title(view: Any) -> str:
    number = _feature(view)
    return str(view.options["title"]) or ": ".join(
        filter(None, (f"feature {number}", _name(_sae(view), number)))
    )


def _text(view: Any, theme: Theme) -> list[Part]:
    """Return the text coloured by the selected feature; nothing for features of a corpus."""
    activations, number = _sae(view).activations, _feature(view)
    if activations is None or number >= activations.d_sae:
        return []
    values = np.asarray(activations.feature(number).values, dtype=np.float64)
    colours, norm = strip_colours({}, theme, values, signed=False)
    return [
        Text(values[None], activations.labels, colours, norm),
        Scale(colours, norm, f"activation of feature {number}"),
    ]


def _table(view: Any) -> list[Part]:
    sae, number = _sae(view), _feature(view)
    columns: dict[str, list[Any]]
    if sae.activations is not None:
        fired = sae.activations.ranked(_LISTED)
        chosen = [item.feature for item in fired]
        columns = {"largest activation": [float(item.activation) for item in fired]}
    else:
        stats = sae.stats
        rows = {feature: i for i, feature in enumerate(stats.features)}
        tokens = stats.strongest_tokens()
        chosen = [feature for feature in sae.ranked() if feature in rows][:_LISTED]
        columns = {
            "density": [float(stats.density[rows[feature]]) for feature in chosen],
            "largest activation": [float(stats.maxima[feature]) for feature in chosen],
            "fires most on": [tokens[rows[feature]] for feature in chosen],
        }
    if not chosen:
        return [Words("no feature fires")]
    names = [_name(sae, feature) for feature in chosen]
    columns = {"feature": [str(n) for n in chosen], **({"name": names} if any(names) else {}), **columns}
    bold = chosen.index(number) if number in chosen else None
    return [Table(tuple(columns), list(zip(*columns.values(), strict=True)), bold)]


def _card(view: Any, theme: Theme) -> list[Part]:
    """Return the statistics of the selected feature over a corpus; [] without statistics."""
    sae, number = _sae(view), _feature(view)
    if sae.stats is None or number not in set(sae.stats.features):
        return []
    summary: FeatureSummary = sae.stats.feature(number)
    parts: list[Part] = [
        Words(
            f"fires on {summary.density:.3%} of tokens, up to {summary.maximum:.3g}, "
            f"{summary.mean:.3g} on average"
        )
    ]
    if len(summary.histogram):
        middles = [(a + b) / 2 for a, b in zip(summary.edges, summary.edges[1:], strict=False)]
        counts = np.asarray(summary.histogram, dtype=float)
        parts.append(Lines([Line("tokens", counts)], middles, "activation", "tokens", tall=1.0))
    for example in summary.top[:_CONTEXTS]:
        values = np.asarray(example.activations, dtype=np.float64)
        colours, norm = strip_colours({}, theme, values, signed=False, top=summary.maximum or None)
        parts.append(Text(values[None], example.tokens, colours, norm, outlined=[example.at]))
    effects = [
        Bars([Bar(item.token, item.effect) for item in side[:_TOKENS]], title=title, form="{:.3g}")
        for side, title in ((summary.promoted, "raises"), (summary.suppressed, "lowers"))
        if side
    ]
    both = len(effects) > 1
    return [*parts, Beside(effects[0], effects[1], 0.5)] if both else [*parts, *effects]
