"""Which heads of two runs are alike, by their maps: numbers of heads mean nothing from seed to seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Float = NDArray[np.float64]
    Head = tuple[int, int]


def matched(mine: Sequence[Float], theirs: Sequence[Float]) -> dict[Head, Head]:
    """Return the head of the second model by the head of the first whose maps are most alike.

    Heads are paired so that the sum of their correlations, each a mean over texts, is largest.

    Args:
        mine: Attention of every layer [row, head, query, key].
        theirs: The same of the other model.

    Raises:
        ValueError: If the models have other numbers of layers or heads.
    """
    from scipy.optimize import linear_sum_assignment

    heads = [(layer, head) for layer, weights in enumerate(mine) for head in range(weights.shape[1])]
    if [weights.shape for weights in mine] != [weights.shape for weights in theirs]:
        raise ValueError(
            "the runs are of models with other numbers of layers or heads, which cannot be matched."
        )
    a, b = (_standardised(layers) for layers in (mine, theirs))
    likeness = np.einsum("rhc,rgc->hg", a, b)
    rows, columns = linear_sum_assignment(likeness, maximize=True)
    return {heads[row]: heads[column] for row, column in zip(rows, columns, strict=True)}


def _standardised(layers: Sequence[Float]) -> Any:
    """Return the maps of all heads with mean 0 and length 1 [row, head, cell]."""
    maps = np.concatenate([weights.reshape(*weights.shape[:2], -1) for weights in layers], axis=1)
    maps = maps - maps.mean(-1, keepdims=True)
    return maps / np.maximum(np.linalg.norm(maps, axis=-1, keepdims=True), 1e-12)
