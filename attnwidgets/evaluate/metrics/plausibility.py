"""Plausibility: whether an explanation names the evidence that people mark: token F1, IOU, AUPRC, recall."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.examples import rationale_elements
from attnwidgets.evaluate.examples.explained_input import as_list, explained, is_constant, require_one_each
from attnwidgets.evaluate.metrics.random_baseline import (
    DEFAULT,
    RandomBaseline,
    require_baseline,
    with_former,
)
from attnwidgets.evaluate.metrics.ranking import average_precision
from attnwidgets.evaluate.removals.ordering import BY, ranked
from attnwidgets.evaluate.scorecards.build import metric_names, scored_explanations
from attnwidgets.explanations.results.verbalise import runs
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.evaluate.arrays import Bools, Float
    from attnwidgets.evaluate.removals.ordering import By
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

PAPER = "DeYoung et al. 2020, ERASER: A Benchmark to Evaluate Rationalized NLP Models"
_HALF = 0.5


def recall(chosen: Bools, gold: Bools) -> float:
    """Return the share of gold elements that are chosen: |M and G| / |G|."""
    return float((chosen & gold).sum() / gold.sum())


def token_f1(chosen: Bools, gold: Bools) -> float:
    """Return the harmonic mean of precision and recall of elements: 2 |M and G| / (|M| + |G|)."""
    return float(2 * (chosen & gold).sum() / (chosen.sum() + gold.sum()))


def iou(chosen: Bools, gold: Bools) -> float:
    """Return intersection over union of elements: |M and G| / |M or G|."""
    return float((chosen & gold).sum() / (chosen | gold).sum())


def iou_f1(chosen: Bools, gold: Bools) -> float:
    """Return the F1 of spans: a run of chosen elements counts if its IOU with a gold run is half or more."""
    spans, gold_spans = runs(chosen), runs(gold)
    correct = sum(any(_overlap(span, other) >= _HALF for other in gold_spans) for span in spans)
    if not correct:
        return 0.0
    precision, covered = correct / len(spans), min(1.0, correct / len(gold_spans))
    return 2 * precision * covered / (precision + covered)


def auprc(values: Float, gold: Bools) -> float:
    """Return the area under the precision-recall curve, by trapezoids, from precision 1 at recall 0.

    Elements with equal values enter together, as in scikit-learn's curve and in ERASER. `average_precision`
    is the sum by steps instead.
    """
    order = np.argsort(-values, kind="stable")
    hits, sorted_values = np.cumsum(gold[order]), values[order]
    ends = np.flatnonzero(np.append(sorted_values[1:] != sorted_values[:-1], True))
    precision = np.concatenate([[1.0], hits[ends] / (ends + 1)])
    covered = np.concatenate([[0.0], hits[ends] / gold.sum()])
    return float(((precision[1:] + precision[:-1]) / 2 * np.diff(covered)).sum())


def _precision(values: Float, gold: Bools) -> float:
    return average_precision(values, np.flatnonzero(gold).tolist())


OF_CHOSEN: dict[str, Callable[[Bools, Bools], float]] = {
    "recall": recall,
    "token_f1": token_f1,
    "iou": iou,
    "iou_f1": iou_f1,
}
OF_RANKING: dict[str, Callable[[Float, Bools], float]] = {"auprc": auprc, "average_precision": _precision}
METRICS = (*OF_CHOSEN, *OF_RANKING)


@with_former
@forceable
@documented
def plausibility(
    traces: Any,
    explanations: Any,
    rationales: Any,
    target: Any = None,
    *,
    metrics: str | Sequence[str] = ("token_f1", "iou", "auprc", "recall"),
    k: int | None = None,
    by: By = "value",
    special: bool = False,
    baseline: RandomBaseline = DEFAULT,
    unit: str | None = None,
) -> Scorecard:
    """Measure whether explanations name the words that people name, without asking the model.

    With M the top k elements and G the gold ones: `recall`, `token_f1`, `iou` and `iou_f1` compare M with G;
    `auprc` and `average_precision` measure how high the whole ranking puts G. A high score says that the
    explanation looks right to people, not that the model reasons so.

    Args:
        traces: {traces}
        explanations: {explanations}
        rationales: A rationale for each trace: spans (start, stop) of characters, numbers of elements, or an
            object with such a `rationale` (`aw.demo_texts()`).
        target: The target that methods given by name explain; by default the model's prediction.
        metrics: One or several of these six.
        k: Size of M; by default the size of G, which makes precision, recall and F1 equal.
        by: {by}
        special: Count special tokens as elements.
        baseline: The draws of the baseline "random": an `aw.evaluate.RandomBaseline`.
        unit: {unit}
        force: {force}

    Returns:
        A Scorecard [metric, method, 1], 0 to 1. NaN, with the reason in `.warning`, if an explanation is
        constant or a text has no gold element.

    Raises:
        ValueError: If a metric is unknown, a rationale is not in its text, rationales and traces differ in
            number, or an explanation belongs to another input or unit.
        TypeError: If an explanation is a map, or no explanation at all, or `baseline` is not a
            RandomBaseline.

    Source: DeYoung et al. 2020, section 4 (F1 of tokens and of spans, AUPRC).

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> card = aw.evaluate.plausibility(trace, "saliency", [(2, 6)], unit="word")
        >>> card.metrics
        ('token_f1', 'iou', 'auprc', 'recall')
    """
    names = metric_names(metrics, METRICS)
    require_choice("by", by, BY)
    require_baseline(baseline)
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, not {k}.")
    inputs = explained(traces, explanations, target, "plausibility", unit)
    rationales = list(rationales) if isinstance(traces, (list, tuple)) else [rationales]
    require_one_each("rationales", rationales, as_list(traces))
    notes: dict[str, None] = {}
    samples = []
    for number, (item, rationale) in enumerate(zip(inputs, rationales, strict=True)):
        counted = np.flatnonzero([special or not is_special for is_special in item.unit.special])
        gold = np.isin(counted, rationale_elements(item.trace, rationale, item.unit))
        rows: list[list[Float]] = [[values[counted]] for values in item.values.values()]
        rows += [baseline.values(number, len(counted)), [gold.astype(float)]]
        if not gold.any():
            notes["a text has no gold element"] = None
        for name, values in item.values.items():
            if is_constant(values[counted]):
                notes[f"{name} is constant on an input and ranks nothing there"] = None
        samples.append([[_mean(name, row, gold, k, by) for row in rows] for name in names])
    return scored_explanations(
        inputs,
        samples,
        "plausibility",
        metrics=names,
        notes=notes,
        paper=PAPER,
        options={"k": k, "by": by, "special": special, **asdict(baseline)},
    )


def _mean(name: str, rows: Sequence[Float], gold: Bools, k: int | None, by: str) -> float:
    """Return the mean score of vectors of values; NaN without gold elements or without a ranking."""
    if not gold.any() or (is_constant(rows[0]) and not gold.all()):
        return float("nan")
    if name in OF_RANKING:
        sizes = [np.abs(values) if by == "magnitude" else values for values in rows]
        return float(np.mean([OF_RANKING[name](values, gold) for values in sizes]))
    count = min(int(gold.sum()) if k is None else k, len(gold))
    every = np.arange(len(gold))
    chosen = [np.isin(every, ranked(values, every, by=by)[:count]) for values in rows]
    return float(np.mean([OF_CHOSEN[name](top, gold) for top in chosen]))


def _overlap(span: tuple[int, int], other: tuple[int, int]) -> float:
    both = max(0, min(span[1], other[1]) - max(span[0], other[0]))
    return both / (span[1] - span[0] + other[1] - other[0] - both)
