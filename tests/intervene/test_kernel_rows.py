"""Rows of kernels without a softmax: tokens suppressed, rows replaced, against sums over tokens by hand."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import attnwidgets as aw
from attnwidgets.tracing.mixers.recurrences import TimeMix
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.tracing.mixers.kernels import Kernel
    from attnwidgets.tracing.mixers.mix import Mix

IDS = torch.tensor([21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12])
# By type: a layer with a kernel, and the norm that reads its output; "" without one, so that the output
# projection reads it channel by channel times a gate.
NORMS = {
    "mamba": (1, ""),
    "mamba2": (1, "norm"),
    "falcon_h1": (1, ""),
    "qwen3_5_text": (1, "norm"),
    "kimi_linear": (1, "o_norm"),
    "minimax": (1, "norm"),
    "xlstm": (1, "multihead_norm"),
    "recurrent_gemma": (0, ""),
    "lfm2_moe": (2, ""),
    "zamba": (0, ""),
}
# transformers compiles a kernel of RWKV in another process.
RWKV = pytest.param("rwkv", marks=pytest.mark.slow)
KINDS = [*NORMS, RWKV]


def traced(name: str) -> Any:
    return aw.trace(build(Kind(name, "causal")), None, IDS)


def mix_of(trace: Any, layer: int) -> Mix:
    (mix,) = trace.stack_table["self"].mixing[layer].mixes
    return mix


def place_of(name: str, mix: Mix, trace: Any) -> int:
    """Return the number of the first head of the kernel in its block's maps."""
    return 4 if name == "falcon_h1" else 0


def handed(mix: Mix, token: int) -> torch.Tensor:
    """Return the values that a token hands to every position [position, channel], tap by tap, float64."""
    values = mix.values[0].double()
    result = torch.zeros_like(values)
    if mix.shifted is not None:
        for offset, tap in enumerate(mix.shifted[: len(values) - token]):
            result[token + offset] = tap[0, token].double()
        return result
    convolution = mix.convolution
    if convolution is None:
        result[token] = values[token]
        return result
    states, weight = convolution.states[0].double(), convolution.weight.double()
    width = weight.shape[1]
    padded = torch.cat([states.new_zeros(width - 1, states.shape[1]), states])
    total = sum(padded[tap : tap + len(states)] * weight[:, tap] for tap in range(width))
    total = total if convolution.bias is None else total + convolution.bias.double()
    act = torch.sigmoid(total) if convolution.is_gated else torch.where(total == 0, 0.0, values / total)
    for offset in range(min(width, len(states) - token)):
        result[token + offset] = states[token] * weight[:, width - 1 - offset] * act[token + offset]
    return result


def mixed_by(kernel: Kernel, values: torch.Tensor) -> torch.Tensor:
    """Return a kernel's outputs for values [position, channel]."""
    alpha = kernel.rows(range(len(values)))
    return torch.einsum("gqk,kgc->qgc", alpha, values.unflatten(1, (len(alpha), -1))).flatten(1)


@contextmanager
def added(trace: Any, mix: Mix, norm: str, change: torch.Tensor) -> Iterator[None]:
    """Add a change [position, channel] to a kernel's output, at the module that reads it."""
    module = trace.model.get_submodule(mix.path)
    if mix.gate is not None:
        change = change * mix.gate[0].double()
    if not norm:
        change = change * torch.where(mix.mixed[0] == 0, 0.0, mix.read[0].double() / mix.mixed[0])
    reader = module.get_submodule(norm) if norm else mix.projection
    hook = reader.register_forward_pre_hook(
        lambda _, args: (
            ((args[0].double() + change.reshape(args[0].shape)).to(args[0]), *args[1:])
            if args[0].numel() == change.numel()
            else ((args[0].double() + change.unflatten(1, (mix.n_heads, -1))).to(args[0]), *args[1:])
        )
    )
    try:
        yield
    finally:
        hook.remove()


def logits(trace: Any) -> torch.Tensor:
    with torch.no_grad():
        return trace.model(IDS[None], use_cache=False).logits[0]


def without(kernel: Kernel, token: int) -> Kernel:
    """Return a kernel in which the state passes a token as if it were not there."""
    neutral = {"dt": 0.0, "beta": 0.0, "decay": 0.0, "gate": 1.0, "forget_gate": 60.0, "input_gate": -60.0}
    changed = {}
    for field in fields(kernel):
        value = getattr(kernel, field.name)
        if field.name in neutral and field.name not in kernel.static:
            changed[field.name] = value.clone().index_fill(1, torch.tensor([token]), neutral[field.name])
    return replace(kernel, **changed)


