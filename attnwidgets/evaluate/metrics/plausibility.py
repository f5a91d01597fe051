"""Does an explanation name what a person would? Token F1, IOU, AUPRC and recall against rationales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.evaluate.examples.explained_input import explained, is_constant
from attnwidgets.evaluate.examples.rationales import rationale_elements
from attnwidgets.evaluate.metrics.ranking import average_precision
from attnwidgets.evaluate.removals.ordering import ranked
from attnwidgets.evaluate.scorecards.build import scored_explanations
from attnwidgets.explanations.results.verbalise import runs
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    Float = NDArray[np.float64]
    Bools = NDArray[np.bool_]

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
    """Return the F1 of spans: a run of chosen elements is right that overlaps a gold run by half (IOU)."""
    spans, wanted = runs(chosen), runs(gold)
    right = sum(any(_overlap(span, one) >= _HALF for one in wanted) for span in spans)
    if not right:
        return 0.0
    precision, found = right / len(spans), min(1.0, right / len(wanted))
    return 2 * precision * found / (precision + found)


def auprc(values: Float, gold: Bools) -> float:
    """Return the area under the curve of precision over recall, by trapezoids, from precision 1 at recall 0.

    Elements with equal values enter together, as scikit-learn's curve has it and ERASER measures.
    `average_precision` is the sum by steps instead.
    """
    order = np.argsort(-values, kind="stable")
    hits, sorted_values = np.cumsum(gold[order]), values[order]
    ends = np.flatnonzero(np.append(sorted_values[1:] != sorted_values[:-1], True))
    precision = np.concatenate([[1.0], hits[ends] / (ends + 1)])
    found = np.concatenate([[0.0], hits[ends] / gold.sum()])
    return float(((precision[1:] + precision[:-1]) / 2 * np.diff(found)).sum())


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


@forceable
def plausibility(
    traces: Any,
    explanations: Any,
    rationales: Any,
    target: Any = None,
    *,
    metrics: str | Sequence[str] = ("token_f1", "iou", "auprc", "recall"),
    k: int | None = None,
    by: Literal["value", "magnitude"] = "value",
    special: bool = False,
    draws: int = 100,
    seed: int = 0,
    unit: str | None = None,
) -> Scorecard:
    """Whether explanations name the words that people name; the model is not asked.

    With M the top k elements and G the gold ones: `recall`, `token_f1`, `iou` and `iou_f1` compare M with G,
    `auprc` and `average_precision` ask how high the whole ranking puts G. A high score says that the
    explanation looks right to people, not that the model reasons so.

    Args:
        traces: What `aw.trace` returned, or a list of such traces.
        explanations: As `faithfulness` takes them.
        rationales: One for each trace: spans (start, stop) of characters, numbers of elements, or an object
            with a `rationale` of these (`aw.demo_texts()`).
        target: What methods given by name explain.
        metrics: One or several of these six.
        k: How many elements M has; by default as many as G, so that precision, recall and F1 are one.
        by: Rank by "value" or by "magnitude".
        special: Whether special tokens are elements.
        draws: How many random orders the row "random" is the mean of.
        seed: Of those draws.
        unit: What elements are; by default the unit of the explanations.

    Returns:
        A Scorecard [metric, method, 1], 0 to 1. NaN, with the reason in `.warning`, where an explanation is
        constant or a text has no gold element.

    Raises:
        ValueError: For an unknown metric; a rationale that is not in its text; as many rationales as traces
            are not given; an explanation of another input or unit.
        TypeError: Where an explanation is a map or nothing of the kind.

    Source: DeYoung et al. 2020, section 4 (F1 of tokens and of spans, AUPRC).
    """
    names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in names:
        if name not in METRICS:
            raise ValueError(f"metrics has {name!r}; there is {listed(METRICS)}.{suggest(name, METRICS)}")
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, not {k}.")
    inputs = explained(traces, explanations, target, "plausibility", unit)
    gold = list(rationales) if isinstance(traces, (list, tuple)) else [rationales]
    if len(gold) != len(inputs):
        raise ValueError(f"rationales has {len(gold)} for {len(inputs)} traces: give one for each.")
    notes: dict[str, None] = {}
    samples = []
    for number, (one, rationale) in enumerate(zip(inputs, gold, strict=True)):
        kept = np.array(
            [n for n, apart in enumerate(one.unit.special) if special or not apart], dtype=np.intp
        )
        wanted = np.isin(kept, rationale_elements(one.trace, rationale, one.unit))
        generator = np.random.default_rng([seed, number])
        rows: list[list[Float]] = [[values[kept]] for values in one.values.values()]
        rows += [[generator.random(len(kept)) for _ in range(draws)], [wanted.astype(float)]]
        if not wanted.any():
            notes["a text has no gold element"] = None
        for name, (values,) in zip(one.values, rows[: len(one.values)], strict=True):
            if is_constant(values):
                notes[f"{name} is constant on an input and ranks nothing there"] = None
        samples.append([[[_mean(name, row, wanted, k, by)] for row in rows] for name in names])
    return scored_explanations(
        inputs,
        np.array(samples),
        "plausibility",
        metrics=names,
        notes=notes,
        paper=PAPER,
        options={"k": k, "by": by, "special": special, "draws": draws, "seed": seed},
    )


def _mean(name: str, rows: Sequence[Float], gold: Bools, k: int | None, by: str) -> float:
    """Return the mean score of vectors of values; NaN where there is nothing to find or to rank by."""
    if not gold.any() or (is_constant(rows[0]) and not gold.all()):
        return float("nan")
    sizes = [np.abs(values) if by == "magnitude" else values for values in rows]
    if name in OF_RANKING:
        return float(np.mean([OF_RANKING[name](values, gold) for values in sizes]))
    count = min(int(gold.sum()) if k is None else k, len(gold))
    every = np.arange(len(gold))
    return float(
        np.mean(
            [OF_CHOSEN[name](np.isin(every, ranked(values, every, by=by)[:count]), gold) for values in sizes]
        )
    )


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> float:
    both = max(0, min(one[1], other[1]) - max(one[0], other[0]))
    return both / (one[1] - one[0] + other[1] - other[0] - both)
