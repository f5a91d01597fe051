"""Whether a model learns without the features called important, and without the weights of its attention.

Whether a model can learn without attention's weights: trained with uniform rows and with learnt rows.

Wiegreffe and Pinter 2019, Attention is not not Explanation, sections 3.2 and 3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import explained, require_one_each
from attnwidgets.evaluate.removals.ordering import count_of, ranked, steps_removed
from attnwidgets.evaluate.removals.protocol import RemovalCase, RemovalOptions, RemovalProtocol
from attnwidgets.evaluate.removals.removal import EMBEDDED, require_operator
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, scored, scored_explanations
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.evaluate.arrays import Float, Order
    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.removals.protocol import Removal
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    Sample = dict[str, Any]

RETRAINING_PAPER = "Hooker et al. 2019, A Benchmark for Interpretability Methods in Deep Neural Networks"

UNIFORM_ATTENTION_PAPER = "Wiegreffe and Pinter 2019, Attention is not not Explanation"


_OPTIONS = RemovalOptions(
    "remove_and_retrain",
    *("thresholds", "oracle"),
    operator="mask",
    thresholds=(0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
    draws=1,
)


@documented
@_OPTIONS.former_keywords
def remove_and_retrain(
    train: Callable[[list[Sample], list[Sample]], Any],
    training: tuple[Sequence[Any], Sequence[Any]],
    test: tuple[Sequence[Any], Sequence[Any]],
    explanations: Any,
    *,
    operator: Operator | None = None,
    removal: Removal | None = None,
    unit: str | None = None,
) -> Scorecard:
    """Measure the accuracy of a model trained anew without the top features, in training and test.

    A model that meets masked inputs for the first time may fail because they are strange. Trained on such
    inputs, it fails only if the information that it needs is gone. You supply the training: a run for each
    method and share.

    Args:
        train: Takes the changed training set and test set, lists of {"input_ids": [token], "label": ...}, and
            returns the accuracy of a newly trained model; or, for an interval, one for each of several seeds,
            always the same number of them.
        training: Traces of the training set, and their labels.
        test: Traces of the test set, and their labels.
        explanations: {methods}
        operator: "mask", "pad" or "delete", see `aw.evaluate.OPERATORS`.
        removal: {removal}
        unit: {unit}

    Returns:
        A Scorecard [accuracy, method, share], with an example for every number that `train` returns. The
        lower the accuracy, the better a method identifies the features that are needed; above "random" it
        identifies none.

    Raises:
        ValueError: If the operator acts on embeddings or is impossible, or labels and traces differ in
            number.

    Source: Hooker et al. 2019, section 3.

    Example:
        >>> traces = aw.trace(*aw.demo_model("classifier"), ["A fine film.", "A dull story."])
        >>> def train(training, test):
        ...     return 0.5  # train a model on `training`, and return its accuracy on `test`
        >>> data = (traces, [1, 0])
        >>> removal = aw.evaluate.Removal("mask", thresholds=[0, 0.5])
        >>> card = aw.evaluate.remove_and_retrain(train, data, data, "saliency", removal=removal)
        >>> card.metrics, card.shape
        (('accuracy',), (1, 3, 2))
    """
    protocol = _OPTIONS.protocol(operator, removal)
    if protocol.operator in (*EMBEDDED, "attention_mask"):
        raise ValueError(
            f"operator {protocol.operator!r} changes no ids to train on; use 'mask', 'pad' or 'delete'."
        )
    sets = []
    first: list[ExplainedInput] = []
    for name, (traces, labels) in (("training", training), ("test", test)):
        require_one_each(f"{name}: labels", labels, traces)
        inputs = explained(list(traces), explanations, None, "remove_and_retrain", unit)
        sets.append(([_case(item, protocol, number) for number, item in enumerate(inputs)], list(labels)))
        first = first or inputs
    baselines = [RANDOM] if protocol.oracle is None else [RANDOM, ORACLE]
    orders = {
        name: [[_order(case, name) for case in cases] for cases, _ in sets]
        for name in progress([*first[0].values, *baselines], "ranking")
    }
    accuracies: list[Float] = []
    untouched: Float | None = None  # nothing is removed for a share of 0: a single run serves all methods
    for name, share in progress(
        [(name, share) for name in orders for share in protocol.thresholds], "training"
    ):
        accuracy = untouched
        if share or accuracy is None:
            changed = [
                [
                    {"input_ids": _ids(case, order, share), "label": label}
                    for case, order, label in zip(cases, set_orders, labels, strict=True)
                ]
                for (cases, labels), set_orders in zip(sets, orders[name], strict=True)
            ]
            accuracy = np.atleast_1d(np.asarray(train(changed[0], changed[1]), dtype=np.float64))
            untouched = untouched if share else accuracy
        if accuracies and accuracy.shape != accuracies[0].shape:
            raise ValueError(
                f"train returned {accuracy.size} numbers after {accuracies[0].size}; "
                "always return the same number."
            )
        accuracies.append(accuracy)
    return scored_explanations(
        first,
        np.stack(accuracies, axis=1).reshape(-1, 1, len(orders), len(protocol.thresholds)),
        "remove_and_retrain",
        metrics=["accuracy"],
        baselines=baselines,
        x=list(protocol.thresholds),
        x_name="share",
        title=f"remove and retrain, {protocol.operator}",
        paper=RETRAINING_PAPER,
        options=protocol.options("operator", "special", "oracle", "seed"),
    )


def _case(item: ExplainedInput, protocol: RemovalProtocol, number: int) -> RemovalCase:
    target = resolve_target(item.trace, None, method="remove_and_retrain")
    require_operator(item.trace, protocol.operator, target, item.stack)
    return protocol.case(item, target, number)


def _order(case: RemovalCase, name: str) -> Order:
    """Return the features of an input in the order in which a method or baseline removes them."""
    if name == RANDOM:
        return case.random_orders()[0]
    if name == ORACLE:
        return case.ask(case.oracle_order(keep=False, longest=len(case.features)))[0]
    return ranked(case.values[name], case.features, by="value")


def _ids(case: RemovalCase, order: Order, share: float) -> list[int]:
    """Return the ids of an input without its top features."""
    k = count_of(share, len(order), "ceil")
    gone, _ = case.removal.distinct(steps_removed(case.n, order, order, [k], keep=False))
    ids = case.removal.inputs(gone)["input_ids"]
    return ids[0].tolist()


@forceable
@documented
def uniform_attention(
    make: Callable[[int], Any],
    train: Callable[[Any, int], float],
    *,
    layers: Any = None,
    seeds: Sequence[int] = (0, 1, 2),
    stack: str | None = None,
) -> Scorecard:
    """Compare a model trained with uniform attention with the same model trained with learnt attention.

    If both score alike, the task does not need attention, and its weights can explain little. Every row reads
    all that it may read equally, in training and in the evaluation; queries and keys then learn nothing. You
    supply the training: two runs per seed. Judge a difference against the spread over seeds::

        card = aw.evaluate.uniform_attention(make, train, seeds=range(5))

    Args:
        make: Takes a seed and returns a fresh transformers model; called twice for each seed.
        train: Takes a model and a seed, trains the model and returns its score on held-out data.
        layers: Layers whose attention is uniform: a number, several, or None for all.
        seeds: Seeds, with a run of each kind for every seed.
        stack: Which attention, if there are several: "self", "encoder", "decoder" or "cross".
        force: {force}

    Returns:
        A Scorecard [score, "trained" and "uniform", 1] over seeds.

    Raises:
        ValueError: If seeds are empty, the stack is unknown, or the model's attention cannot be set.
        IndexError: If the layer is out of range.

    Source: Wiegreffe and Pinter 2019, section 3.2 (there the attention layer of an LSTM).

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> def train(model, seed):
        ...     return 0.5  # train the model, and return its accuracy
        >>> aw.evaluate.uniform_attention(lambda seed: model, train, seeds=[0]).methods
        ('trained', 'uniform')
    """
    from attnwidgets.intervene.block_heads import sites_of
    from attnwidgets.intervene.edit_attention import edit_attention
    from attnwidgets.intervene.heads import some_layers

    if not len(seeds):
        raise ValueError("seeds is empty: give one or more.")
    scores = []
    for seed, kind in progress(
        [(seed, kind) for seed in seeds for kind in ("trained", "uniform")], "training"
    ):
        model = make(seed)
        if kind == "trained":
            scores.append(float(train(model, seed)))
            continue
        heads = dict.fromkeys(some_layers(layers, sites_of(model, stack)[1]), "all")
        with edit_attention(model, heads, "uniform", stack=stack):
            scores.append(float(train(model, seed)))
    return scored(
        np.array(scores).reshape(len(seeds), 1, 2, 1),
        "uniform_attention",
        model=type(model).__name__,
        metrics=["score"],
        methods=["trained", "uniform"],
        title="trained with uniform attention",
        paper=UNIFORM_ATTENTION_PAPER,
        options={"layers": layers, "seeds": list(seeds)},
    )