@pytest.mark.parametrize("name", KINDS)
def test_a_suppressed_token_hands_nothing_to_later_ones(name: str) -> None:
    trace = traced(name)
    layer, norm = NORMS.get(name, (1, ""))
    mix, token = mix_of(trace, layer), 3
    change = -mixed_by(mix.kernel, handed(mix, token))
    change[: token + 1] = 0
    first = place_of(name, mix, trace)
    heads = {layer: range(first, first + mix.n_heads)}
    with aw.suppress(trace, token, heads=heads):
        suppressed = logits(trace)
    with added(trace, mix, norm, change):
        by_hand = logits(trace)
    torch.testing.assert_close(suppressed, by_hand, rtol=1e-5, atol=5e-6)
    assert (suppressed - logits(trace))[token + 1 :].abs().max() > 1e-3
    torch.testing.assert_close(suppressed[: token + 1], logits(trace)[: token + 1], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "lfm2_moe"])
def test_with_forget_the_state_passes_it_unchanged(name: str) -> None:
    trace = traced(name)
    layer, norm = NORMS.get(name, (1, ""))
    mix, token = mix_of(trace, layer), 3
    values = mix.values[0].double() - handed(mix, token)
    values[token] = 0  # earlier tokens in the convolution there are not written either
    if isinstance(mix.kernel, TimeMix):
        # Its decay is a parameter: the token is cut out of the text.
        rest = [at for at in range(len(IDS)) if at != token]
        short = replace(mix.kernel, key=mix.kernel.key[:, rest])
        mixed = torch.zeros_like(values)
        mixed[rest] = mixed_by(short, values[rest])
    else:
        parts = getattr(mix.kernel, "parts", None)
        kernel = replace(mix.kernel, parts=tuple(without(part, token) for part in parts)) if parts else None
        mixed = mixed_by(kernel or without(mix.kernel, token), values)
    change = mixed - mixed_by(mix.kernel, mix.values[0].double())
    change[: token + 1] = 0
    first = place_of(name, mix, trace)
    heads = {layer: range(first, first + mix.n_heads)}
    with aw.suppress(trace, token, heads=heads, forget=True):
        forgotten = logits(trace)
    with added(trace, mix, norm, change):
        by_hand = logits(trace)
    torch.testing.assert_close(forgotten, by_hand, rtol=1e-5, atol=5e-6)
    with aw.suppress(trace, token, heads=heads):
        assert (forgotten - logits(trace)).abs().max() > 5e-5


@pytest.mark.parametrize("name", KINDS)
def test_a_replaced_row_is_the_sum_of_the_values_with_its_weights(name: str) -> None:
    trace = traced(name)
    layer, norm = NORMS.get(name, (1, ""))
    mix, query = mix_of(trace, layer), 7
    first, count = place_of(name, mix, trace), mix.n_heads
    chosen = [0] if count == 1 else [1, 3]
    matrix = torch.zeros(len(chosen), len(IDS), len(IDS))
    matrix[:, query, : query + 1] = torch.linspace(-1, 2, len(chosen) * (query + 1)).reshape(len(chosen), -1)
    values = mix.values[0].double().unflatten(1, (count, -1))
    mixed = mixed_by(mix.kernel, mix.values[0].double())
    change = torch.zeros_like(mixed).unflatten(1, (count, -1))
    for number, head in enumerate(chosen):
        row = torch.einsum("k,kc->c", matrix[number, query].double(), values[:, head])
        change[query, head] = row - mixed.unflatten(1, (count, -1))[query, head]
    with aw.edit_attention(trace, {layer: [first + head for head in chosen]}, matrix, query=query):
        edited = logits(trace)
    with added(trace, mix, norm, change.flatten(1)):
        by_hand = logits(trace)
    torch.testing.assert_close(edited, by_hand, rtol=1e-5, atol=5e-6)
    assert (edited - logits(trace))[query].abs().max() > 1e-3


