"""LIME: a linear model, fitted by weighted least squares, of the answers to texts without some words.

Ribeiro et al. 2016, "Why Should I Trust You?": Explaining the Predictions of Any Classifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import listed
from attnwidgets.evaluate.removals.removal import ElementRemoval, Operator, refusals
from attnwidgets.explanations.attribution.embedding_gradients import embedding_stack
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from attnwidgets.evaluate.arrays import Bools, Float
    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.explanations.targets.target_set import TargetSet
    from attnwidgets.tracing.text.units import TokenAxis
    from attnwidgets.tracing.trace import Trace

PAPER = 'Ribeiro et al. 2016, "Why Should I Trust You?": Explaining the Predictions of Any Classifier'
# Below this share of the variance a linear model fits poorly, and the result warns of it.
_POOR = 0.5
_FEW = 2  # words from which on words are removed rather than tokens
_MANY = 20  # elements of which all subsets are never counted


@method(
    "lime",
    question="By perturbing",
    gist="a linear model of what the model says without words",
    paper=PAPER,
    needs=("model", "target", "own tokens"),
    returns="Attributions [source], with the linear model's fidelity",
    cost="one pass for every sample, in batches",
    speed="seconds",
)
def lime(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    operator: Operator | None = None,
    samples: int = 500,
    kernel_width: float = 0.25,
    ridge: float = 1.0,
    seed: int = 0,
    batch_size: int = 32,
    unit: str | None = None,
    stack: str | None = None,
) -> Attributions:
    """The weight of each word in a linear model of the answers around the input.

    Words are removed at random: first how many, from one to all, then which. The target's value f(z) for each
    variant z (1 where a word stays, 0 where it is removed) is approximated by b + w . z, by least squares
    in which a variant counts

        exp(-d^2 / (2 kernel_width^2)),    d = 1 - cos(z, 1) = 1 - sqrt(share of words that stay),

    with a penalty of ridge * |w|^2. The weights w are the result. Where there are no more than `samples`
    variants, the model runs each once, and it counts as often as it would be drawn, so that nothing is left
    to chance.

    How well the linear model does is `provenance["fidelity"]`: its weighted R^2, 1 if words simply add up.
    Where that is low, words interact, and no list of weights describes the model.

    Args:
        trace: {trace}
        target: {target} A list of targets gives [target, source].
        foil: {foil}
        operator: How words are removed: "delete", "mask", "pad", "zero", "mean" or "attention_mask", see
            `aw.evaluate.OPERATORS`, or an operator on pictures and sound. None: the first that is possible;
            "delete", as the authors do, unless the target would move.
        samples: Number of variants.
        kernel_width: Width of the exponential kernel; 0.25 equals LIME's default 25 on cosine distance times
            100.
        ridge: Penalty of large weights, as in the authors' code; 0 leaves them as they fit best. The mean is
            not penalised.
        seed: Seed of the variants.
        batch_size: {batch_size}
        unit: The unit that is removed as a whole: "word" by default ("token" for a single word; "patch" or
            "frame" of pictures and sound).
        stack: {stack}

    Returns:
        Attributions [source], or [target, source], signed, by `unit`; 0 for elements never removed (special
        tokens, and a mask at which the target is read). `.provenance` also holds "intercept", and
        "variants", the number of distinct variants that the model ran.

    Raises:
        ValueError: If the operator, unit or stack is unknown or impossible here, an option out of range, or
            nothing can be removed; if the target must be named; if a single input is too long for the memory.
        TypeError, IndexError: {no_target}

    Source: Ribeiro et al. 2016, section 3.4, and the text explainer of their code. They explain
    probabilities; here a class or token means its logit, as for all methods.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> weights = aw.lime(trace, samples=100)
        >>> weights.labels[int(weights.values.argmax())], weights.provenance["fidelity"] > 0.5
        ('pleasure', True)
    """
    _require_options(samples, kernel_width, ridge, batch_size)
    targets = resolve_target_set(trace, target, foil, "lime")
    stack = embedding_stack(trace, stack)
    axis = trace.axes(stack)[0]
    if unit is not None:
        require_choice("unit", unit, tuple(axis.units))
    members = (*targets.targets, *(targets.foils or ()))
    how = operator or _first_possible(trace, members, stack)
    for name in (unit,) if unit is not None else _default_units(axis):
        removals = [
            ElementRemoval(trace, axis.units[name], stack, member, cast("Operator", how))
            for member in members
        ]
        features = removals[0].features()
        for removal in removals[1:]:
            features = np.intersect1d(features, removal.features())
        if len(features) >= _FEW:
            break
    if not len(features):
        raise ValueError(
            f"lime: no {name} of this input can be removed: all are special, or the target is read there."
        )
    present, counts = variants(len(features), samples, seed)
    answers = _answers(removals, features, present, batch_size)
    fits = [
        fitted(present, values, counts * proximity(present, kernel_width), ridge)
        for values in _contrasts(answers, targets)
    ]
    rows = np.zeros((len(fits), len(axis.units[name])))
    for row, fit in zip(rows, fits, strict=True):
        row[features] = fit.weights
    common = provenance_of(
        trace,
        stack,
        "lime",
        title=f"LIME, removed by {how}",
        paper=PAPER,
        options={
            "operator": how,
            "samples": samples,
            "kernel_width": kernel_width,
            "ridge": ridge,
            "seed": seed,
            "unit": name,
        },
        notes=(*targets.notes, _poor(fits)),
        facts={
            "fidelity": targets.of([fit.fidelity for fit in fits]),
            "intercept": targets.of([fit.intercept for fit in fits]),
            "variants": len(np.unique(present, axis=0)),
        },
    )
    reach = targets.reach(trace, stack)
    return Attributions(targets.of(rows), axis=axis, unit=name, reach=reach, **targets.names(), **common)


def variants(n: int, samples: int, seed: int) -> tuple[Bools, Float]:
    """Return variants [variant, element], True where an element stays, and how often each counts [variant].

    All of them where there are no more than `samples`; else the whole and samples - 1 that are drawn.
    """
    if n <= _MANY and 2**n <= samples:
        present = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 > 0
        removed = n - present.sum(axis=1)
        ways = np.array([np.prod([(n - i) / (i + 1) for i in range(count)]) for count in range(n + 1)])
        counts = (samples - 1) / (n * ways[removed])
        counts[removed == 0] = 1.0
        return present, counts
    generator = np.random.default_rng(seed)
    present = np.ones((samples, n), dtype=bool)
    for row, count in zip(present[1:], generator.integers(1, n + 1, size=samples - 1), strict=True):
        row[generator.permutation(n)[:count]] = False
    return present, np.ones(samples)


def proximity(present: Bools, width: float) -> Float:
    """Return how much variants [variant, element] count by their distance to the whole [variant]."""
    distance = 1 - np.sqrt(present.mean(axis=1))
    return np.asarray(np.exp(-(distance**2) / (2 * width**2)))


def _default_units(axis: TokenAxis) -> tuple[str, ...]:
    """Return the units that are tried: words, and tokens of a text that is a single word."""
    first = next(iter(axis.units))
    return ("word", first) if "word" in axis.units else (first,)


def _require_options(samples: int, kernel_width: float, ridge: float, batch_size: int) -> None:
    if samples < 2:  # noqa: PLR2004 - the whole and a variant
        raise ValueError(f"samples must be at least 2, not {samples}.")
    if not kernel_width > 0:
        raise ValueError(f"kernel_width must be above 0, not {kernel_width}.")
    if not (ridge >= 0 and np.isfinite(ridge)):
        raise ValueError(f"ridge must be a number from 0 on, not {ridge}.")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}.")


def _first_possible(trace: Trace, members: tuple[Target, ...], stack: str) -> str:
    reasons: dict[str, str] = {}
    for member in members:
        for name, reason in refusals(trace, member, stack).items():
            reasons[name] = reasons.get(name) or reason
    able = [name for name, reason in reasons.items() if not reason]
    if not able:
        why = listed([f"{name}: {reason}" for name, reason in reasons.items()])
        raise ValueError(f"lime: nothing of this input can be removed ({why}).")
    return able[0]


def _answers(removals: list[ElementRemoval], features: Any, present: Bools, batch_size: int) -> list[Float]:
    """Return the value of each removal's target [variant]."""
    removed = np.zeros((len(present), len(removals[0].unit)), dtype=bool)
    removed[:, features] = ~present
    answer_of: dict[Any, Float] = {}
    result = []
    for number, removal in enumerate(removals):
        key = number if removal.target.index is None else (removal.target.index, removal.target.position)
        if key not in answer_of:
            with removal.answering(batch_size=batch_size) as ask:
                answer_of[key] = ask(removed).number
        result.append(answer_of[key])
    return result


