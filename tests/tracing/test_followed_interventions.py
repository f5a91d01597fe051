"""Attention that models compute themselves, changed by interventions and read by methods of maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack as modes

import attnwidgets as aw
from attnwidgets.explanations.attribution.signed_attention import attention_gradients
from attnwidgets.tracing.recording.borrow import borrowed
from attnwidgets.tracing.recording.recorder import recording
from tests.tracing import tiny
from tests.tracing.test_families import IDS
from tests.tracing.test_following import CLOSE, DIM, HEAD, HEADS, KEY, built, logits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Values = Callable[[torch.Tensor], torch.Tensor]


def by_heads(parts: int, part: int) -> Values:
    """Return the values in a fused projection [batch, token, head * part * dim]."""
    return lambda fused: fused.unflatten(-1, (HEADS, parts, DIM))[..., part, :]


def plain(projected: torch.Tensor) -> torch.Tensor:
    """Return the values in an unfused projection."""
    return projected


# The value projection and the output projection of block N, and where the values stand in the former.
HOOKS: dict[str, tuple[str, str, Values]] = {
    "DeBERTa": (
        "deberta.encoder.layer.N.attention.self.value_proj",
        "deberta.encoder.layer.N.attention.output.dense",
        plain,
    ),
    "MPNet": ("mpnet.encoder.layer.N.attention.attn.v", "mpnet.encoder.layer.N.attention.attn.o", plain),
    "GPT-Neo": (
        "transformer.h.N.attn.attention.v_proj",
        "transformer.h.N.attn.attention.out_proj",
        plain,
    ),
    "BLOOM": (
        "transformer.h.N.self_attention.query_key_value",
        "transformer.h.N.self_attention.dense",
        by_heads(3, 2),
    ),
    # A single key/value head behind all queries.
    "Falcon": (
        "transformer.h.N.self_attention.query_key_value",
        "transformer.h.N.self_attention.dense",
        lambda fused: fused[..., -DIM:],
    ),
}


def hooked(model: Any, layer: int, path: str, hook: Any, *, before: bool = False) -> torch.Tensor:
    """Return the logits of a model with a hook on a module of a block."""
    module = model.get_submodule(path.replace("N", str(layer)))
    handle = module.register_forward_pre_hook(hook) if before else module.register_forward_hook(hook)
    logits = logits_of(model)
    handle.remove()
    return logits


def without_head(_: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Set a head's part of the output projection's input to zero."""
    states = args[0].clone()
    states[..., HEAD * DIM : (HEAD + 1) * DIM] = 0
    return (states, *args[1:])


@pytest.mark.parametrize("family", HOOKS)
def test_editing_values_is_a_hook_on_their_projection(family: str) -> None:
    model, (path, _, values) = built(family), HOOKS[family]

    def zero(_: nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        values(output)[:, KEY] = 0
        return output

    for layer in range(2):

        def edit(
            index: int, _: nn.Module, weights: torch.Tensor, values: torch.Tensor, layer: int = layer
        ) -> tuple[torch.Tensor, torch.Tensor]:
            if index == layer:
                values = values.clone()
                values[:, :, KEY] = 0
            return weights, values

        expected = hooked(model, layer, path, zero)
        with borrowed(model) as twin, recording(twin, [edit]):
            zeroed = twin(input_ids=torch.tensor([IDS])).logits
        torch.testing.assert_close(zeroed, expected, **CLOSE)
        assert (expected - logits_of(model)).abs().max() > 1e-3


@pytest.mark.parametrize("family", HOOKS)
def test_an_ablated_head_is_one_whose_output_is_zero(family: str) -> None:
    model, (_, path, _) = built(family), HOOKS[family]
    before = logits_of(model)
    traced = aw.trace(model, None, IDS)
    for layer in range(2):
        expected = hooked(model, layer, path, without_head, before=True)
        for made_with in (model, traced):
            with aw.ablate_heads(made_with, (layer, HEAD)):
                torch.testing.assert_close(logits_of(model), expected, **CLOSE)
                again = aw.trace(model, None, IDS)
            torch.testing.assert_close(again.logits, expected[0], **CLOSE)
        torch.testing.assert_close(
            traced.rerun(aw.ablate_heads(traced, (layer, HEAD))).logits, expected[0], **CLOSE
        )
    assert torch.equal(logits_of(model), before)
    assert not modes()


def test_heads_and_values_of_a_model_without_projections_to_hook() -> None:
    """XLNet multiplies with matrices: its function of queries, keys and values is wrapped."""
    model = built("XLNet")
    traced = aw.trace(model, None, IDS)
    for layer in range(2):
        attention = model.transformer.layer[layer].rel_attn
        plain_core = attention.rel_attn_core

        def core(*args: Any, plain_core: Any = plain_core, **options: Any) -> Any:
            output = plain_core(*args, **options).clone()
            output[:, :, HEAD] = 0
            return output

        attention.rel_attn_core = core
        expected = logits_of(model)
        del attention.rel_attn_core
        changed = traced.rerun(aw.ablate_heads(traced, (layer, HEAD)))
        torch.testing.assert_close(changed.logits, expected[0], **CLOSE)

    # Of the last block, whose states are [token, batch, width].
    def without_key(query: Any, key: Any, values: torch.Tensor, *rest: Any, **options: Any) -> Any:
        values = values.clone()
        values[KEY] = 0
        return plain_core(query, key, values, *rest, **options)

    states: list[torch.Tensor] = []
    model.transformer.layer[1].register_forward_hook(lambda *given: states.append(given[2][0][:, 0]))
    logits_of(model)
    attention.rel_attn_core = without_key
    logits_of(model)
    del attention.rel_attn_core
    before, after = (each.double() / each.double().norm(dim=-1, keepdim=True) for each in states)
    zeroed = aw.value_zeroing(traced, normalize=False, layers=1)
    np.testing.assert_allclose(
        zeroed.layer(1)[:, KEY], 0.5 * (before - after).pow(2).sum(-1), rtol=1e-3, atol=1e-9
    )


@pytest.mark.parametrize("family", tiny.OUTSIDE)
def test_one_token_that_nobody_reads_changes_what_follows_from_it(family: str) -> None:
    result = aw.trace(built(family), None, IDS)
    dropped = result.rerun(aw.suppress(result, KEY, range(KEY + 1, len(IDS))))
    rows = dropped.attention_layer(0)[:, KEY + 1 :]
    assert not rows[..., KEY].any()
    torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:2]))
    plain_rows = result.attention_layer(0)[:, KEY + 1 :]
    rest = plain_rows.clone()
    rest[..., KEY] = 0
    torch.testing.assert_close(rows, rest / rest.sum(-1, keepdim=True), **CLOSE)