@pytest.mark.parametrize("name", KINDS)
def test_several_tokens_are_suppressed_together_and_still_read_themselves(name: str) -> None:
    """By linearity: row by row the sum of the parts of all sources but the row's token."""
    trace = traced(name)
    layer, norm = NORMS.get(name, (1, ""))
    mix, sources = mix_of(trace, layer), (2, 3, 6)
    change = torch.zeros_like(mix.values[0].double())
    for token in sources:
        lost = mixed_by(mix.kernel, handed(mix, token))
        lost[: min(sources) + 1] = lost[token] = 0
        change -= lost
    heads = {layer: "all"} if mix.n_heads == 1 or name != "falcon_h1" else {layer: range(4, 8)}
    with aw.suppress(trace, sources, heads=heads):
        suppressed = logits(trace)
    with added(trace, mix, norm, change):
        torch.testing.assert_close(suppressed, logits(trace), rtol=1e-5, atol=5e-6)
    # Named targets do not read themselves either.
    target = (3, 5)
    change = torch.zeros_like(change)
    for token in sources:
        for row in target:
            change[row] -= mixed_by(mix.kernel, handed(mix, token))[row]
    with aw.suppress(trace, sources, target, heads=heads):
        suppressed = logits(trace)
    with added(trace, mix, norm, change):
        torch.testing.assert_close(suppressed, logits(trace), rtol=1e-5, atol=5e-6)


def test_one_call_reaches_attention_and_kernels() -> None:
    trace = traced("qwen3_5_text")
    suppressed = trace.rerun(aw.suppress(trace, 3))
    assert suppressed.interventions == (
        "tokens 3 not read by tokens after them; the state of layers 0 to 2 still decays there",
    )
    assert not suppressed.attention_layer(3)[:, 4:, 3].any()
    # Layer by layer, each alone.
    with aw.suppress(trace, 3, heads={3: "all"}), aw.suppress(trace, 3, heads={0: "all"}):
        with aw.suppress(trace, 3, heads={1: "all", 2: "all"}):
            apart = logits(trace)
        assert (apart - logits(trace)).abs().max() > 1e-4
    torch.testing.assert_close(torch.as_tensor(suppressed.logits), apart, rtol=1e-5, atol=1e-6)
    # Later predictions no longer depend on the token's state there, only on convolutions.
    forgotten = trace.rerun(aw.suppress(trace, 3, forget=True))
    assert forgotten.interventions[0].endswith("the state of layers 0 to 2 is not changed there")
    assert (torch.as_tensor(forgotten.logits) - apart).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["mamba2", "qwen3_5_text", "falcon_h1", "lfm2_moe"])
def test_a_token_that_all_layers_suppress_leaves_the_rest_as_it_changes(name: str) -> None:
    """Suppressed in the first layer too, its embedding reaches later rows through gates alone."""
    trace = traced(name)
    with aw.drop_tokens(trace, [3]):
        dropped = logits(trace)
    with aw.suppress(trace, 3, forget=name != "lfm2_moe"):
        torch.testing.assert_close(logits(trace), dropped, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["mamba2", "qwen3_5_text", "recurrent_gemma", "lfm2_moe", "xlstm", "minimax"]
)
def test_rows_of_several_texts_are_changed_alike(name: str) -> None:
    trace = traced(name)
    layer = NORMS[name][0]
    other = IDS.flip(0)
    matrix = torch.zeros(len(IDS), len(IDS))
    matrix[7, :8] = 0.5
    for intervention in (
        aw.suppress(trace, 3, heads={layer: "all"}),
        aw.edit_attention(trace, {layer: "all"}, matrix, query=7),
    ):
        with intervention, torch.no_grad():
            both = trace.model(torch.stack([IDS, other]), use_cache=False).logits
            alone = trace.model(other[None], use_cache=False).logits
        torch.testing.assert_close(both[1:], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["mamba", "mamba2", "qwen3_5_text", "kimi_linear", "minimax", "xlstm", "lfm2_moe"]
)
def test_a_row_on_one_token_is_its_value_and_other_changes_come_with_it(name: str) -> None:
    trace = traced(name)
    layer = NORMS[name][0]
    matrix = torch.zeros(len(IDS), len(IDS))
    matrix[5:, 4] = 1
    rows = range(5, len(IDS))
    with aw.edit_attention(trace, {layer: [0]}, matrix, query=rows):
        set_to = logits(trace)
    with aw.edit_attention(trace, {layer: [0]}, "one_hot", key=4, query=rows):
        torch.testing.assert_close(logits(trace), set_to, rtol=1e-6, atol=1e-6)
        # A suppression that follows takes the token's part from the row.
        with aw.suppress(trace, 4, heads={layer: [0]}):
            assert (logits(trace) - set_to).abs().max() > 1e-4
    # The order is that in which they were entered.
    with (
        aw.suppress(trace, 4, heads={layer: [0]}),
        aw.edit_attention(trace, {layer: [0]}, matrix, query=rows),
    ):
        torch.testing.assert_close(logits(trace), set_to, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["mamba2", "qwen3_5_text", "minimax", "xlstm"])
