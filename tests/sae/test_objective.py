from __future__ import annotations

import pytest
import torch

from attnwidgets.sae.training import objective
from attnwidgets.sae.training.objective import AUXILIARY, Weights, lecture_loss, topk_loss

D, F, B = 6, 24, 16


def weights(seed: int = 0, *, unit: bool = False) -> Weights:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    decoder = draw(F, D)
    if unit:
        decoder /= decoder.norm(dim=-1, keepdim=True)
    return Weights(draw(F, D), draw(F) - 2, decoder, draw(D))


def states(seed: int = 9) -> torch.Tensor:
    return torch.randn(B, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(params=["dense", "sparse"])
def way(request, monkeypatch):
    monkeypatch.setattr(objective, "_DENSE", -1.0 if request.param == "dense" else 1.0)
    return request.param


def by_autograd(w: Weights, loss) -> tuple[float, list[torch.Tensor]]:
    """The loss and its gradients as torch finds them."""
    leaves = [tensor.clone().requires_grad_() for tensor in w.all]
    value = loss(*leaves)
    return float(value.detach()), list(torch.autograd.grad(value, leaves))


@pytest.mark.parametrize("l1", [0.0, 2.0])
def test_the_lectures_loss_and_gradients_are_those_of_autograd(way, l1):
    w, x = weights(), states()

    def loss(encoder, b_enc, decoder, b_dec):
        a = ((x - b_dec) @ encoder.T + b_enc).relu()
        missed = x - (a @ decoder + b_dec)
        return (missed.square().sum(-1) + l1 * (a * decoder.norm(dim=-1)).sum(-1)).mean()

    expected, gradients = by_autograd(w, loss)
    result = lecture_loss(w, x, l1)
    assert result.total == pytest.approx(expected, rel=1e-9)
    for tensor, gradient in zip(w.all, gradients, strict=True):
        torch.testing.assert_close(tensor.grad, gradient, atol=1e-10, rtol=1e-8)
    assert torch.equal(result.active, (w.activations(x) > 0).any(0))
    assert 0 < int(result.active.sum()) < F


@pytest.mark.parametrize("silent", [[], [3], [0, 3, 5, 7, 8, 11, 20]])
def test_the_topk_loss_and_gradients_are_those_of_autograd(way, silent):
    w, x, k = weights(unit=True), states(), 4
    mask = torch.zeros(F, dtype=torch.bool)
    mask[silent] = True

    def largest(p, k):
        best = p.topk(k, dim=-1)
        return torch.zeros_like(p).scatter(-1, best.indices, best.values.relu())

    def loss(encoder, b_enc, decoder, b_dec):
        # The error that silent features explain is taken as given; so is their input.
        p = (x - b_dec) @ encoder.T + b_enc
        missed = x - (largest(p, k) @ decoder + b_dec)
        total = missed.square().sum(-1).mean()
        if silent:
            again = (x - b_dec.detach()) @ encoder.T + b_enc
            revived = largest(again[:, mask], min(len(silent), D // 2)) @ decoder[mask]
            total = total + AUXILIARY * (revived - missed.detach()).square().sum(-1).mean()
        return total

    expected, gradients = by_autograd(w, loss)
    result = topk_loss(w, x, k, mask)
    assert result.total == pytest.approx(expected, rel=1e-9)
    assert (result.penalty > 0) == bool(silent)
    for tensor, gradient in zip(w.all, gradients, strict=True):
        torch.testing.assert_close(tensor.grad, gradient, atol=1e-10, rtol=1e-8)
    assert int((w.activations(x, k) > 0).sum(-1).max()) <= k


def test_a_batch_in_which_nothing_fires_has_gradients_too(way):
    w, x = weights(), states()
    w.b_enc.fill_(-100)
    result = lecture_loss(w, x, 2.0)
    assert result.penalty == 0
    assert result.mse == pytest.approx(float((x - w.b_dec).square().sum(-1).mean()))
    assert not w.encoder.grad.any()
    torch.testing.assert_close(w.b_dec.grad, 2 * (w.b_dec - x).mean(0))
