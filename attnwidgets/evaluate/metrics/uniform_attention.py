"""Can a model learn without attention's weights? Trained with uniform rows, beside one trained as it is.

Wiegreffe and Pinter 2019, Attention is not not Explanation, sections 3.2 and 3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.evaluate.scorecards.build import scored
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

PAPER = "Wiegreffe and Pinter 2019, Attention is not not Explanation"


@forceable
def uniform_attention(
    make: Callable[[int], Any],
    train: Callable[[Any, int], float],
    *,
    layers: Any = None,
    seeds: Sequence[int] = (0, 1, 2),
    stack: str | None = None,
) -> Scorecard:
    """What a model scores that learns with uniform attention, beside the same one that learns with its own.

    Where both score alike, the task does not need attention, and its weights can explain little. Every row
    reads all that it may read equally, in training and in the evaluation; what makes queries and keys then
    learns nothing. The training is yours: two runs a seed. How far seeds lie apart without any change is what
    a difference has to be seen against::

        card = aw.evaluate.uniform_attention(make, train, seeds=range(5))

    Args:
        make: Takes a seed and returns a fresh transformers model; called twice for each.
        train: Takes a model and a seed, trains the model and returns its score on other data.
        layers: Layers whose attention is uniform, by number, several, or None: all.
        seeds: One run of each kind for every one of them.
        stack: Which attention, where there are several.

    Returns:
        A Scorecard [score, "trained" and "uniform", 1] over seeds.

    Raises:
        ValueError: Without seeds; for an unknown stack; where the model's attention cannot be set.
        IndexError: Where there is no such layer.

    Source: Wiegreffe and Pinter 2019, section 3.2 (there the one layer of an LSTM's attention).
    """
    from attnwidgets.intervene.edit_attention import edit_attention
    from attnwidgets.intervene.head_selection import sites_of, some_layers

    if not len(seeds):
        raise ValueError("seeds is empty: give one or more.")
    runs = [(seed, kind) for seed in seeds for kind in ("trained", "uniform")]
    found = []
    for seed, kind in progress(runs, "training"):
        model = make(seed)
        if kind == "trained":
            found.append(float(train(model, seed)))
            continue
        heads = dict.fromkeys(some_layers(layers, sites_of(model, stack)[1]), "all")
        with edit_attention(model, heads, "uniform", stack=stack):
            found.append(float(train(model, seed)))
    return scored(
        np.array(found).reshape(len(seeds), 1, 2, 1),
        "uniform_attention",
        model=type(model).__name__,
        metrics=["score"],
        methods=["trained", "uniform"],
        title="trained with uniform attention",
        paper=PAPER,
        options={"layers": layers, "seeds": list(seeds)},
    )
