"""Remove and retrain: whether a model can still learn without what explanations call important."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.evaluate.examples.explained_input import explained
from attnwidgets.evaluate.removals.ordering import (
    Oracle,
    count_of,
    oracle_order,
    random_orders,
    ranked,
    without,
)
from attnwidgets.evaluate.removals.removal import inputs_without, removable, removing, require_operator
from attnwidgets.evaluate.removals.removal_metrics import read_score
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, scored
from attnwidgets.explanations.targets.named import resolve_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.removals.ordering import Order
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    Float = NDArray[np.float64]

PAPER = "Hooker et al. 2019, A Benchmark for Interpretability Methods in Deep Neural Networks"
_EMBEDDED = ("zero", "mean")


def remove_and_retrain(
    train: Callable[[list[dict[str, Any]], list[dict[str, Any]]], Any],
    training: tuple[Sequence[Any], Sequence[Any]],
    test: tuple[Sequence[Any], Sequence[Any]],
    explanations: Any,
    *,
    operator: Operator = "mask",
    thresholds: Sequence[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
    special: bool = False,
    oracle: Oracle | None = "leave_one_out",
    seed: int = 0,
    unit: str | None = None,
) -> Scorecard:
    """What accuracy a model reaches that is trained anew without the top features, in training and test.

    A model that meets masked inputs for the first time may fail because they are strange. Trained on such
    inputs it fails only where what it needs is gone. The training is yours: one run a method and share.

    Args:
        train: Takes the changed training set and test set, lists of {"input_ids": [token], "label": ...}, and
            returns the accuracy of a model that was trained anew; or one for each of several seeds, always
            as many, for an interval.
        training: Traces of the training set and their labels.
        test: The same for the test set.
        explanations: As `faithfulness` takes them, none of them finished.
        operator: "mask", "pad" or "delete".
        thresholds: Shares of the features that are removed from every text.
        special: Whether special tokens are features.
        oracle: The order of the row "oracle", by what the traced model loses; see `faithfulness`. None: no
            such row, which saves as many runs as there are shares.
        seed: Of the random order in the row "random".
        unit: What features are.

    Returns:
        A Scorecard [accuracy, method, share], an example for every number that `train` returns: the lower,
        the better the method finds what is needed; only below "random" does it find anything.

    Raises:
        ValueError: For an operator on embeddings or an impossible one; where labels are not one a trace.

    Source: Hooker et al. 2019, section 3.
    """
    if operator in _EMBEDDED or operator == "attention_mask":
        raise ValueError(f"operator {operator!r} changes no ids to train on; take 'mask', 'pad' or 'delete'.")
    sets = []
    for name, (traces, labels) in (("training", training), ("test", test)):
        if len(traces) != len(labels):
            raise ValueError(f"{name} has {len(labels)} labels for {len(traces)} traces: give one for each.")
        sets.append((explained(list(traces), explanations, None, "remove_and_retrain", unit), list(labels)))
    names = [*sets[0][0][0].values, RANDOM, *([] if oracle is None else [ORACLE])]
    ranks = {
        name: [
            [
                _order(one, name, operator, oracle, seed, number, special=special)
                for number, one in enumerate(own)
            ]
            for own, _ in sets
        ]
        for name in progress(names, "ranking")
    }
    runs = [(name, share) for name in names for share in thresholds]
    found: list[Float] = []
    untouched: Float | None = None
    for name, share in progress(runs, "training"):
        if share or untouched is None:
            changed = [
                [
                    {"input_ids": _ids(one, order, share, operator), "label": label}
                    for one, order, label in zip(own, orders, labels, strict=True)
                ]
                for (own, labels), orders in zip(sets, ranks[name], strict=True)
            ]
            accuracy = np.atleast_1d(np.asarray(train(changed[0], changed[1]), dtype=np.float64))
            if found and accuracy.shape != found[0].shape:
                raise ValueError(
                    f"train returned {accuracy.size} numbers, and {found[0].size} before: always as many."
                )
            untouched = accuracy if share == 0 else untouched
            found.append(accuracy)
        else:
            found.append(untouched)
    return scored(
        np.stack(found, axis=1).reshape(-1, 1, len(names), len(thresholds)),
        "remove_and_retrain",
        model=sets[0][0][0].trace.model_id,
        metrics=["accuracy"],
        methods=names,
        baselines=[name for name in names if name in (RANDOM, ORACLE)],
        x=list(thresholds),
        x_name="share",
        unit=sets[0][0][0].unit.name,
        title=f"remove and retrain, {operator}",
        paper=PAPER,
        options={"operator": operator, "special": special, "oracle": oracle, "seed": seed},
    )


def _order(
    one: ExplainedInput,
    name: str,
    operator: Operator,
    oracle: Oracle | None,
    seed: int,
    number: int,
    *,
    special: bool,
) -> Order:
    """Return the features of one input in the order in which they go."""
    target = resolve_target(one.trace, None, method="remove_and_retrain")
    require_operator(one.trace, operator, target, one.stack)
    features = removable(one.trace, one.unit, one.stack, target, special=special)
    if name == RANDOM:
        return random_orders(features, 1, [seed, number])[0]
    if name != ORACLE or oracle is None:
        return ranked(one.values[name], features, by="value")
    with removing(one.trace, operator, target, unit=one.unit, stack=one.stack, watched=False) as ask:
        return oracle_order(
            oracle, len(one.unit), features, ask, lambda answers: read_score(answers, None, target.index),
            keep=False, longest=len(features),
        )  # fmt: skip


def _ids(one: ExplainedInput, order: Order, share: float, operator: Operator) -> list[int]:
    """Return the ids of one input without its top features."""
    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.recording.recorder import forward_parameters

    trace = one.trace
    gone = without(len(one.unit), order, count_of(share, len(order), "ceil"))
    tokens = (gone[None] @ one.unit.membership(len(trace.axes(one.stack)[0]))) > 0
    changed = inputs_without(trace, operator, one.stack, tokens, forward_parameters(unwrap(trace.model)))
    return changed["input_ids"][0].tolist()
