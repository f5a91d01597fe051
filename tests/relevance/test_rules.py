"""Rules by operation: the authors' numbers, conservation, and no operation that passes unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone calls it

from attnwidgets.relevance.backward import activation_modules, single_activations
from attnwidgets.relevance.rules import Rules
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def relevance(
    operation: Callable[..., Tensor], *inputs: Tensor, given: Tensor | None = None, rules: Rules | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Return the output of an operation, and the relevance of its inputs for `given` at its output."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    with rules or Rules("attnlrp"):
        output = operation(*(leaf.clone() for leaf in leaves))
    given = output.detach() if given is None else given
    share = torch.where(output == 0, torch.zeros_like(output), given / output).detach()
    back = torch.autograd.grad(output, leaves, share, allow_unused=True)
    return output.detach(), [
        torch.zeros_like(x) if g is None else (x * g).detach() for x, g in zip(leaves, back, strict=True)
    ]


# The authors' explicit rules


@pytest.fixture(scope="module")
def explicit(shared):
    result = np.load(shared / "reference" / "lrp" / "lxt_explicit_rules.npz")
    return {name: torch.from_numpy(result[name]) for name in result.files}


EXPLICIT = {
    "linear_epsilon": lambda ref: lambda x: F.linear(x, ref["linear.W"], ref["linear.b"]),
    "matmul": lambda _: torch.matmul,
    "softmax": lambda _: lambda x: torch.softmax(x, -1),
    "add2": lambda _: torch.add,
    "mul2": lambda _: torch.mul,
    "layer_norm": lambda ref: lambda x: F.layer_norm(x, (8,), ref["norm.w"], ref["norm.b"], 1e-5),
    "mean": lambda _: lambda x: x.mean(-1, keepdim=True),
}


@pytest.mark.parametrize("rule", EXPLICIT)
def test_the_authors_rules(explicit, rule):
    inputs = [explicit[name] for name in (f"{rule}.in0", f"{rule}.in1") if name in explicit]
    # Theirs adds 1e-6 to a linear layer's output before dividing by it; ours takes the limit.
    out, given = explicit[f"{rule}.out"], explicit[f"{rule}.R"]
    given = given * out / (out + 1e-6) if rule == "linear_epsilon" else given
    output, result = relevance(EXPLICIT[rule](explicit), *inputs, given=given)
    torch.testing.assert_close(output, out, rtol=1e-5, atol=1e-5)
    for index, mine in enumerate(result):
        torch.testing.assert_close(mine, explicit[f"{rule}.rel{index}"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rule", ["rms_norm_identity", "normalize"])
def test_the_authors_norms_pass_relevance_on(explicit, rule):
    x, given = explicit[f"{rule}.in0"], explicit[f"{rule}.R"]
    weight = explicit["norm.w"] if rule == "rms_norm_identity" else None

    def norm(x: Tensor) -> Tensor:
        if weight is None:
            return F.normalize(x, dim=-1)
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    _, (result,) = relevance(norm, x, given=given)
    torch.testing.assert_close(result, explicit[f"{rule}.rel0"], rtol=1e-9, atol=1e-9)


# Conservation, operation by operation


def hand_written_swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return gate * torch.sigmoid(gate) * up


def in_place(x: Tensor) -> Tensor:
    y = x * 2
    y *= x
    y /= x.abs().sum(-1, keepdim=True)
    y += x
    return y.relu_()


def norm_by_hand(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-6)


def norm_in_one_step(x: Tensor) -> Tensor:
    variance, mean = torch.var_mean(x, -1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-6)


SQUARE = numbers(6, 6, seed=5)
TURN = torch.polar(torch.ones(3, dtype=torch.float64), torch.arange(3, dtype=torch.float64))
CONSERVING = {
    "product": lambda x: x * x.flip(-1),
    "in-place operations": in_place,
    "einsum": lambda x: torch.einsum("id,jd->ij", x, x @ SQUARE),
    "einsum of three": lambda x: torch.einsum("id,jd,kd->ijk", x, x @ SQUARE, x.flip(0)),
    "bmm": lambda x: torch.bmm(x[None], x[None].transpose(1, 2)),
    "baddbmm": lambda x: torch.baddbmm(x[None] @ x.T, x[None], x.T[None], beta=0.5, alpha=2.0),
    "addmm": lambda x: torch.addmm(x @ x.T, x, x.T),
    "addcmul": lambda x: torch.addcmul(x, x, x.flip(0), value=0.3),
    "powers": lambda x: x**3 + torch.square(x) + x.pow(2),
    "gelu": F.gelu,
    "gelu with tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "silu in place": lambda x: F.silu(x * 1, inplace=True),
    "mish": F.mish,
    "tanh": torch.tanh,
    "leaky relu": lambda x: F.leaky_relu(x, 0.1),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "soft cap": lambda x: 3 * torch.tanh(x / 3),
    "glu": F.glu,
    "swiglu by hand": hand_written_swiglu,
    "layer norm": lambda x: F.layer_norm(x, (6,), numbers(6)),
    "rms norm": lambda x: F.rms_norm(x, (6,), numbers(6)),
    "group norm": lambda x: F.group_norm(x[None], 2, numbers(4)),
    "instance norm": lambda x: F.instance_norm(x[None]),
    "norm by hand": norm_by_hand,
    "norm by hand, in one step": norm_in_one_step,
    "normalize": lambda x: F.normalize(x, dim=-1),
    "max": lambda x: x.max(-1).values,
    "top": lambda x: x.topk(2).values,
    "gather and scatter": lambda x: torch.zeros(4, 6, dtype=x.dtype).index_add_(
        0, torch.tensor([1, 3, 0, 1]), x.gather(1, torch.arange(6).expand(4, 6))
    ),
    "convolution": lambda x: F.conv1d(x[None], numbers(3, 4, 2)),
    "convolution by keyword": lambda x: F.conv1d(x[None], weight=numbers(3, 4, 2), bias=None),
    "rotation": lambda x: x * SQUARE[:4].cos() + torch.cat((-x[:, 3:], x[:, :3]), -1) * SQUARE[:4].sin(),
    "complex rotation": lambda x: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (3, 2))) * TURN),
}  # fmt: skip


@pytest.mark.parametrize("rule", ["attnlrp", "cp_lrp"])
@pytest.mark.parametrize("operation", CONSERVING)
def test_relevance_is_conserved_and_numbers_are_as_they_were(operation, rule):
    x = numbers(4, 6, seed=3)
    expected = CONSERVING[operation](x.clone())
    given = expected * numbers(*expected.shape, seed=4)
    output, (result,) = relevance(CONSERVING[operation], x, given=given, rules=Rules(rule))
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    assert result.abs().max() > 1e-3
    torch.testing.assert_close(result.sum(), given.sum(), rtol=1e-9, atol=1e-9)


def attention(x: Tensor, *, causal: bool = True) -> Tensor:
    scores = x @ x.T * x.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(4, 4, dtype=torch.bool).triu(1), -torch.inf)
    return torch.softmax(scores, -1) @ x


FUSED = {
    "kernel": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True)[0],
    "kernel with a mask": lambda x: F.scaled_dot_product_attention(
        x[None], x[None], x[None], attn_mask=torch.ones(4, 4, dtype=torch.bool).tril()
    )[0],
    "kernel with grouped heads": lambda x: F.scaled_dot_product_attention(
        x.expand(1, 2, 4, 6), x[None, None], x[None, None], is_causal=True, enable_gqa=True
    )[0, 1],
}


@pytest.mark.parametrize("rule", ["attnlrp", "cp_lrp"])
@pytest.mark.parametrize("kernel", FUSED)
def test_a_fused_kernel_is_what_it_is_made_of(kernel, rule):
    x = numbers(4, 6, seed=3)
    whole = relevance(FUSED[kernel], x, rules=Rules(rule))
    parts = relevance(attention, x, rules=Rules(rule))
    torch.testing.assert_close(whole, parts, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", ["attnlrp", "cp_lrp"])
@pytest.mark.parametrize("batched", [True, False])
def test_multi_head_attention_is_taken_apart(rule, batched):
    torch.manual_seed(0)
    module = (
        nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
        .eval()
        .requires_grad_(requires_grad=False)
    )
    mask = torch.ones(4, 4, dtype=torch.bool).triu(1)

    def whole(x: Tensor) -> Tensor:
        given = x[None] if batched else x
        padding = torch.zeros(given.shape[:-1], dtype=torch.bool)
        result = module(given, given, given, attn_mask=mask, key_padding_mask=padding)[0]
        return result[0] if batched else result

    def parts(x: Tensor) -> Tensor:
        q, k, v = F.linear(x, module.in_proj_weight, module.in_proj_bias).view(4, 3, 2, 3).permute(1, 2, 0, 3)
        scores = (q @ k.transpose(1, 2) * 3**-0.5).masked_fill(mask, -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
        return F.linear(mixed, module.out_proj.weight, module.out_proj.bias)

    x = numbers(4, 6, seed=3)
    torch.testing.assert_close(
        relevance(whole, x, rules=Rules(rule)), relevance(parts, x, rules=Rules(rule)), rtol=1e-9, atol=1e-9
    )


def test_cp_lrp_leaves_queries_keys_and_gates_without_relevance():
    x = numbers(4, 6, seed=3)

    def parts(query: Tensor, key: Tensor, value: Tensor, up: Tensor) -> Tensor:
        return F.silu(torch.softmax(query @ key.T, -1) @ value) * up

    _, result = relevance(parts, x, x, x, x, rules=Rules("cp_lrp"))
    assert [bool(each.any()) for each in result] == [False, False, False, True]
    _, result = relevance(parts, x, x, x, x, rules=Rules("attnlrp"))
    assert [bool(each.any()) for each in result] == [True, True, True, True]


def test_a_gate_between_zero_and_one_takes_no_relevance():
    x = numbers(4, 6, seed=3)
    for rule in ("attnlrp", "cp_lrp"):
        _, (gate, value) = relevance(
            lambda gate, value: torch.sigmoid(gate).to(value.dtype).view(4, 6) * value,
            x,
            x,
            rules=Rules(rule),
        )
        assert not gate.any()
        torch.testing.assert_close(value.sum(), (torch.sigmoid(x) * x).sum())


# Biases


def test_a_bias_absorbs_is_ignored_or_is_dropped():
    x, weight, bias = numbers(3, 4), numbers(5, 4, seed=1), numbers(5, seed=2)
    contributions = x[:, None] * weight  # [row, output, input]
    z = contributions.sum(-1, keepdim=True)

    def layer(x: Tensor) -> Tensor:
        return F.linear(x, weight, bias)

    output, (result,) = relevance(layer, x, rules=Rules("attnlrp", "absorb"))
    torch.testing.assert_close(result, contributions.sum(1))
    output, (result,) = relevance(layer, x, rules=Rules("attnlrp", "ignore"))
    torch.testing.assert_close(result, (contributions / z * output[..., None]).sum(1))
    output, (result,) = relevance(layer, x, rules=Rules("attnlrp", "drop"))
    torch.testing.assert_close(output, x @ weight.T)
    torch.testing.assert_close(result.sum(), output.sum())


BIASED = {
    "addmm": lambda x: torch.addmm(numbers(5, seed=2), x, numbers(4, 5, seed=1)),
    "addmm, named": lambda x: torch.addmm(numbers(5, seed=2), mat2=numbers(4, 5, seed=1), mat1=x),
    "convolution": lambda x: F.conv1d(x[None], numbers(2, 3, 2, seed=1), numbers(2, seed=2)),
    "convolution, named": lambda x: F.conv1d(x[None], numbers(2, 3, 2, seed=1), bias=numbers(2), padding=1),
    "layer norm": lambda x: F.layer_norm(x, (4,), numbers(4, seed=1), numbers(4, seed=2)),
    "group norm": lambda x: F.group_norm(x[None], 1, numbers(3, seed=1), numbers(3, seed=2)),
    "batch norm": lambda x: F.batch_norm(x, numbers(4), numbers(4).square(), numbers(4), numbers(4, seed=2)),
    "sum": lambda x: x + numbers(4, seed=2),
    "difference": lambda x: 1 - x,
}  # fmt: skip


@pytest.mark.parametrize("operation", BIASED)
def test_without_biases_all_relevance_reaches_the_input(operation):
    x = numbers(3, 4)
    output, (absorbed,) = relevance(BIASED[operation], x)
    _, (all_of_it,) = relevance(BIASED[operation], x, rules=Rules("attnlrp", "ignore"))
    assert abs(float(absorbed.sum() - output.sum())) > 1e-3
    torch.testing.assert_close(all_of_it.sum(), output.sum(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(output, BIASED[operation](x), rtol=1e-12, atol=1e-12)


def test_parameters_and_numbers_are_dropped_from_sums_and_masks_stay():
    x, biases = numbers(3, 4), nn.Parameter(numbers(2, 4, seed=2), requires_grad=False)
    mask = torch.tensor([0.0, -9.0, 0.0, 0.0], dtype=torch.float64)
    rules = Rules("attnlrp", "drop")
    output, _ = relevance(
        lambda x: (x + biases[0] + biases[torch.tensor(1)] + 1) + mask + 1e-6, x, rules=rules
    )
    torch.testing.assert_close(output, x + mask + 1e-6)
    output, _ = relevance(lambda x: 1 - x, x, rules=rules)
    torch.testing.assert_close(output, -x)


# Operations without a rule


class Odd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.logcumsumexp(x, -1)


def test_an_operation_without_a_rule_is_refused_by_name_where_relevance_reaches_it():
    x = numbers(3, 4)
    with pytest.raises(UnsupportedModelError, match=r"no .* rule for torch\.logcumsumexp, called in Odd"):
        relevance(Odd(), x)
    _, (result,) = relevance(Odd(), x, rules=Rules("attnlrp", insist=True))
    assert result.any()


def test_an_operation_that_nothing_is_asked_of_is_no_obstacle():
    def beside(x: Tensor) -> Tensor:
        torch.logcumsumexp(x, -1)
        return x * 2

    output, (result,) = relevance(beside, numbers(3, 4))
    torch.testing.assert_close(result.sum(), output.sum())


@pytest.mark.parametrize(
    "operation", [torch.exp, torch.cumprod, torch.prod, torch.cdist, F.cosine_similarity]
)
def test_what_mixes_without_a_rule_does_not_pass(operation):
    x = numbers(3, 4)
    more = {torch.cumprod: (-1,)}.get(
        operation, (x,) if operation in (torch.cdist, F.cosine_similarity) else ()
    )
    with pytest.raises(UnsupportedModelError, match="no relevance rule"):
        relevance(lambda x: operation(x, *more) + 1, x)


# Activations in several operations


class NewGELU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))


def test_an_activation_in_several_operations_is_one():
    x = numbers(3, 4)
    model = nn.Sequential(NewGELU())
    assert activation_modules(model) == [model[0]]
    hooks = dict(model[0]._forward_hooks)
    with single_activations(model):
        whole = relevance(model, x)
    assert dict(model[0]._forward_hooks) == hooks
    torch.testing.assert_close(whole[1][0], whole[0])
    torch.testing.assert_close(whole[0], F.gelu(x, approximate="tanh"), rtol=1e-6, atol=1e-6)
    assert not torch.allclose(relevance(model, x)[1][0], whole[1][0])


def test_an_activation_that_is_not_zero_at_zero_is_no_single_one() -> None:
    class ShiftedActivation(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x) + 1

    assert activation_modules(nn.Sequential(ShiftedActivation())) == []


def test_zero_passes_through_an_activation_without_nan():
    x = torch.tensor([0.0, -0.0, 1.0, -30.0], dtype=torch.float64)
    for function in (F.gelu, F.silu, torch.tanh, F.mish):
        leaf = x.clone().requires_grad_()
        with Rules("attnlrp"):
            output = function(leaf)
        (gradient,) = torch.autograd.grad(output.sum(), leaf)
        assert gradient.isfinite().all()
        torch.testing.assert_close(leaf.detach() * gradient, output.detach())


def test_the_rules_are_off_outside_and_after_an_error():
    x = numbers(3, 4).requires_grad_()

    def fail() -> Any:
        with Rules("attnlrp"):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    (gradient,) = torch.autograd.grad((x * x).sum(), x)
    torch.testing.assert_close(gradient, 2 * x.detach())
