"""Multipliers by operation: differences are passed on whole, and next to the baseline they are gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone calls it

from attnwidgets.relevance.deeplift import differences
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def compared(
    operation: Callable[..., Tensor], inputs: list[Tensor], baselines: list[Tensor]
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return the change of a sum of outputs, the contributions of every input, and the outputs."""
    rules = differences()
    with rules:
        before = operation(*(x.clone().requires_grad_() * 1 for x in baselines))
    rules.compare()
    leaves = [x.clone().requires_grad_() for x in inputs]
    with rules:
        # A copy first: leaves cannot be written into.
        output = operation(*(leaf * 1 for leaf in leaves))
    weights = numbers(*output.shape, seed=9)
    multipliers = torch.autograd.grad((output * weights).sum(), leaves)
    result = [m * (x - x0) for m, x, x0 in zip(multipliers, inputs, baselines, strict=True)]
    return ((output - before) * weights).sum().detach(), result, output.detach()


SHIFT, MATRIX = numbers(4, seed=7), numbers(6, 4, seed=8)
SQUARE = torch.eye(3, dtype=torch.float64)
MASK = torch.tensor([[0.0, 0.0, -torch.inf, -torch.inf]] * 3, dtype=torch.float64)
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu in place": lambda x: F.relu(x, inplace=True),
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "log of a sigmoid": F.logsigmoid,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "abs": torch.abs,
    "larger than a constant": lambda x: torch.max(x, SHIFT),
    "square": torch.square,
    "cube": lambda x: x**3,
    "root": lambda x: (x * x + 1).sqrt(),
    "inverse": lambda x: 2 / (1 + x.exp()),
    "softmax": lambda x: F.softmax(x, dim=-1),
    "softmax under a mask": lambda x: torch.softmax(x + MASK, -1),
    "log softmax": lambda x: x.log_softmax(-1),
    "layer norm": lambda x: F.layer_norm(x, (4,), SHIFT, SHIFT),
    "norm of root mean squares": lambda x: F.rms_norm(x, (4,), SHIFT, 1e-6),
    "the same as Llama writes it": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "the same as a quotient": lambda x: x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt(),
    "variance": lambda x: x.var(-1, keepdim=True),
    "variance of all there are": lambda x: x.var(dim=-1, unbiased=False),
    "length": lambda x: x.norm(dim=-1),
    "gated": lambda x: F.glu(x, -1),
    "linear": lambda x: F.linear(x, MATRIX, numbers(6)),
    "cat and pick": lambda x: torch.cat([x, x[:1] * x[1:2]])[1:],
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "product": lambda a, b: a * b,
    "in place": lambda a, b: a.mul_(b),
    "matrices": lambda a, b: a @ b.T,
    "quotient": lambda a, b: a / (1 + b.square()),
    "larger": torch.maximum,
    "smaller": torch.minimum,
    "larger, by another name": torch.max,
    "solution": lambda a, b: torch.linalg.solve_triangular(a @ a.T + SQUARE, b, upper=True),
    "solution with a diagonal of ones": lambda a, b: torch.linalg.solve_triangular(
        a @ b.T, b, upper=False, unitriangular=True
    ),
    "einsum": lambda a, b: torch.einsum("id,jd->ij", a, b),
    "added product": lambda a, b: torch.addmm(a[:, :3], a, b.T, beta=0.5, alpha=2),
    "attention": lambda a, b: F.scaled_dot_product_attention(a[None], b[None], (a + b)[None], is_causal=True),
}
CASES = [(name, f, 1) for name, f in UNARY.items()] + [(name, f, 2) for name, f in BINARY.items()]


@pytest.mark.parametrize(
    ("operation", "count"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_change_is_passed_on_whole(operation: Callable[..., Tensor], count: int) -> None:
    inputs = [numbers(3, 4, seed=seed) for seed in range(count)]
    for baselines in (
        [numbers(3, 4, seed=5 + seed) for seed in range(count)],
        [torch.zeros_like(x) for x in inputs],
    ):
        change, result, output = compared(operation, inputs, baselines)
        plain = operation(*(x.clone() for x in inputs))
        torch.testing.assert_close(output, plain, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(sum(part.sum() for part in result), change, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("operation", "count"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_next_to_the_baseline_multipliers_are_gradients(operation: Callable[..., Tensor], count: int) -> None:
    inputs = [numbers(3, 4, seed=seed) for seed in range(count)]
    steps = [1e-7 * numbers(3, 4, seed=5 + seed) for seed in range(count)]
    result = compared(operation, inputs, [x - step for x, step in zip(inputs, steps, strict=True)])[1]
    leaves = [x.clone().requires_grad_() for x in inputs]
    output = operation(*(leaf * 1 for leaf in leaves))
    slopes = torch.autograd.grad((output * numbers(*output.shape, seed=9)).sum(), leaves)
    for part, slope, step in zip(result, slopes, steps, strict=True):
        torch.testing.assert_close(part, slope * step, rtol=1e-4, atol=1e-12)


def test_a_norm_of_almost_nothing_on_the_baseline_stays_bounded() -> None:
    x = numbers(3, 4)
    for name in ("layer norm", "norm of root mean squares", "the same as Llama writes it"):
        multipliers = compared(UNARY[name], [x], [1e-9 * x])[1][0] / x
        assert float(multipliers.abs().max()) < 100, "1 / 1e-9 is nowhere in it"


def test_a_product_gives_both_factors_their_change_times_the_others_mean() -> None:
    a, b, a0, b0 = (numbers(3, 4, seed=seed) for seed in range(4))
    _, result, _ = compared(torch.mul, [a, b], [a0, b0])
    weights = numbers(3, 4, seed=9)
    torch.testing.assert_close(result[0], weights * (a - a0) * (b + b0) / 2)
    torch.testing.assert_close(result[1], weights * (b - b0) * (a + a0) / 2)


def test_what_chooses_by_size_is_refused_by_name() -> None:
    x = numbers(3, 4)
    with pytest.raises(UnsupportedModelError, match="topk"):
        compared(lambda x: x.topk(2).values, [x], [-x])


def test_other_operations_on_the_baseline_are_refused() -> None:
    def routed(x: Tensor) -> Tensor:
        return F.relu(x) if float(x.detach()[0, 0]) > 0 else torch.tanh(x)

    x = numbers(3, 4)
    with pytest.raises(UnsupportedModelError, match=r"runs (relu|tanh) for (relu|tanh)"):
        compared(routed, [x], [-x])
