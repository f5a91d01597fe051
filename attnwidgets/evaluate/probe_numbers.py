"""Linear probes that predict numbers (the pixels of a patch, a position), by ridge regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float = NDArray[np.float64]
    Rows = NDArray[np.int64]

_MATRIX = 2  # axes of [text, number]


def numbers_of(labels: Any) -> Float | None:
    """Return labels that are numbers to predict [text, number], not constant; None for classes.

    Raises:
        ValueError: If numbers are not finite, or all texts have the same.
    """
    array = labels if isinstance(labels, np.ndarray) else None
    if array is None or array.ndim != _MATRIX or array.dtype.kind not in "fiub":
        return None
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("labels hold NaN or infinite numbers: leave these texts out.")
    varying = numbers[:, numbers.std(axis=0) > 0]
    if not varying.shape[1]:
        raise ValueError("labels are the same for all texts; a probe needs numbers that vary.")
    return varying


@dataclass(frozen=True)
class NumbersTrial:
    """Numbers, folds and the penalty of an evaluation; the same for every layer and baseline.

    Attributes:
        folds: By metric: numbers [text, number], divided by their spread, and the fold of every text.
        penalty: Weight of |theta|^2 / 2.
    """

    folds: dict[str, tuple[Float, Rows]]
    penalty: float

    @property
    def raw(self) -> list[str]:
        """Metrics of single texts."""
        return list(self.folds)

    @property
    def metrics(self) -> list[str]:
        """Metrics of the scorecard."""
        return [*self.folds, *(["selectivity"] if "control" in self.folds else [])]

    def scores(self, values: Float) -> Float:
        """Return the score of every text [text, raw metric], whose mean is R^2.

        That is 1 less the squared error, divided by the mean squared distance of all texts from their mean.
        """
        spread = float(values.std(0).mean())
        scaled = (values - values.mean(0)) / (spread or 1.0)
        return np.stack([self._explained(scaled, *pair) for pair in self.folds.values()], axis=1)

    def _explained(self, values: Float, numbers: Float, fold: Rows) -> Float:
        predicted = np.zeros_like(numbers)
        for number in np.unique(fold):
            test = fold == number
            predicted[test] = ridge(values[~test], numbers[~test], values[test], self.penalty)
        variance = ((numbers - numbers.mean(0)) ** 2).sum(1).mean()
        return np.asarray(1 - ((numbers - predicted) ** 2).sum(1) / variance)

    def summary(self, means: Float) -> Float:
        """Return the metrics of means of the raw metrics [draw, raw metric, ...]."""
        by_name = dict(zip(self.raw, np.moveaxis(means, 1, 0), strict=True))
        result = list(by_name.values())
        if "control" in by_name:
            result.append(by_name.get("r2_seen", by_name["r2"]) - by_name["control"])
        return np.stack(result, axis=1)


def ridge(values: Float, numbers: Float, tested: Float, penalty: float) -> Float:
    """Return a ridge regression's predictions for the tested values [text, number].

    Minimises |error|^2 / 2 + penalty |theta|^2 / 2, with an intercept that has no penalty.
    """
    middle, mean = values.mean(0), numbers.mean(0)
    centred, right = values - middle, numbers - mean
    if len(values) < values.shape[1]:  # the smaller of the two systems of equations
        gram = centred @ centred.T + penalty * np.eye(len(values))
        theta = centred.T @ np.linalg.solve(gram, right)
    else:
        theta = np.linalg.solve(centred.T @ centred + penalty * np.eye(values.shape[1]), centred.T @ right)
    predicted: Float = (tested - middle) @ theta + mean
    return predicted
