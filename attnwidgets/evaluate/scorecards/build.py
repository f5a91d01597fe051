"""Make a scorecard of scores, with model, options and paper; combine several, or take their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import listed
from attnwidgets.evaluate.scorecards.curves import bootstrap_of
from attnwidgets.evaluate.scorecards.scorecard import Scorecard, mean_of_known

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.examples.explained_input import ExplainedInput

RANDOM, ORACLE = "random", "oracle"
"""The baselines of most metrics."""

_SAME = 1e-12  # a mean of equal numbers may differ from them in its last digit


def metric_names(metrics: str | Sequence[str], available: Collection[str]) -> tuple[str, ...]:
    """Return the names of one or several metrics.

    Raises:
        ValueError: If a name is unknown; the message suggests the nearest.
    """
    names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in names:
        require_choice("metrics", name, available)
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
        x: Labels of the last axis; by default every method has a single score.
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
    array = array if array.ndim == 4 else array[..., None]  # noqa: PLR2004 - single scores have no last axis
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
        step: The transformation, in words.
    """
    ends = bootstrap_of(statistic, card.samples, level=card.level, resamples=card.resamples, seed=card.seed)
    return card.with_samples(statistic(card.mean[None]), step=step, metrics=metrics, ends=np.stack(ends))


def beside(cards: Mapping[str, Scorecard]) -> Scorecard:
    """Return scorecards of the same examples as groups of a scorecard: {"trained": a, "random weights": b}.

    A baseline with the same scores in all of them occurs once.

    Args:
        cards: Scorecards by the name of their group.

    Raises:
        ValueError: If `cards` is empty, they have groups already, or they differ in metrics, number of
            examples, or the last axis.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> def by(operator):
        ...     removal = aw.evaluate.Removal(operator, oracle=None)
        ...     return aw.evaluate.faithfulness(trace, "saliency", removal=removal)
        >>> card = aw.evaluate.beside({"masked": by("mask"), "deleted": by("delete")})
        >>> card.groups
        ('masked', 'masked', 'deleted', 'deleted')
    """
    first = _first(list(cards.values()))
    for group, card in cards.items():
        _require_alike(f"cards[{group!r}]", card, first, ("metrics", "x", "n_examples"))
        if any(card.groups):
            raise ValueError(f"cards[{group!r}] has groups already: {listed(dict.fromkeys(card.groups))}.")
    shared = [
        name
        for name in first.baselines
        if all(
            name in card.baselines
            and np.allclose(card.of(name), first.of(name), rtol=0, atol=_SAME, equal_nan=True)
            for card in cards.values()
        )
    ]
    rows = [(name, group) for group, card in cards.items() for name in card.methods if name not in shared]
    parts = [cards[group].of(name) for name, group in rows] + [first.of(name) for name in shared]
    rows += [(name, "") for name in shared]
    baselines = {name for card in cards.values() for name in card.baselines}
    return first.with_samples(
        np.stack(parts, axis=2),
        methods=[name for name, _ in rows],
        groups=[group for _, group in rows],
        baselines=[name for name in dict.fromkeys(name for name, _ in rows) if name in baselines],
        warning=warning_of(cards.values()),
    )


def averaged(cards: Sequence[Scorecard]) -> Scorecard:
    """Return the mean, example by example, of scorecards that differ in a draw: seeds of random weights.

    Args:
        cards: Scorecards of the same examples and methods.

    Raises:
        ValueError: If `cards` is empty, or they differ in labels or in the number of examples.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> def draw(seed):
        ...     removal = aw.evaluate.Removal("mask", seed=seed)
        ...     return aw.evaluate.faithfulness(trace, "saliency", removal=removal)
        >>> aw.evaluate.averaged([draw(0), draw(1)]).n_examples
        1
    """
    first = _first(cards)
    for number, card in enumerate(cards):
        _require_alike(f"cards[{number}]", card, first, ("metrics", "methods", "groups", "x", "n_examples"))
    samples = mean_of_known(np.stack([card.samples for card in cards]))
    return first.with_samples(samples, step=f"mean of {len(cards)} draws")


def merged(cards: Sequence[Scorecard]) -> Scorecard:
    """Return scorecards of different examples as a scorecard of all examples, in the order of `cards`.

    So independent tasks (an array job) may each `.save` theirs, and `aw.load` reads them.

    Args:
        cards: Scorecards of different examples, by the same methods and metrics.

    Raises:
        ValueError: If `cards` is empty, they differ in labels, options or model (its weights, not its name,
            if the scores record them), or they score a data set as a whole, without single examples.

    Example:
        >>> traces = aw.trace(*aw.demo_model("classifier"), ["A fine film.", "A dull story."])
        >>> cards = [aw.evaluate.faithfulness(trace, "saliency", operator="mask") for trace in traces]
        >>> aw.evaluate.merged(cards).n_examples
        2
    """
    first = _first(cards)
    for number, card in enumerate(cards):
        _require_alike(f"cards[{number}]", card, first, ("metrics", "methods", "groups", "x", "unit"))
        if _origin(card) != _origin(first):
            raise ValueError(
                f"cards[{number}] has another model or other options than the first; these do not merge."
            )
        if card.ends is not None:
            raise ValueError(f"cards[{number}] scores a data set as a whole; such scores do not merge.")
    samples = np.concatenate([card.samples for card in cards])
    provenance = dict(first.provenance)
    if "examples" in provenance.get("options", {}):
        provenance["options"] = provenance["options"] | {"examples": len(samples)}
    return first.with_samples(samples, provenance=provenance, warning=warning_of(cards))


def warning_of(cards: Iterable[Scorecard]) -> str:
    """Return the warnings of several scorecards, each once."""
    return "; ".join(dict.fromkeys(card.warning for card in cards if card.warning))


def _first(cards: Sequence[Scorecard]) -> Scorecard:
    if not cards:
        raise ValueError("cards is empty: give at least one scorecard.")
    return cards[0]


def _origin(card: Scorecard) -> dict[str, Any]:
    """Return where a scorecard comes from, apart from its number of examples."""
    options = {
        # as it is after saving and loading: a tuple as a list
        name: list(value) if isinstance(value, tuple) else value
        for name, value in card.provenance.get("options", {}).items()
        if name != "examples"
    }
    return {**card.provenance, "options": options}


def _require_alike(name: str, card: Scorecard, first: Scorecard, labels: Sequence[str]) -> None:
    """Raise ValueError if a scorecard differs from the first in some labels."""
    for label in labels:
        value, other = getattr(card, label), getattr(first, label)
        if value != other:
            raise ValueError(f"{name} has {label} {value!r}, the first has {other!r}: these do not compare.")
