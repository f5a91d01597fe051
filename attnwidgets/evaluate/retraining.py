"""Remove and retrain: whether a model can still learn without what explanations call important."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.evaluate.explained import explained
from attnwidgets.evaluate.ordering import count_of, random_orders, ranked, without
from attnwidgets.evaluate.removal import inputs_without, require_operator
from attnwidgets.evaluate.removal_metrics import RANDOM
from attnwidgets.evaluate.scorecard import Scorecard
from attnwidgets.explanations.targets import resolve_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.evaluate.removal import Operator

PAPER = "Hooker et al. 2019, A Benchmark for Interpretability Methods in Deep Neural Networks"
_EMBEDDED = ("zero", "mean")


def remove_and_retrain(
    train: Callable[[list[dict[str, Any]], list[dict[str, Any]]], float],
    training: tuple[Sequence[Any], Sequence[Any]],
    test: tuple[Sequence[Any], Sequence[Any]],
    explanations: Any,
    *,
    operator: Operator = "mask",
    thresholds: Sequence[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
    special: bool = False,
    seed: int = 0,
    unit: str | None = None,
) -> Scorecard:
    """What accuracy a model reaches that is trained anew without the top features, in training and test.

    A model that meets masked inputs for the first time may fail because they are strange. Trained on such
    inputs it fails only where what it needs is gone. The training is yours: one run a method and share.

    Args:
        train: Takes the changed training set and test set, lists of {"input_ids": [token], "label": ...}, and
            returns the accuracy of a model that was trained anew.
        training: Traces of the training set and their labels.
        test: The same for the test set.
        explanations: As `faithfulness` takes them, none of them finished.
        operator: "mask", "pad" or "delete".
        thresholds: Shares of the features that are removed from every text.
        special: Whether special tokens are features.
        seed: Of the random order in the row "random".
        unit: What features are.

    Returns:
        A Scorecard [accuracy, method, share] of one example: the lower, the better the method finds what is
        needed; only below "random" does it find anything.

    Raises:
        ValueError: For an operator on embeddings or an impossible one; where labels are not one a trace.

    Source: Hooker et al. 2019, section 3.
    """
    if operator in _EMBEDDED or operator == "attention_mask":
        message = f"operator {operator!r} changes no ids to train on; take 'mask', 'pad' or 'delete'."
        raise ValueError(message)
    sets = []
    for name, (traces, labels) in (("training", training), ("test", test)):
        if len(traces) != len(labels):
            message = f"{name} has {len(labels)} labels for {len(traces)} traces: give one for each."
            raise ValueError(message)
        sets.append((explained(list(traces), explanations, None, "remove_and_retrain", unit), list(labels)))
    names = [*sets[0][0][0].values, RANDOM]
    runs = [(name, share) for name in names for share in thresholds]
    found = np.full((1, 1, len(names), len(thresholds)), np.nan)
    known: dict[float, float] = {}
    for place, (name, share) in enumerate(progress(runs, "training")):
        if share == 0 and share in known:
            accuracy = known[share]
        else:
            changed = [
                [
                    {
                        "input_ids": _ids(one, name, share, operator, seed, number, special=special),
                        "label": label,
                    }
                    for number, (one, label) in enumerate(zip(inputs, labels, strict=True))
                ]
                for inputs, labels in sets
            ]
            accuracy = float(train(changed[0], changed[1]))
            known[share] = accuracy
        found[0, 0].flat[place] = accuracy
    return Scorecard(
        found,
        metrics=["accuracy"],
        methods=names,
        baselines=(RANDOM,),
        x=list(thresholds),
        x_name="share",
        unit=sets[0][0][0].unit.name,
        method="remove_and_retrain",
        provenance={
            "title": f"remove and retrain, {operator}",
            "model": sets[0][0][0].trace.model_id,
            "paper": PAPER,
            "options": {"operator": operator, "special": special, "seed": seed},
            "steps": [],
        },
    )


def _ids(
    one: Any, name: str, share: float, operator: Operator, seed: int, number: int, *, special: bool
) -> list[int]:
    """Return the ids of one input without its top features."""
    from attnwidgets.evaluate.removal import removable
    from attnwidgets.tracing.borrow import unwrap
    from attnwidgets.tracing.recorder import forward_parameters

    trace = one.trace
    target = resolve_target(trace, None, method="remove_and_retrain")
    require_operator(trace, operator, target, one.stream)
    features = removable(trace, one.unit, one.stream, target, special=special)
    if name == RANDOM:
        (order,) = random_orders(features, 1, [seed, number])
    else:
        order = ranked(one.values[name], features, by="value")
    gone = without(len(one.unit), order, count_of(share, len(features), "ceil"))
    tokens = (gone[None] @ one.unit.membership(len(trace.axes(one.stream)[0]))) > 0
    changed = inputs_without(trace, operator, one.stream, tokens, forward_parameters(unwrap(trace.model)))
    ids: list[int] = changed["input_ids"][0].tolist()
    return ids
