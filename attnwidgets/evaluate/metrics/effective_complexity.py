"""Effective complexity: how many of an explanation's top features the model needs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.evaluate.examples.explained_input import explained, is_constant
from attnwidgets.evaluate.removals.ordering import (
    ORACLES,
    Oracle,
    only,
    oracle_questions,
    random_orders,
    ranked,
    without,
)
from attnwidgets.evaluate.removals.removal_metrics import Score, read_score
from attnwidgets.evaluate.removals.run import of_each_input
from attnwidgets.evaluate.scorecards.build import scored_explanations
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.removals.ordering import Order, Questions
    from attnwidgets.evaluate.removals.removal import Answers, Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    Float = NDArray[np.float64]

PAPER = "Nguyen and Martinez 2020, On Quantitative Aspects of Model Interpretability"
EPSILON = 0.1
_CHOICES = {
    "selected": ("kept", "deleted"),
    "loss": ("change", "log_loss"),
    "by": ("value", "magnitude"),
    "oracle": ORACLES,
}


@forceable
def effective_complexity(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    operator: Operator,
    epsilon: float = EPSILON,
    selected: Literal["kept", "deleted"] = "kept",
    loss: Literal["change", "log_loss"] = "change",
    score: Score | None = None,
    by: Literal["value", "magnitude"] = "magnitude",
    special: bool = False,
    oracle: Oracle = "greedy",
    draws: int = 10,
    seed: int = 0,
    unit: str | None = None,
    batch_size: int = 32,
) -> Scorecard:
    """How many of an explanation's top features the model needs, k*: the fewer, the better the explanation.

        kept      k* = min k with loss(M_k alone) < epsilon
        deleted   k* = min k with loss(all but M_k) >= epsilon, as one reading of the definition has it

    The loss is the change |f(x) - f(part)|, or "log_loss", -log p(part).

    Args:
        traces: What `aw.trace` returned, or a list of such traces.
        explanations: As `faithfulness` takes them.
        target: As there.
        operator: How features are removed, see `OPERATORS`; it stands for the expectation over other values
            in the paper's formula.
        epsilon: What loss is borne.
        selected: Whether the top features are kept or deleted.
        loss: What is compared with epsilon.
        score: What f is, as in `faithfulness`.
        by: Rank by "magnitude", as the paper does, or by "value".
        special: Whether special tokens are features.
        oracle: See `faithfulness`.
        draws: How many random orders the row "random" is the mean of.
        seed: Of those draws.
        unit: What features are; by default the unit of the explanations.
        batch_size: Inputs that run together.

    Returns:
        A Scorecard [k*, method, 1], 0 to the number of features. NaN where no k will do, or the explanation
        is constant. How many values are above a threshold is another thing: `features_above`.

    Raises:
        ValueError: For unknown options, an explanation of another input or unit.
        TypeError: Where an explanation is a map or nothing of the kind.

    Source: Nguyen and Martinez 2020, definition 4.
    """
    for name, value in {"selected": selected, "loss": loss, "by": by, "oracle": oracle}.items():
        if value not in _CHOICES[name]:
            near = suggest(str(value), _CHOICES[name])
            raise ValueError(f"{name} {value!r} is not one of {listed(_CHOICES[name])}.{near}")
    inputs = explained(traces, explanations, target, "effective_complexity", unit)
    needed = Needed(epsilon, selected, loss, score, by, oracle)
    samples = of_each_input(
        inputs,
        target,
        operator,
        lambda number, one, features, meant: needed_questions(
            one, features, meant.index, needed, draws, [seed, number]
        ),
        function="effective_complexity",
        special=special,
        batch_size=batch_size,
    )
    found = np.array(samples)[:, None, :, None]
    undefined = np.isnan(found[:, :, : len(inputs[0].values)]).any()
    return scored_explanations(
        inputs,
        found,
        "effective_complexity",
        metrics=["effective_complexity"],
        x=["k*"],
        x_name="features",
        notes=["undefined where no number of features will do, or nothing is ranked" if undefined else ""],
        title=f"effective complexity, {operator}",
        paper=PAPER,
        options={
            "operator": operator,
            "epsilon": epsilon,
            "selected": selected,
            "loss": loss,
            "score": score,
            "by": by,
            "special": special,
            "oracle": oracle,
            "draws": draws,
            "seed": seed,
        },
    )


@dataclass(frozen=True)
class Needed:
    """What "needed" means; see `effective_complexity`."""

    epsilon: float = EPSILON
    selected: str = "kept"
    loss: str = "change"
    score: Score | None = None
    by: str = "magnitude"
    oracle: Oracle = "greedy"


def needed_questions(
    one: ExplainedInput, features: Order, index: int | None, needed: Needed, draws: int, seed: Sequence[int]
) -> Questions[list[float]]:
    """Yield what is to be removed from one input, and return k* of every method, baselines last."""
    kept, n = needed.selected == "kept", len(one.unit)

    def read(answers: Answers) -> Float:
        return read_score(answers, needed.score, index)

    best = yield from oracle_questions(needed.oracle, n, features, read, keep=kept, longest=len(features))
    rows: list[list[Order]] = [
        [] if is_constant(values[features]) else [ranked(values, features, by=needed.by)]
        for values in one.values.values()
    ]
    rows += [random_orders(features, draws, seed), [best]]
    ks = range(len(features) + 1)
    gone = [
        only(n, order, features, k) if kept else without(n, order, k)
        for row in rows
        for order in row
        for k in ks
    ]
    answers = yield np.stack([np.zeros(n, dtype=bool), *gone])
    numbers = read(answers) if needed.loss == "change" else -answers.log_p
    losses = np.abs(numbers - numbers[0]) if needed.loss == "change" else numbers
    met = losses < needed.epsilon if kept else losses >= needed.epsilon
    firsts = [_first(one_met) for one_met in met[1:].reshape(-1, len(ks))]
    counts = np.cumsum([0, *(len(row) for row in rows)])
    return [
        float(np.mean(firsts[start:stop])) if stop > start else float("nan")
        for start, stop in pairwise(counts)
    ]


def _first(met: NDArray[np.bool_]) -> float:
    return float(np.argmax(met)) if met.any() else float("nan")