def _contrasts(answers: list[Float], targets: TargetSet) -> list[Float]:
    of_targets = answers[: len(targets.targets)]
    if targets.foils is None:
        return of_targets
    return [target - foil for target, foil in zip(of_targets, answers[len(of_targets) :], strict=True)]


def _poor(fits: list[WeightedLinear]) -> str:
    worst = min(fit.fidelity for fit in fits)
    if not worst < _POOR:
        return ""
    return (
        f"the linear model explains {worst:.0%} of the (weighted) variance of the answers: elements "
        "interact, and their weights say little"
    )


@dataclass(frozen=True)
class WeightedLinear:
    """A linear model of answers.

    Attributes:
        weights: The weight of every element [element].
        intercept: Its answer with everything removed.
        fidelity: Weighted share of the answers' variance that it explains, R^2; 1 where they do not vary.
    """

    weights: Float
    intercept: float
    fidelity: float


def fitted(present: Bools, answers: Float, counts: Float, ridge: float) -> WeightedLinear:
    """Return the linear model that minimises sum(counts * error^2) + ridge * |weights|^2.

    With `ridge` 0 and elements that cannot be told apart, the shortest weights.

    Args:
        present: Variants [variant, element].
        answers: Their answers [variant]; variants with NaN are left out.
        counts: How much each counts [variant].
        ridge: The penalty; the intercept has none.

    Raises:
        ValueError: If no variant has an answer.
    """
    read = np.isfinite(answers)
    if not read.any():
        raise ValueError("no variant of the input has an answer: the target is NaN wherever it is read.")
    x, y, w = present[read].astype(float), answers[read], counts[read]
    share = w / w.sum()
    x_mean, y_mean = share @ x, float(share @ y)
    root = np.sqrt(w)[:, None]
    left, right = root * (x - x_mean), root[:, 0] * (y - y_mean)
    if ridge:
        weights = np.linalg.solve(left.T @ left + ridge * np.eye(x.shape[1]), left.T @ right)
    else:
        weights = np.linalg.lstsq(left, right, rcond=None)[0]
    intercept = float(y_mean - x_mean @ weights)
    variance = float(share @ (y - y_mean) ** 2)
    error = float(share @ (y - intercept - x @ weights) ** 2)
    varies = variance > np.finfo(float).eps * max(1.0, y_mean**2)
    return WeightedLinear(weights, intercept, 1 - error / variance if varies else 1.0)