@pytest.mark.parametrize("family", ["BLOOM", "GPT-Neo", "MPNet", "XLNet"])
def test_uniform_rows_are_over_the_keys_that_a_query_may_read(family: str) -> None:
    result = aw.trace(built(family), None, IDS)
    edited = result.rerun(aw.edit_attention(result, (0, 0), "uniform")).attention_layer(0)[0]
    n = len(IDS)
    is_causal = family in ("BLOOM", "GPT-Neo")
    read = torch.ones(n, n).tril() if is_causal else torch.ones(n, n)
    torch.testing.assert_close(edited, read / read.sum(-1, keepdim=True))


def test_generated_text_under_an_intervention_is_that_of_the_hook() -> None:
    model, (_, path, _) = built("BLOOM"), HOOKS["BLOOM"]
    module = model.get_submodule(path.replace("N", "0"))
    handle = module.register_forward_pre_hook(without_head)
    ids = torch.tensor([IDS])
    options = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0, "attention_mask": ids * 0 + 1}
    expected = model.generate(ids, **options)
    handle.remove()
    with aw.ablate_heads(model, (0, HEAD)):
        assert torch.equal(model.generate(ids, **options), expected)


def test_a_part_of_a_model_is_changed_too() -> None:
    model = built("MPNet")
    ids = torch.tensor([IDS])
    with torch.no_grad():
        whole = model.mpnet(ids).last_hidden_state
        with aw.ablate_heads(model, (0, HEAD)):
            assert not torch.allclose(model.mpnet(ids).last_hidden_state, whole)
        assert torch.equal(model.mpnet(ids).last_hidden_state, whole)


@pytest.mark.parametrize("family", HOOKS)
def test_value_zeroing_moves_tokens_as_the_hook_does(family: str) -> None:
    model, (path, _, values) = built(family), HOOKS[family]
    zeroed = aw.value_zeroing(aw.trace(model, None, IDS), normalize=False, layers=1)
    states: list[torch.Tensor] = []
    model.get_submodule(path[: path.index("N")] + "1").register_forward_hook(
        lambda _, __, output: states.append(output[0][0] if isinstance(output, tuple) else output[0])
    )

    def zero(_: nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        values(output)[:, KEY] = 0
        return output

    logits_of(model)
    hooked(model, 1, path, zero)
    before, after = (each.double() / each.double().norm(dim=-1, keepdim=True) for each in states)
    distances = 0.5 * (before - after).pow(2).sum(-1)
    np.testing.assert_allclose(zeroed.layer(1)[:, KEY], distances, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("family", tiny.OUTSIDE)
def test_gradients_times_attention_are_the_slope_of_a_score(family: str) -> None:
    """Summed over a layer, they are the derivative of the score by a factor on all of its weights."""
    target, step = 7, 1e-3
    model = built(family).double()
    traced = aw.trace(model, None, IDS)
    by_weight = attention_gradients(traced, lambda outputs: outputs.logits[:, -1, target], "test")

    def score(factor: float) -> float:
        def scaled(
            index: int, _: nn.Module, weights: torch.Tensor, values: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return (weights * factor if index == 1 else weights), values

        with borrowed(model) as twin, recording(twin, [scaled]):
            return float(twin(input_ids=torch.tensor([IDS])).logits[0, -1, target])

    slope = (score(1 + step) - score(1 - step)) / (2 * step)
    assert abs(slope) > 1e-3
    assert by_weight.product("self", 1).sum() == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("family", tiny.OUTSIDE)
def test_methods_of_maps_and_gradients_take_these_traces(family: str) -> None:
    traced = aw.trace(built(family), None, IDS)
    target = aw.targets.token(7, position=len(IDS) - 1)
    for explained in (aw.rollout(traced), aw.chefer(traced, target), aw.signed_attention(traced, target)):
        assert np.isfinite(explained.values).all()
        assert explained.values.any()
    block = traced.anatomy.stacks["self"][0]
    assert block.is_recorded
    assert [mixer.heads for mixer in block.mixers] == [HEADS]
