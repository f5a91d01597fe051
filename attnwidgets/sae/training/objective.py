"""Training losses of SAEs, with gradients in closed form.

With x a state, p = (x - b_dec) W_enc + b_enc, a the activations and s = a W_dec + b_dec, and with means
over a batch:

    lecture   a = ReLU(p)                   loss = mean ||x - s||^2 + l1 mean sum_j a_j ||W_dec_j||
    topk      a = ReLU of the k largest p   loss = mean ||x - s||^2 + mean ||(x - s) - a' W_dec||^2 / 32

where a' are the largest p of features that have not fired for a long time (Bricken et al. 2023, with the
norms of Anthropic's April 2024 update; for topk Gao et al. 2024, Scaling and Evaluating Sparse Autoencoders).
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

AUXILIARY = 1 / 32
"""Weight of the auxiliary loss for silent features (Gao et al. 2024)."""
_DENSE = 0.08  # share of non-zero activations above which dense products are faster


@dataclass
class Weights:
    """The trained weights; both matrices are stored as [d_sae, d_in], one feature per row.

    Args:
        encoder: [d_sae, d_in], W_enc transposed.
        b_enc: [d_sae].
        decoder: [d_sae, d_in], W_dec.
        b_dec: [d_in].
    """

    encoder: Tensor
    b_enc: Tensor
    decoder: Tensor
    b_dec: Tensor

    @property
    def all(self) -> tuple[Tensor, ...]:
        """The tensors, in order."""
        return (self.encoder, self.b_enc, self.decoder, self.b_dec)

    def activations(self, x: Tensor, k: int | None = None) -> Tensor:
        """Return activations a [token, d_sae]."""
        p = torch.addmm(self.b_enc, x - self.b_dec, self.encoder.T)
        return p.relu_() if k is None else _largest(p, k)


@dataclass(frozen=True)
class Loss:
    """The loss of a batch and its parts.

    Args:
        mse: mean ||x - s||^2.
        penalty: The sparsity penalty or auxiliary loss.
        active: Which features fired [d_sae].
    """

    mse: float
    penalty: float
    active: Tensor

    @property
    def total(self) -> float:
        """Their sum."""
        return self.mse + self.penalty


def lecture_loss(weights: Weights, x: Tensor, l1: float) -> Loss:
    """Return the lecture loss of a batch [token, d_in]; sets gradients in `.grad`."""
    centred = x - weights.b_dec
    a = torch.addmm(weights.b_enc, centred, weights.encoder.T).relu_()
    norms = weights.decoder.norm(dim=-1)
    means = a.mean(0)
    mse = _backward(weights, x, centred, a, per_activation=l1 * norms / len(x))
    if weights.decoder.grad is None:  # it has just been set
        raise AssertionError
    weights.decoder.grad.addcmul_((l1 * means / norms.clamp_min(_tiny(norms)))[:, None], weights.decoder)
    return Loss(mse, float(l1 * (means * norms).sum()), means > 0)


def topk_loss(weights: Weights, x: Tensor, k: int, silent: Tensor) -> Loss:
    """Return the topk loss of a batch [token, d_in]; sets gradients in `.grad`.

    Args:
        weights: Weights, with directions of length one.
        x: States [token, d_in].
        k: Number of active features per token.
        silent: Which features have not fired for a long time [d_sae].
    """
    centred = x - weights.b_dec
    p = torch.addmm(weights.b_enc, centred, weights.encoder.T)
    a = _largest(p, k)
    mse = _backward(weights, x, centred, a, per_activation=None)
    penalty = _revive(weights, x, centred, p, a, silent) if bool(silent.any()) else 0.0
    return Loss(mse, penalty, (a > 0).any(0))


def _backward(
    weights: Weights, x: Tensor, centred: Tensor, a: Tensor, *, per_activation: Tensor | None
) -> float:
    """Set the gradients of mean ||x - s||^2 + sum a * per_activation, and return the former.

    The gradient of the latter with respect to the decoder is left to the caller. If few activations are
    non-zero, sparse products are used.
    """
    rows, columns = _nonzero(a)
    if rows is None or columns is None:
        error = torch.addmm(weights.b_dec, a, weights.decoder).sub_(x)
        mse = float(error.square().sum()) / len(x)
        error.mul_(2 / len(x))
        by_a = error @ weights.decoder.T
        if per_activation is not None:
            by_a.add_(per_activation)
        by_p = torch.ops.aten.threshold_backward(by_a, a, 0)
        weights.decoder.grad = a.T @ error
        weights.encoder.grad = by_p.T @ centred
        sums = by_p.sum(0)
    else:
        values = a[rows, columns]
        forward = _csr(rows, columns, values, a.shape)
        error = torch.sparse.addmm(weights.b_dec.expand_as(x), forward, weights.decoder).sub_(x)
        mse = float(error.square().sum()) / len(x)
        error.mul_(2 / len(x))
        by = torch.sparse.sampled_addmm(
            _csr(rows, columns, torch.zeros_like(values), a.shape), error, weights.decoder.T
        )
        by_p = by.values() if per_activation is None else by.values() + per_activation[columns]
        order = torch.argsort(columns, stable=True)
        flipped = (columns[order], rows[order])
        weights.decoder.grad = _csr(*flipped, values[order], a.T.shape) @ error
        weights.encoder.grad = _csr(*flipped, by_p[order], a.T.shape) @ centred
        sums = torch.zeros_like(weights.b_enc).index_add_(0, columns, by_p)
    weights.b_enc.grad = sums
    weights.b_dec.grad = error.sum(0) - sums @ weights.encoder
    return mse


def _revive(weights: Weights, x: Tensor, centred: Tensor, p: Tensor, a: Tensor, silent: Tensor) -> float:
    """Add the gradients of the auxiliary loss for silent features, and return this loss."""
    which = silent.nonzero()[:, 0]
    best = p[:, which].topk(min(len(which), x.shape[-1] // 2), dim=-1)
    shape = (len(x), len(which))
    revived = torch.zeros(shape, dtype=p.dtype, device=p.device).scatter_(
        -1, best.indices, best.values.relu()
    )
    residual = x - torch.addmm(weights.b_dec, a, weights.decoder)
    error = revived @ weights.decoder[which] - residual
    loss = AUXILIARY * float(error.square().sum()) / len(x)
    error.mul_(2 * AUXILIARY / len(x))
    by_p = torch.ops.aten.threshold_backward(error @ weights.decoder[which].T, revived, 0)
    if weights.decoder.grad is None or weights.encoder.grad is None or weights.b_enc.grad is None:
        raise AssertionError  # set before
    weights.decoder.grad.index_add_(0, which, revived.T @ error)
    weights.encoder.grad.index_add_(0, which, by_p.T @ centred)
    weights.b_enc.grad.index_add_(0, which, by_p.sum(0))
    return loss


def _largest(p: Tensor, k: int) -> Tensor:
    best = p.topk(k, dim=-1, sorted=False)
    return torch.zeros_like(p).scatter_(-1, best.indices, best.values.relu_())


def _nonzero(a: Tensor) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Return rows and columns of non-zero elements, row by row; None if there are many, or not on a CPU."""
    if a.device.type != "cpu" or int(torch.count_nonzero(a)) > _DENSE * a.numel():
        return None, None
    rows, columns = a.nonzero(as_tuple=True)
    return rows, columns


def _csr(rows: Tensor, columns: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    """Return a sparse matrix from elements sorted by row."""
    _silence_notice()
    ends = torch.bincount(rows, minlength=shape[0]).cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends])
    return torch.sparse_csr_tensor(starts, columns, values, size=shape, check_invariants=False)


@functools.cache
def _silence_notice() -> None:
    """Trigger and hide torch's notice, given once per process, that sparse CSR matrices are in beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        empty = torch.zeros(0, dtype=torch.int64)
        torch.sparse_csr_tensor(torch.zeros(2, dtype=torch.int64), empty, empty.float(), size=(1, 1))


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny
