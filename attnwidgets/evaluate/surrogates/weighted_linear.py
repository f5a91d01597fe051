"""Weighted least squares with a ridge penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attnwidgets.evaluate.arrays import Bools, Float


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


def fitted(kept: Bools, answers: Float, counts: Float, ridge: float) -> WeightedLinear:
    """Return the linear model that minimises sum(counts * error^2) + ridge * |weights|^2.

    With `ridge` 0 and elements that cannot be told apart, the shortest weights.

    Args:
        kept: Variants [variant, element].
        answers: Their answers [variant]; variants with NaN are left out.
        counts: How much each counts [variant].
        ridge: The penalty; the intercept has none.

    Raises:
        ValueError: If no variant has an answer.
    """
    read = np.isfinite(answers)
    if not read.any():
        raise ValueError("no variant of the input has an answer: the target is NaN wherever it is read.")
    x, y, w = kept[read].astype(float), answers[read], counts[read]
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