def test_a_head_that_was_ablated_stays_so_where_tokens_are_suppressed(name: str) -> None:
    trace = traced(name)
    layer, norm = NORMS[name]
    mix = mix_of(trace, layer)
    with aw.ablate_heads(trace, {layer: "all"}):
        without = logits(trace)
        with aw.suppress(trace, 3, heads={layer: "all"}):
            torch.testing.assert_close(logits(trace), without, rtol=1e-6, atol=1e-6)
    with aw.suppress(trace, 3, heads={layer: "all"}), aw.ablate_heads(trace, {layer: "all"}):
        torch.testing.assert_close(logits(trace), without, rtol=1e-6, atol=1e-6)
    # Two suppressions are that of both tokens.
    with aw.suppress(trace, 3, heads={layer: "all"}), aw.suppress(trace, 5, heads={layer: "all"}):
        both = logits(trace)
    change = -mixed_by(mix.kernel, handed(mix, 3)), -mixed_by(mix.kernel, handed(mix, 5))
    change[0][:4], change[1][:6] = 0, 0
    with added(trace, mix, norm, change[0] + change[1]):
        torch.testing.assert_close(both, logits(trace), rtol=1e-5, atol=5e-6)


def test_what_has_no_meaning_or_no_effect_is_refused() -> None:
    trace, softmax = traced("qwen3_5_text"), aw.trace(*aw.demo_model("encoder"), "The cat sat.")
    with pytest.raises(UnsupportedModelError, match=r"'uniform' deals out .* layer 1 \(gated delta rule\)"):
        aw.edit_attention(trace, (1, 0), "uniform")
    with pytest.raises(UnsupportedModelError, match="'permuted'"):
        aw.edit_attention(trace, {1: "all"}, "permuted")
    with pytest.raises(ValueError, match="forget=True has no effect"):
        aw.suppress(softmax, 1, forget=True)
    with pytest.raises(ValueError, match="forget=True has no effect"):
        aw.suppress(traced("lfm2_moe"), 1, forget=True)
    with pytest.raises(ValueError, match="forget=True has no effect"):
        aw.suppress(trace, 1, heads={3: "all"}, forget=True)
    with pytest.raises(UnsupportedModelError, match="pass a trace"):
        aw.suppress(trace.model, 1)
    with pytest.raises(UnsupportedModelError, match="pass a trace"):
        aw.drop_tokens(trace.model, 1)
    with pytest.raises(ValueError, match="negative"):
        aw.edit_attention(trace, {1: [0], 3: [0]}, -torch.eye(len(IDS)))
    later = torch.ones(len(IDS), len(IDS))
    with (
        aw.edit_attention(trace, (1, 0), later, query=2),
        pytest.raises(ValueError, match="token 2 read token 3"),
    ):
        logits(trace)
    with pytest.raises(ValueError, match="name heads of its kernels"):
        aw.edit_attention(traced("mamba2"), None, "one_hot", key=1)
    with pytest.raises(ValueError, match="of several mixers"):
        aw.edit_attention(traced("falcon_h1"), {1: [0, 4]}, torch.stack([later.tril()] * 2))


def test_without_heads_named_rows_of_attention_alone_are_replaced() -> None:
    trace = traced("qwen3_5_text")
    edited = trace.rerun(aw.edit_attention(trace, None, "uniform"))
    assert edited.interventions == ("attention of heads 0 to 3 of layer 3 uniform",)


GENERATED = {
    "max_new_tokens": 4,
    "min_new_tokens": 4,
    "do_sample": False,
    "output_logits": True,
    "return_dict_in_generate": True,
}


