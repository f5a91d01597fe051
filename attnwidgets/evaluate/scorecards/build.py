"""Make a scorecard of a metric's scores, with their model, options and paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.evaluate.scorecards.bootstrap import bootstrap_of
from attnwidgets.evaluate.scorecards.scorecard import Scorecard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.examples.explained_input import ExplainedInput

RANDOM, ORACLE = "random", "oracle"
"""The baselines of most metrics."""


def metric_names(metrics: str | Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the names of one or several metrics.

    Raises:
        ValueError: If one is unknown; the message suggests the nearest.
    """
    names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in names:
        require_choice("metrics", name, known)
    return names


def scored(
    samples: Any,
    function: str,
    *,
    model: str,
    options: Mapping[str, Any],
    title: str = "",
    paper: str = "",
    fingerprint: str = "",
    notes: Iterable[str] = (),
    steps: Sequence[str] = (),
    x: Sequence[Any] = ("score",),
    x_name: str = "score",
    **labels: Any,
) -> Scorecard:
    """Return a scorecard of scores.

    Args:
        samples: The scores [example, metric, method, x].
        function: The function of `aw.evaluate` that was called.
        model: The model's id.
        options: The options of `function`.
        title: Title of the table; by default the function's name.
        paper: Where the metrics were published.
        fingerprint: A hash of the content of model and tokenizer; scores merge only if it is equal.
        notes: Notes for the reader, each shown once; empty ones are left out.
        steps: Departures from the paper.
        x: Labels of the last axis; by default every method has one score.
        x_name: Name of that axis.
        **labels: `metrics`, `methods` and other arguments of `Scorecard`.
    """
    provenance = {
        "title": title or function.replace("_", " "),
        "model": model,
        **({"paper": paper} if paper else {}),
        **({"fingerprint": fingerprint} if fingerprint else {}),
        "options": dict(options),
        "steps": list(steps),
    }
    warning = "; ".join(dict.fromkeys(filter(None, notes)))
    return Scorecard(
        samples, method=function, provenance=provenance, warning=warning, x=x, x_name=x_name, **labels
    )


def scored_explanations(
    inputs: Sequence[ExplainedInput],
    samples: Any,
    function: str,
    *,
    baselines: Sequence[str] = (RANDOM, ORACLE),
    notes: Iterable[str] = (),
    undefined: str = "",
    **rest: Any,
) -> Scorecard:
    """Return a scorecard of explanations, baselines last.

    Args:
        inputs: The inputs with their explanations.
        samples: The scores [example, metric, method and then baseline, x or none].
        function: The function of `aw.evaluate` that was called.
        baselines: Names of the baselines.
        notes: Notes for the reader.
        undefined: Another note, for scores that are NaN.
        **rest: Other arguments of `scored`.
    """
    first = inputs[0]
    array = np.asarray(samples, dtype=np.float64)
    array = array if array.ndim == 4 else array[..., None]  # noqa: PLR2004 - one score has no last axis
    return scored(
        array,
        function,
        model=first.trace.model_id,
        methods=[*first.values, *baselines],
        baselines=baselines,
        unit=first.unit.name,
        notes=[*notes, undefined if np.isnan(array[:, :, : len(first.values)]).any() else ""],
        **rest,
    )


def of_means(
    card: Scorecard, statistic: Callable[[Float], Float], *, metrics: Sequence[str], step: str = ""
) -> Scorecard:
    """Return a scorecard of a function of the means over examples, with intervals from resampled examples.

    Args:
        card: The scores of the examples.
        statistic: Takes means [draw, metric, ...] and returns [draw, new metric, ...].
        metrics: Names of the new metrics.
        step: What was done, in words.
    """
    ends = bootstrap_of(statistic, card.samples, level=card.level, resamples=card.resamples, seed=card.seed)
    return card.with_samples(statistic(card.mean[None]), step=step, metrics=metrics, ends=np.stack(ends))
