"""A head fitted to its features, with the influence of training texts on it: closed forms in numpy, float64.

The penalised loss is strictly convex, so that Newton's method with step halving reaches its only minimum
(`_minimum`). With fewer texts than dimensions everything is computed in the span of the features (`_basis`),
where the Hessian is small. Its Cholesky factor is computed once and serves self-influence, leverage and the
influence on any number of tests; `without=True` takes each text out of the Hessian by the Woodbury identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.blas import dsyrk

from attnwidgets._logistic import sigmoid
from attnwidgets.tracing.free_memory import free_bytes, is_forced, spoken_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float = NDArray[np.float64]

Kind = Literal["binary", "classes", "regression"]
Measure = Literal["loss", "margin"]

_STEPS = 100
_SHARE = 0.5  # of the free memory, for the Hessian and its factor


@dataclass(frozen=True, eq=False)
class Refit:
    """A linear head that minimises mean(loss) + l2 / 2 |theta|^2, its bias penalised like its weights.

    Two classes share an output, the second's logit less the first's; with more, every class has its output. A
    regression's loss is half the squared error.

    Attributes:
        features: Inputs of the head, and a column of ones [text, dim + 1].
        labels: Indices of classes, or numbers [text].
        outputs: Number of outputs.
        kind: "binary", "classes" or "regression".
        l2: The penalty, above 0, so that the minimum is unique.
    """

    features: Float
    labels: Float
    outputs: int
    kind: Kind
    l2: float

    @cached_property
    def _basis(self) -> Float | None:
        """Orthonormal columns [dim + 1, rank] that span the features; None where there are more texts.

        The penalised minimum and every gradient lie in their span, so that nothing is lost.
        """
        if len(self.features) >= self.features.shape[1]:
            return None
        return np.linalg.qr(self.features.T)[0]

    @cached_property
    def _reduced_features(self) -> Float:
        """The training features in the basis [text, rank]."""
        return self.features if self._basis is None else self.features @ self._basis

    def _reduced(self, features: Float) -> Float:
        return features if self._basis is None else features @ self._basis

    @cached_property
    def _theta(self) -> Float:
        """The minimum in the basis [output, rank]."""
        return self._minimum(np.full(len(self.labels), 1 / len(self.labels)), None)

    @property
    def theta(self) -> Float:
        """The fitted parameters, bias last [output, dim + 1]."""
        return self._theta if self._basis is None else self._theta @ self._basis.T

    def _minimum(self, weights: Float, start: Float | None, close: float = 1e-24) -> Float:
        """Return the minimum for weights of the texts by Newton's method."""
        theta = np.zeros((self.outputs, self._reduced_features.shape[1])) if start is None else start.copy()
        value = self._objective(theta, weights)
        for _ in range(_STEPS):
            outputs = self._reduced_features @ theta.T
            slope = (weights[:, None] * self.residuals(outputs)).T @ self._reduced_features + self.l2 * theta
            factor = cho_factor(self._hessian(outputs, weights), lower=True, overwrite_a=True)
            step = cho_solve(factor, slope.reshape(-1)).reshape(theta.shape)
            decrement = float((slope * step).sum())
            scale = 1.0
            moved, result = theta - step, self._objective(theta - step, weights)
            while result > value - 1e-4 * scale * decrement + 1e-14 * abs(value) and scale > 1e-10:  # noqa: PLR2004
                scale /= 2
                moved = theta - scale * step
                result = self._objective(moved, weights)
            theta, value = moved, result
            if decrement < close * max(1.0, abs(value)):
                break
        return theta

    def _objective(self, theta: Float, weights: Float) -> float:
        losses = self.losses(self._reduced_features @ theta.T, self.labels)
        return float(weights @ losses + 0.5 * self.l2 * (theta**2).sum())

    def _hessian(self, outputs: Float, weights: Float) -> Float:
        """Return the Hessian [output x rank, output x rank] (its lower half)."""
        curve = weights[:, None, None] * self.curvatures(outputs)
        rank = self._reduced_features.shape[1]
        size = self.outputs * rank
        hessian = np.zeros((size, size), order="F")
        for a in range(self.outputs):
            for b in range(a + 1):
                block = (slice(a * rank, (a + 1) * rank), slice(b * rank, (b + 1) * rank))
                if a == b and (curve[:, a, b] >= 0).all():
                    rooted = np.sqrt(curve[:, a, b])[:, None] * self._reduced_features
                    hessian[block] = dsyrk(1.0, rooted.T, lower=1)
                else:
                    hessian[block] = (
                        curve[:, a, b, None] * self._reduced_features
                    ).T @ self._reduced_features
        hessian[np.arange(size), np.arange(size)] += self.l2
        return hessian

    # Outputs and losses of the head.

    def outputs_for(self, features: Float) -> Float:
        """Return the outputs for features [text, dim + 1] as [text, output]."""
        return features @ self.theta.T

    def losses(self, outputs: Float, labels: Float) -> Float:
        """Return the loss of texts [text] from outputs [text, output]."""
        if self.kind == "regression":
            return 0.5 * (outputs[:, 0] - labels) ** 2
        if self.kind == "binary":
            return np.logaddexp(0.0, outputs[:, 0]) - labels * outputs[:, 0]
        top = outputs.max(1)
        total = top + np.log(np.exp(outputs - top[:, None]).sum(1))
        return total - outputs[np.arange(len(outputs)), labels.astype(int)]

    def predicted(self, outputs: Float) -> Float:
        """Return the predicted classes, or numbers, from outputs [text, output] as [text]."""
        if self.kind == "regression":
            return outputs[:, 0]
        return (outputs[:, 0] > 0).astype(float) if self.kind == "binary" else outputs.argmax(1).astype(float)

    def residuals(self, outputs: Float, labels: Float | None = None) -> Float:
        """Return the derivative of the loss by the outputs [text, output]."""
        y = self.labels if labels is None else labels
        if self.kind == "regression":
            return outputs - y[:, None]
        if self.kind == "binary":
            return sigmoid(outputs) - y[:, None]
        return _softmax(outputs) - np.eye(self.outputs)[y.astype(int)]

    def curvatures(self, outputs: Float) -> Float:
        """Return the second derivative of the loss by the outputs [text, output, output]."""
        if self.kind == "regression":
            return np.ones((len(outputs), 1, 1))
        if self.kind == "binary":
            p = sigmoid(outputs)
            return (p * (1 - p))[:, :, None]
        p = _softmax(outputs)
        return p[:, :, None] * np.eye(self.outputs) - p[:, :, None] * p[:, None, :]

    # Influence of the training texts.

    @cached_property
    def _factor(self) -> Float:
        """The lower Cholesky factor of the Hessian at the minimum."""
        n = len(self.labels)
        hessian = self._hessian(self._reduced_features @ self._theta.T, np.full(n, 1 / n))
        return cho_factor(hessian, lower=True, overwrite_a=True)[0]

    @cached_property
    def _spreads(self) -> Float:
        """How far a text's outputs move with its weight: a_i' H^-1 a_i [text, output, output]."""
        rank = self._reduced_features.shape[1]
        result = np.zeros((len(self.labels), self.outputs, self.outputs))
        block = max(1, int(2e8 / (8 * self.outputs**2 * rank)))
        for start in range(0, len(self.labels), block):
            rows = self._reduced_features[start : start + block]
            halves = []
            for output in range(self.outputs):
                right = np.zeros((self.outputs * rank, len(rows)))
                right[output * rank : (output + 1) * rank] = rows.T
                halves.append(solve_triangular(self._factor, right, lower=True))
            result[start : start + block] = np.einsum("aen,ben->nab", halves, halves)
        return result

    @cached_property
    def self_influence(self) -> Float:
        """How much a text lowers the loss at itself: g_i' H^-1 g_i [text], at least 0."""
        residuals = self.residuals(self._reduced_features @ self._theta.T)
        return np.einsum("na,nab,nb->n", residuals, self._spreads, residuals)

    @cached_property
    def leverage(self) -> Float:
        """How far a text's output depends on its label [text], 0 to 1: its share's largest eigenvalue."""
        outputs = self._reduced_features @ self._theta.T
        share = np.einsum("nab,nbc->nac", self.curvatures(outputs), self._spreads) / len(self.labels)
        return np.linalg.eigvals(share).real.max(1)

    def influence(
        self, features: Float, labels: Float, *, measure: Measure = "loss", without: bool = False
    ) -> Float:
        """Return how training texts move a measure of tests [test, text]: Koh and Liang's I_up.

        Args:
            features: Of the tests, with a column of ones [test, dim + 1].
            labels: Of the tests [test].
            measure: "loss", or "margin" for its fall (of a regression, the rise of the output).
            without: Take the Hessian without the text, as when it is left out, for which this is an exact
                Newton step.
        """
        tests = self._reduced(features)
        slopes = self.slopes(features, labels, measure)
        rank = tests.shape[1]
        right = (slopes[:, :, None] * tests[:, None, :]).reshape(len(tests), -1).T
        half = solve_triangular(self._factor, right, lower=True)
        solved = solve_triangular(self._factor, half, lower=True, trans="T").reshape(self.outputs, rank, -1)
        outputs = self._reduced_features @ self._theta.T
        residuals = self.residuals(outputs)
        if without:
            share = np.einsum("nab,nbc->nac", self.curvatures(outputs), self._spreads) / len(self.labels)
            residuals = np.linalg.solve(np.eye(self.outputs) - share, residuals[:, :, None])[:, :, 0]
        result = np.zeros((len(tests), len(self.labels)))
        for output in range(self.outputs):
            result -= (residuals[:, output, None] * (self._reduced_features @ solved[output])).T
        return result

    def slopes(self, features: Float, labels: Float, measure: Measure) -> Float:
        """Return the derivative of a measure by the outputs of tests [test, output]."""
        outputs = self.outputs_for(features)
        if measure == "loss":
            return self.residuals(outputs, labels)
        if self.kind == "regression":
            return np.ones_like(outputs)
        if self.kind == "binary":
            return -(2 * labels - 1)[:, None]
        rows, classes = np.arange(len(outputs)), labels.astype(int)
        others = outputs.copy()
        others[rows, classes] = -np.inf
        slopes = np.zeros_like(outputs)
        slopes[rows, classes], slopes[rows, others.argmax(1)] = -1.0, 1.0
        return slopes

    def measured(self, outputs: Float, labels: Float, measure: Measure) -> Float:
        """Return the measure that is influenced [test]: the loss, or the margin with its sign turned."""
        if measure == "loss":
            return self.losses(outputs, labels)
        if self.kind == "regression":
            return outputs[:, 0]
        if self.kind == "binary":
            return -(2 * labels - 1) * outputs[:, 0]
        rows, classes = np.arange(len(outputs)), labels.astype(int)
        others = outputs.copy()
        others[rows, classes] = -np.inf
        return others.max(1) - outputs[rows, classes]

    def outputs_without(self, text: int, features: Float) -> Float:
        """Return the outputs of tests [test, output] of a head that is fitted without a text."""
        weights = np.full(len(self.labels), 1 / len(self.labels))
        weights[text] = 0.0
        return self._reduced(features) @ self._minimum(weights, self._theta).T

    def gradient_norm(self, theta: Float) -> float:
        """Return the length of the objective's gradient at other parameters [output, dim + 1]."""
        residuals = self.residuals(self.features @ theta.T)
        return float(np.linalg.norm(residuals.T @ self.features / len(self.labels) + self.l2 * theta))


def _softmax(outputs: Float) -> Float:
    powers = np.exp(outputs - outputs.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def with_ones(features: Float) -> Float:
    """Return features with a column of ones, for the bias."""
    return np.concatenate([features, np.ones((len(features), 1))], axis=1)


def require_room(texts: int, dim: int, outputs: int, purpose: str) -> None:
    """Raise ValueError if the Hessian of a head does not fit in memory."""
    need = 3 * 8 * (outputs * min(texts, dim + 1)) ** 2
    free = free_bytes()
    if free is not None and need > _SHARE * free and not is_forced():
        raise ValueError(
            f"{purpose}: the Hessian of {outputs} outputs over {min(texts, dim + 1):,} dimensions takes "
            f"{spoken_bytes(need)}, and {spoken_bytes(free)} are free; take fewer training texts, or "
            "of='gradients'."
        )