def assert_generates_as_whole_texts(trace: Any, intervention: Any, *, use_cache: bool) -> None:
    with intervention, torch.no_grad():
        steps = trace.model.generate(IDS[None], use_cache=use_cache, **GENERATED)
        whole = trace.model(steps.sequences, use_cache=False).logits[0]
    generated = torch.stack(steps.logits)[:, 0]
    # Generation forbids the end of the text, which the model does not.
    allowed = generated.isfinite()
    expected = whole[len(IDS) - 1 : -1]
    torch.testing.assert_close(generated[allowed], expected[allowed], rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        plain = trace.model(steps.sequences, use_cache=False).logits[0]
    assert (plain - whole).abs().max() > 1e-4


@pytest.mark.parametrize(
    "name", ["mamba", "mamba2", "qwen3_5_text", "kimi_linear", "minimax", "recurrent_gemma", "lfm2_moe"]
)
def test_generation_is_exact_or_refused(name: str) -> None:
    trace = traced(name)
    heads = {NORMS[name][0]: [0]}
    suppressed = aw.suppress(trace, 3, heads=heads)
    assert_generates_as_whole_texts(trace, suppressed, use_cache=False)
    with suppressed, pytest.raises(UnsupportedModelError, match=r"suppress changes .* pass use_cache"):
        trace.model.generate(IDS[None], use_cache=True, **GENERATED)
    every = aw.edit_attention(trace, heads, "one_hot", key=2)
    assert_generates_as_whole_texts(trace, every, use_cache=False)
    with every, pytest.raises(UnsupportedModelError, match=r"edit_attention changes .* pass use_cache"):
        trace.model.generate(IDS[None], use_cache=True, **GENERATED)
    if name == "recurrent_gemma":
        return  # its state is not told apart from an earlier text's
    # Changes before the first new token leave the state as it is.
    row = torch.zeros(len(IDS), len(IDS))
    row[7, :8] = 0.5
    for use_cache in (False, True):
        edited = aw.edit_attention(trace, heads, row, query=7)
        assert_generates_as_whole_texts(trace, edited, use_cache=use_cache)
        named = aw.suppress(trace, 3, [4, 5, 6, 7], heads=heads)
        assert_generates_as_whole_texts(trace, named, use_cache=use_cache)


def test_maps_of_what_the_kernel_would_have_done_are_refused() -> None:
    trace = traced("mamba2")
    suppressed = aw.suppress(trace, 3, heads={1: [0]})
    with suppressed:
        changed = trace.rerun()
        for measure in ("share", "kernel"):
            with pytest.raises(UnsupportedModelError, match="where an intervention suppresses tokens"):
                aw.mixing(changed, measure).layer(1)
            assert aw.mixing(changed, measure).layer(2).any()
        with pytest.raises(UnsupportedModelError, match="relevance is not conserved"):
            aw.lrp(changed)
        slope = aw.input_x_gradient(changed, target=30).values
    plain = aw.input_x_gradient(trace, target=30).values
    assert abs(slope - plain).max() > 1e-5


@pytest.mark.parametrize("name", ["mamba2", "qwen3_5_text", "minimax", "recurrent_gemma"])
def test_gradients_see_the_changed_model(name: str) -> None:
    """Against differences of the changed model itself."""
    trace = traced(name)
    model = trace.model
    embeddings = model.get_input_embeddings()(IDS[None]).detach()
    direction = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(0))
    with aw.suppress(trace, 3, heads={NORMS[name][0]: "all"}):
        states = embeddings.clone().requires_grad_()
        score = model(inputs_embeds=states, use_cache=False).logits[0, -1, 30]
        (slope,) = torch.autograd.grad(score, states)
        with torch.no_grad():
            step = 2e-4
            moved = torch.cat([embeddings + step * direction, embeddings - step * direction])
            up, down = model(inputs_embeds=moved, use_cache=False).logits[:, -1, 30]
    torch.testing.assert_close((slope * direction).sum(), (up - down) / (2 * step), rtol=2e-2, atol=2e-3)


def test_in_a_model_whose_circuit_is_known_forgetting_is_told_from_reading() -> None:
    """It answers with the letter before the last marker, whose position erases the marker before."""
    trace = aw.trace(*aw.zoo.last_marked(), "cf#bd#aheg")

    def answer(intervention: Any) -> tuple[str, float]:
        (first,) = trace.rerun(intervention).predictions(1)
        return first.label, round(first.probability, 2)

    assert answer(aw.suppress(trace, 1)) == ("d", 1.0)
    assert answer(aw.suppress(trace, 5))[1] == 0.1
    assert answer(aw.suppress(trace, 6)) == ("d", 1.0)
    assert answer(aw.suppress(trace, 6, forget=True)) == ("f", 1.0)
    assert answer(aw.edit_attention(trace, {0: [0]}, "one_hot", key=3, query=10)) == ("f", 1.0)


@pytest.mark.parametrize("name", ["qwen3_5_text", "mamba2"])
def test_sentences_are_suppressed_in_kernels_too(name: str) -> None:
    trace = traced(name)
    dependence = aw.circuits.sentence_attribution(trace, unit=[(0, 3), (3, 6), (6, 11)])
    with aw.suppress(trace, range(3, 6), range(6, 11)):
        suppressed = logits(trace)
    before, after = (rows[6:].double().log_softmax(-1) for rows in (logits(trace), suppressed))
    divergence = (before.exp() * (before - after)).sum(-1).mean()
    assert divergence > 1e-3
    assert abs(float(dependence.values[0, 2, 1]) - float(divergence)) < 1e-5
