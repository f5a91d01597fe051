"""What a metric found, as a scorecard that says of which methods, of which model, and from which paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.evaluate.scorecards.scorecard import Scorecard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from attnwidgets.evaluate.examples.explained_input import ExplainedInput

RANDOM, ORACLE = "random", "oracle"


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
    """Return scores with where they come from.

    Args:
        samples: The scores [example, metric, method, x].
        function: The function of `aw.evaluate` that asked.
        model: The id of the model that was asked.
        options: What `function` was called with.
        title: What the table is called; the function's name by default.
        paper: Where the metrics were published.
        fingerprint: A hash of the content of model and tokenizer, by which scores may be merged.
        notes: What a reader must know, each once; empty ones are left out.
        steps: What was done otherwise than in the paper.
        x: What the last axis stands for; by default every method has one score.
        x_name: What that axis is called.
        labels: `metrics`, `methods` and what else `Scorecard` takes.
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
    **rest: Any,
) -> Scorecard:
    """Return what explanations scored, chance and an oracle below them; the rest is as `scored` takes it."""
    first = inputs[0]
    return scored(
        samples,
        function,
        model=first.trace.model_id,
        methods=[*first.values, *baselines],
        baselines=baselines,
        unit=first.unit.name,
        **rest,
    )
