"""Whether a model can learn without attention's weights: trained with uniform rows and with its own.

Wiegreffe and Pinter 2019, Attention is not not Explanation, sections 3.2 and 3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.scorecards.build import scored
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

PAPER = "Wiegreffe and Pinter 2019, Attention is not not Explanation"


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
    """Compare a model trained with uniform attention with the same model trained with its own.

    If both score alike, the task does not need attention, and its weights can explain little. Every row reads
    all that it may read equally, in training and in the evaluation; queries and keys then learn nothing. You
    supply the training: two runs per seed. Judge a difference against the spread over seeds::

        card = aw.evaluate.uniform_attention(make, train, seeds=range(5))

    Args:
        make: Takes a seed and returns a fresh transformers model; called twice for each seed.
        train: Takes a model and a seed, trains the model and returns its score on held-out data.
        layers: Layers whose attention is uniform: a number, several, or None for all.
        seeds: Seeds, with one run of each kind for every one.
        stack: Which attention, if there are several: "self", "encoder", "decoder" or "cross".
        force: {force}

    Returns:
        A Scorecard [score, "trained" and "uniform", 1] over seeds.

    Raises:
        ValueError: If seeds are empty, the stack is unknown, or the model's attention cannot be set.
        IndexError: If the layer is out of range.

    Source: Wiegreffe and Pinter 2019, section 3.2 (there the one layer of an LSTM's attention).

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> def train(model, seed):
        ...     return 0.5  # train the model, and return its accuracy
        >>> aw.evaluate.uniform_attention(lambda seed: model, train, seeds=[0]).methods
        ('trained', 'uniform')
    """
    from attnwidgets.intervene.edit_attention import edit_attention
    from attnwidgets.intervene.head_selection import sites_of, some_layers

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
        paper=PAPER,
        options={"layers": layers, "seeds": list(seeds)},
    )
