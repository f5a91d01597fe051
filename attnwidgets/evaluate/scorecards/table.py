"""A scorecard as an HTML table, legible in light and dark notebooks; and whether high or low is better."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.html_tables import LINE, cell, table, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

DIRECTIONS: dict[str, tuple[str, str]] = {
    "comprehensiveness": ("higher", "the prediction falls without the important elements"),
    "sufficiency": ("lower", "the important elements alone keep the prediction"),
    "log_odds": ("lower", "the prediction falls without the important elements"),
    "deletion": ("lower", "the prediction falls early as the important elements go"),
    "insertion": ("higher", "the prediction returns early with the important elements"),
    "abpc": ("higher", "what matters to the prediction goes first, and what does not goes last"),
    "pointing_game": ("higher", "the highest value lies on what the mask marks"),
    "energy_in_mask": ("higher", "the values lie on what the mask marks"),
    "pixel_accuracy": ("higher", "what is above the mean is what the mask marks"),
    "mean_iou": ("higher", "what is above the mean is what the mask marks"),
    "mean_ap": ("higher", "values rank first what the mask marks"),
    "fidelity_plus": ("higher", "the decision changes without the important elements"),
    "fidelity_minus": ("lower", "the important elements alone keep the decision"),
    "characterization": ("higher", "the important elements are both needed and enough"),
    "non_sensitivity": ("lower", "elements have a value if and only if they have an effect"),
    "monotonicity": ("higher", "larger values go with larger effects"),
    "loss_monotonicity": ("higher", "larger values go with larger effects"),
    "leave_one_out_tau": ("higher", "elements rank as their single removals do"),
    "recall": ("higher", "it finds more of what people marked"),
    "recall_of_truth": ("higher", "it finds more of what is known to decide"),
    "token_f1": ("higher", "it names what people marked, and little else"),
    "iou": ("higher", "it overlaps with what people marked"),
    "iou_f1": ("higher", "it overlaps with what people marked"),
    "auprc": ("higher", "it ranks first what people marked"),
    "average_precision": ("higher", "the elements that should lead rank first"),
    "infidelity": ("lower", "values add up to what the score loses"),
    "max_sensitivity": ("lower", "the explanation is stable under noise"),
    "average_sensitivity": ("lower", "the explanation is stable under noise"),
    "local_lipschitz": ("lower", "the explanation is stable under noise"),
    "consistency": ("higher", "other seeds give the same explanation"),
    "distance": ("lower", "a model that computes the same gets the same explanation"),
    "effective_complexity": ("lower", "few elements are enough"),
    "relative_loss": ("higher", "performance falls without the important elements"),
    "control": ("lower", "the probe learns less by heart"),
    "selectivity": ("higher", "states tell more than the probe learns by heart"),
    "compression": ("higher", "the labels are read from few examples"),
    "dot_product": ("higher", "more of the context is found in the cues"),
}
"""By a metric's name: "higher" or "lower", whichever is better, and its meaning. Shown in views."""

_OF_FUNCTION: dict[tuple[str, str], str] = {
    # Not "better": a layer from which more can be read is not a better layer.
    ("probe", "accuracy"): "higher: more can be read; compare the baselines",
    ("probe", "accuracy_seen"): "higher: more is read, or learnt by heart: see control",
    ("remove_and_retrain", "accuracy"): "lower is better: training lacks the important elements",
    ("mislabelled", "average_precision"): "higher is better: wrong labels rank first",
    ("mislabelled", "recall"): "higher is better: more of the first have wrong labels",
}
"""By a function of `aw.evaluate` or `aw.concepts` and the metric, where the name alone says too little."""


