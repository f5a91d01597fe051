"""Logistic regression with a quadratic penalty, in numpy: many small fits at once, and a large fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Float = NDArray[np.float64]

Loss = Literal["logistic", "svm"]
LOSSES: tuple[Loss, ...] = ("logistic", "svm")

_STEPS = 60
_HALVINGS = 30
_CLOSE = 1e-12  # Newton's decrement, relative to the objective, at which a fit has converged
_JITTER = 1e-12  # of the mean diagonal: a centred Gram matrix is singular


class Fits(NamedTuple):
    """Linear classifiers in terms of their examples.

    Attributes:
        alpha: Weights of the examples [fit, example]: a classifier's direction is their sum, alpha_i x_i.
        intercept: [fit].
    """

    alpha: Float
    intercept: Float


def fit_gram(gram: Float, labels: Float, *, penalty: float = 1.0, loss: Loss = "logistic") -> Fits:
    """Fit many penalised linear classifiers, each from the inner products of its examples.

    Minimises sum(loss) + penalty / 2 |w|^2 over w and an unpenalised intercept: scikit-learn's C is 1 /
    penalty. Newton's method in the coordinates of a Cholesky factor of the Gram matrix, which makes the cost
    of a fit independent of the width of the states.

    Args:
        gram: Inner products x_i . x_j of each fit's examples [fit, example, example].
        labels: 1 or 0 [fit, example], or [example] for all.
        penalty: Weight of |w|^2 / 2, above 0.
        loss: "logistic", or "svm" for the squared hinge max(0, 1 - y f)^2 (as LinearSVC's default).

    Raises:
        ValueError: If the penalty is not positive (on separable data there would be no minimum).
    """
    if not penalty > 0:
        raise ValueError(f"penalty is {penalty}; without it, separable data has no best classifier.")
    gram = np.asarray(gram, dtype=np.float64)
    count, n = gram.shape[:2]
    y = np.broadcast_to(np.asarray(labels, dtype=np.float64), (count, n))
    size = np.maximum(np.trace(gram, axis1=1, axis2=2) / n, 1e-300)
    root = np.linalg.cholesky(gram + (_JITTER * size)[:, None, None] * np.eye(n))
    z = np.concatenate([root, np.ones((count, n, 1))], axis=2)  # the last coordinate is the intercept
    theta = np.zeros((count, n + 1))
    penalties = np.append(np.full(n, float(penalty)), 0.0)
    active = np.arange(count)
    for _ in range(_STEPS):
        theta[active], going = _newton(z[active], y[active], theta[active], penalties, loss)
        active = active[going]
        if not len(active):
            break
    f = np.einsum("fne,fe->fn", z, theta)
    slope, _ = _derivatives(f, y, loss)
    return Fits(-slope / penalty, theta[:, -1])


def _newton(
    z: Float, y: Float, theta: Float, penalties: Float, loss: Loss
) -> tuple[Float, NDArray[np.bool_]]:
    """Return the parameters after a Newton step [fit, example + 1], and whether fits go on [fit]."""
    f = np.einsum("fne,fe->fn", z, theta)
    slope, curve = _derivatives(f, y, loss)
    gradient = np.einsum("fne,fn->fe", z, slope) + penalties * theta
    hessian = np.matmul(z.swapaxes(1, 2), curve[:, :, None] * z)
    width = hessian.shape[-1]
    hessian[:, np.arange(width), np.arange(width)] += penalties + 1e-12
    step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
    decrement = np.einsum("fe,fe->f", gradient, step)
    value = _objective(f, y, theta, penalties, loss)
    along = np.einsum("fne,fe->fn", z, step)
    scale = np.ones(len(z))
    for _ in range(_HALVINGS):  # a full step may overshoot; almost always it does not
        moved = theta - scale[:, None] * step
        trial = _objective(f - scale[:, None] * along, y, moved, penalties, loss)
        worse = trial > value - 1e-4 * scale * decrement + 1e-14 * np.abs(value)
        if not worse.any():
            break
        scale[worse] /= 2
    return theta - scale[:, None] * step, decrement > _CLOSE * np.maximum(value, 1.0)


def _derivatives(f: Float, y: Float, loss: Loss) -> tuple[Float, Float]:
    """Return the first and second derivatives of the loss by the classifier's output."""
    if loss == "logistic":
        p = sigmoid(f)
        return p - y, p * (1 - p)
    sign = 2 * y - 1
    gap = np.maximum(0.0, 1 - sign * f)
    return -2 * sign * gap, np.where(gap > 0, 2.0, 0.0)


def _objective(f: Float, y: Float, theta: Float, penalties: Float, loss: Loss) -> Float:
    hinge = loss == "svm"
    losses = np.maximum(0.0, 1 - (2 * y - 1) * f) ** 2 if hinge else np.logaddexp(0.0, f) - y * f
    return losses.sum(1) + 0.5 * (penalties * theta**2).sum(1)


def sigmoid(x: Float) -> Float:
    """Return 1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * np.asarray(x, dtype=np.float64)))


def fit_softmax(
    x: Float, labels: NDArray[np.int64], classes: int, *, penalty: float, start: Float | None = None
) -> Float:
    """Fit a penalised softmax classifier and return its parameters, bias last [class, dim + 1].

    Minimises sum(loss) + penalty / 2 |theta|^2, bias included, so that a class that is not there gets a small
    probability and not none.

    Args:
        x: [example, dim].
        labels: Indices of classes [example].
        classes: Number of classes.
        penalty: Above 0.
        start: Parameters to begin with.
    """
    wide = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    shape = (classes, wide.shape[1])
    begin = np.zeros(shape) if start is None else start
    if classes == 2:  # noqa: PLR2004 - a single vector, half of it for either class, in half the time
        sign = 2.0 * labels - 1

        def margin(w: Float) -> tuple[float, Float]:
            f = wide @ w
            value = np.logaddexp(0.0, -sign * f).sum() + 0.25 * penalty * (w @ w)
            return float(value), (-sign * sigmoid(-sign * f)) @ wide + 0.5 * penalty * w

        result = _minimum(margin, begin[1] - begin[0], len(x))
        return np.stack([-result / 2, result / 2])
    truth = np.eye(classes)[labels]

    def objective(flat: Float) -> tuple[float, Float]:
        theta = flat.reshape(shape)
        log_p = log_softmax(wide @ theta.T)
        value = -(truth * log_p).sum() + 0.5 * penalty * (theta**2).sum()
        slope = (np.exp(log_p) - truth).T @ wide + penalty * theta
        return float(value), slope.reshape(-1)

    return _minimum(objective, begin.reshape(-1), len(x)).reshape(shape)


def _minimum(objective: Callable[[Float], tuple[float, Float]], begin: Float, examples: int) -> Float:
    """Return the minimum of a convex function that returns its value and its gradient."""
    from scipy.optimize import minimize

    options = {"maxiter": 500, "ftol": 1e-9, "gtol": 1e-6 * max(1.0, examples / 100)}
    return np.asarray(minimize(objective, begin, jac=True, method="L-BFGS-B", options=options).x)


def log_softmax(outputs: Float) -> Float:
    """Return log probabilities [example, class]."""
    shifted = outputs - outputs.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
