"""Directions between two sets of texts, fitted to inner products, whose number is that of the texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from attnwidgets._logistic import Fits, fit_gram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Float = NDArray[np.float64]
    Rows = NDArray[np.int64]
    Pair = tuple[Rows, Rows]

Cav = Literal["logistic", "mean_difference", "svm"]
CAVS: tuple[Cav, ...] = ("logistic", "mean_difference", "svm")

# The curvature of each loss at zero: ridge regression with the penalty over it is one step of the fit.
_CURVATURE = {"logistic": 0.25, "svm": 2.0}


@dataclass(frozen=True)
class LayerStates:
    """The states of a layer, and the target's gradients at the examples.

    Attributes:
        states: [text, dim].
        gradients: [example, dim].
        cav: Fit of a direction: "logistic", "mean_difference" or "svm".
        penalty: Weight of |w|^2 / 2 for states divided by their spread; scikit-learn's C is its inverse.
    """

    states: NDArray[np.floating]
    gradients: NDArray[np.floating]
    cav: Cav
    penalty: float

    @cached_property
    def centred(self) -> Float:
        """States less their mean [text, dim]."""
        states = np.asarray(self.states, dtype=np.float64)
        return states - states.mean(0)

    @cached_property
    def gram(self) -> Float:
        """Inner products of centred states [text, text]."""
        return self.centred @ self.centred.T

    @cached_property
    def spread(self) -> float:
        """Standard deviation over texts, averaged over dimensions: the unit in which states are penalised."""
        return float(self.centred.std(0).mean()) or 1.0

    @cached_property
    def cross(self) -> Float:
        """Inner products of gradients with centred states [example, text]."""
        return np.asarray(self.gradients, dtype=np.float64) @ self.centred.T

    def fit(self, pairs: Sequence[Pair]) -> list[tuple[Rows, Float, float]]:
        """Return rows, their weights and the intercept of the classifier of every pair of sets.

        Weights sum to zero, so that the direction does not depend on the origin.
        """
        result: list[tuple[Rows, Float, float] | None] = [None] * len(pairs)
        sizes = [(len(first), len(second)) for first, second in pairs]
        for size in dict.fromkeys(sizes):
            alike = [number for number, length in enumerate(sizes) if length == size]
            rows = np.stack([np.concatenate(pairs[number]) for number in alike])
            labels = np.repeat([1.0, 0.0], size)
            fits = self._fit(rows, labels)
            for index, number in enumerate(alike):
                result[number] = (rows[index], fits.alpha[index], float(fits.intercept[index]))
        return [fit for fit in result if fit is not None]

    def _fit(self, rows: Rows, labels: Float) -> Fits:
        gram = self.gram[rows[:, :, None], rows[:, None, :]]
        # The mean of a fit's examples is its origin, as its intercept is unpenalised.
        gram = (
            gram
            - gram.mean(1, keepdims=True)
            - gram.mean(2, keepdims=True)
            + gram.mean((1, 2), keepdims=True)
        )
        if self.cav == "mean_difference":
            alpha = np.broadcast_to(labels / labels.sum() - (1 - labels) / (1 - labels).sum(), rows.shape)
            halfway = (
                0.5
                * np.einsum("fij,fj->fi", gram, alpha)
                @ (labels / labels.sum() + (1 - labels) / (1 - labels).sum())
            )
            return Fits(alpha, -halfway)
        return fit_gram(gram / self.spread**2, labels, penalty=self.penalty, loss=self.cav)

    def unit(self, rows: Rows, alpha: Float) -> Float:
        """Return weights of the same direction with length one [text]."""
        length = np.sqrt(max(float(alpha @ self.gram[np.ix_(rows, rows)] @ alpha), 1e-300))
        return alpha / length

    def sensitivities(self, rows: Rows, alpha: Float) -> Float:
        """Return the derivative of the target along the unit direction [example]."""
        return self.cross[:, rows] @ self.unit(rows, alpha)

    def direction(self, rows: Rows, alpha: Float) -> Float:
        """Return the unit direction [dim], from the second set to the first."""
        return self.unit(rows, alpha) @ self.centred[rows]

    def accuracy(self, pairs: Sequence[Pair], folds: int, rng: np.random.Generator) -> Float:
        """Return the stratified cross-validated accuracy of every pair [pair]."""
        parts = [[_folds(side, folds, rng) for side in pair] for pair in pairs]
        jobs = [
            tuple(
                np.concatenate([part for number, part in enumerate(side) if number != fold]) for side in sides
            )
            for sides in parts
            for fold in range(folds)
        ]
        fits = self.fit(jobs)  # type: ignore[arg-type]
        correct = np.zeros(len(pairs))
        for number, (rows, alpha, intercept) in enumerate(fits):
            pair, fold = divmod(number, folds)
            train_gram = self.gram[np.ix_(rows, rows)]
            scale = 1.0 if self.cav == "mean_difference" else self.spread**2
            # Products with states centred on the mean of the training texts, as in the fit.
            shift = (train_gram.mean(0) @ alpha) / scale
            for side, sign in zip(parts[pair], (1, -1), strict=True):
                f = self.gram[np.ix_(side[fold], rows)] @ alpha / scale - shift + intercept
                correct[pair] += (sign * f > 0).sum() + 0.5 * (f == 0).sum()
        return correct / [len(first) + len(second) for first, second in pairs]

    def shuffled(self, pair: Pair, count: int, rng: np.random.Generator) -> Float:
        """Return the mean sensitivity to a set against another, and to random exchanges of both [1 + draw].

        The direction is the linear discriminant that is one Newton step of the fit (for "mean_difference",
        the difference itself), so that the same inverse serves all draws.
        """
        rows = np.concatenate(pair)
        n, first = len(rows), len(pair[0])
        gram = self.gram[np.ix_(rows, rows)]
        gram = gram - gram.mean(0) - gram.mean(1)[:, None] + gram.mean()
        member = np.zeros((1 + count, n), bool)
        member[0, :first] = True
        orders = rng.permuted(np.tile(np.arange(n), (count, 1)), axis=1)
        np.put_along_axis(member[1:], orders[:, :first], values=True, axis=1)
        y = np.where(member, 1 / first, -1 / (n - first))
        if self.cav != "mean_difference":
            ridge = self.penalty * self.spread**2 / _CURVATURE[self.cav]
            # Classes of unequal size weigh equally.
            y = np.linalg.solve(gram + ridge * np.eye(n), y.T).T
        lengths = np.sqrt(np.maximum(np.einsum("dn,dn->d", y @ gram, y), 1e-300))
        return (y @ self.cross[:, rows].mean(0)) / lengths


def share_positive(sensitivities: NDArray[np.floating]) -> Float:
    """Return the share of examples with a positive derivative, over the first axis; zero counts half."""
    return (sensitivities > 0).mean(0) + 0.5 * (sensitivities == 0).mean(0)


def _folds(rows: Rows, folds: int, rng: np.random.Generator) -> list[Rows]:
    """Split a set at random into parts of nearly equal size."""
    return np.array_split(rng.permutation(rows), folds)