def html_of(card: Scorecard) -> str:
    """Return a table per metric: a row per method, a column per layer, baselines below a line."""
    head = [
        f"{text(str(label))}{f'<br><small>{text(note)}</small>' if note else ''}"
        for label, note in zip(card.x, card.x_notes, strict=True)
    ]
    has_intervals = not np.isnan(card.interval[0]).all()
    ends = f"; a cell's tooltip has its {card.level:.0%} interval" if has_intervals else ""
    notes = [card.title.replace("_", " "), str(card.provenance.get("model") or ""), f"{card.examples}{ends}"]
    last = len(card.metrics) - 1
    return "".join(
        table(
            [f"<b>{text(name.replace('_', ' '))}</b> by {text(card.x_name)}", *head],
            _rows(card, [(metric, x) for x in range(len(card.x))]),
            [" · ".join(filter(None, (*notes, card.warning)))] if metric == last else [],
        )
        for metric, name in enumerate(card.metrics)
    )


def summary_html(card: Scorecard) -> str:
    """Return a table of a scorecard with single numbers: a row per method, a column per metric."""
    head = ["", *(text(name.replace("_", " ")) for name in card.metrics)]
    rows = _rows(card, [(metric, 0) for metric in range(len(card.metrics))])
    notes = [str(card.provenance.get("model") or ""), f"{card.n_scored:,} texts", card.warning]
    return table(head, rows, [" · ".join(filter(None, notes))])


def _rows(card: Scorecard, columns: Sequence[tuple[int, int]]) -> Iterator[list[str]]:
    """Yield the cells of each method.

    Args:
        card: The scores.
        columns: The metric and the index on the last axis of every column.
    """
    tops = [scale_of(card, metric) for metric in range(len(card.metrics))]
    rows = order_of(card)
    for index, row in enumerate(rows):
        first = row_is_baseline(card, row) and index and not row_is_baseline(card, rows[index - 1])
        style = LINE if first else ""
        scores = [_score(card, (metric, row, x), tops[metric], style) for metric, x in columns]
        yield [cell(card.row_name(row), header=True, style=f"{style};white-space:nowrap", limit=60), *scores]


def _score(card: Scorecard, at: tuple[int, int, int], top: float, style: str) -> str:
    mean, low, high = (float(part[at]) for part in (card.mean, *card.interval))
    if np.isnan(mean):
        return cell("–", style=style, title="undefined")
    interval = "" if np.isnan(low) else f" ({low:.4f} to {high:.4f}), {int(card.count[at]):,} examples"
    return cell(f"{mean:.2f}", tint=max(mean / top, 0.0), title=f"{mean:.4f}{interval}", style=style)


def row_is_baseline(card: Scorecard, row: int) -> bool:
    """Return whether a row is a baseline."""
    return card.methods[row] in card.baselines


def order_of(card: Scorecard) -> list[int]:
    """Return the rows in display order: a method's groups together, baselines last."""
    names = list(dict.fromkeys(card.methods))
    return sorted(
        range(len(card.methods)), key=lambda row: (row_is_baseline(card, row), names.index(card.methods[row]))
    )


def scale_of(card: Scorecard, metric: int) -> float:
    """Return the value of the strongest colour: the largest that any method reaches, without baselines."""
    rows = [row for row in range(len(card.methods)) if not row_is_baseline(card, row)]
    shown = card.mean[metric][rows or list(range(len(card.methods)))]
    largest = float(np.nanmax(shown, initial=0.0)) if not np.isnan(shown).all() else 0.0
    return largest or 1.0


def direction_of(metric: str, function: str = "") -> str:
    """Return whether high or low values of a metric are better, in words; a neutral text without a direction.

    Args:
        metric: Its name.
        function: Name of the function that measured it.
    """
    if (function, metric) in _OF_FUNCTION:
        return _OF_FUNCTION[function, metric]
    direction = DIRECTIONS.get(metric) or next(
        (text for name, text in DIRECTIONS.items() if metric.startswith((f"{name}_", f"{name} "))), None
    )
    return (
        f"{direction[0]} is better: {direction[1]}"
        if direction
        else "neither high nor low is better by itself"
    )
