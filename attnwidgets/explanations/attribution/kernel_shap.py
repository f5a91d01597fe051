"""Kernel SHAP: Shapley values as the weights of a linear model, fitted to the values of coalitions.

Lundberg and Lee 2017, A Unified Approach to Interpreting Model Predictions, theorem 2.
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Float = NDArray[np.float64]
    Bools = NDArray[np.bool_]

KERNEL_SHAP_PAPER = "Lundberg and Lee 2017, A Unified Approach to Interpreting Model Predictions"
_MOST = 20  # elements of which all coalitions are listed at the most


def kernel_shap(value: Callable[[Bools], Float], n: int, budget: int, seed: int) -> Float:
    """Return the Shapley value of every element [element].

    The weights minimise sum over coalitions z of k(z) (v(z) - v(none) - weights . z)^2 under the condition
    that they sum to v(all) - v(none), with k(z) = (n - 1) / (C(n, |z|) |z| (n - |z|)).

    Args:
        value: Takes coalitions [coalition, element], True where an element is present; returns their values.
        n: Number of elements.
        budget: Number of coalitions. If all 2^n - 2 fit, the values are exact.
        seed: Seed of the coalitions; each is drawn together with its complement.

    Raises:
        ValueError: If the coalitions that were drawn do not determine the weights.
    """
    none, all_ = value(np.stack([np.zeros(n, bool), np.ones(n, bool)]))
    if n == 1:
        return np.array([all_ - none])
    present, weights = coalitions(n, budget, seed)
    # The condition leaves the last weight: total - sum of the others.
    left = present[:, :-1].astype(float) - present[:, -1:]
    right = value(present) - none - present[:, -1] * (all_ - none)
    root = np.sqrt(weights)
    others, _, rank, _ = np.linalg.lstsq(root[:, None] * left, root * right, rcond=None)
    if rank < n - 1:
        raise ValueError(
            f"samples: {len(present)} subsets do not tell {n} elements apart; take more samples, or a "
            "coarser unit."
        )
    return np.append(others, all_ - none - others.sum())


def coalitions(n: int, budget: int, seed: int) -> tuple[Bools, Float]:
    """Return coalitions [coalition, element], neither none nor all, and how much each counts [coalition]."""
    sizes = np.arange(1, n)
    if n <= _MOST and 2**n - 2 <= budget:
        present = (np.arange(1, 2**n - 1)[:, None] >> np.arange(n)) & 1 > 0
        kernel = [(n - 1) / (comb(n, size) * size * (n - size)) for size in sizes.tolist()]
        return present, np.array(kernel)[present.sum(1) - 1]
    # A coalition's size is drawn by the kernel, so that every draw counts the same.
    generator = np.random.default_rng(seed)
    share = 1 / (sizes * (n - sizes))
    half = np.zeros((max(1, budget // 2), n), bool)
    for row, size in zip(half, generator.choice(sizes, size=len(half), p=share / share.sum()), strict=True):
        row[generator.permutation(n)[:size]] = True
    return np.concatenate([half, ~half]), np.ones(2 * len(half))
