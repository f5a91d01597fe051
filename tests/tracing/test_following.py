"""Attention that models compute themselves, recorded where its softmax meets the values."""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn
from torch.overrides import _get_current_function_mode_stack as modes

import attnwidgets as aw
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.layers import FollowedLayer, RecordedLayer
from attnwidgets.tracing.recording.borrow import borrowed
from attnwidgets.tracing.recording.calls import FollowedCall
from attnwidgets.tracing.recording.recorder import recording
from tests.tracing import tiny
from tests.tracing.test_families import IDS, assert_same, eager

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Values = Callable[[torch.Tensor], torch.Tensor]

KEY, HEAD = 3, 1
HEADS, DIM = 4, 8
# In float32, between our product and torch's, which sums in another order.
CLOSE = {"rtol": 1e-4, "atol": 2e-6}


def built(family: str, implementation: str | None = None) -> Any:
    """Return a tiny model with biases and gains that show."""
    model = tiny.build(tiny.OUTSIDE[family], implementation=implementation)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def logits_of(model: Any) -> torch.Tensor:
    """Return a model's logits by a plain call."""
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor([IDS])).logits
    return logits


# Eager attention of Falcon returns weights without a causal mask in transformers 5.24.
@pytest.mark.parametrize("family", [family for family in tiny.OUTSIDE if family != "Falcon"])
def test_weights_are_those_that_the_model_returns(family: str) -> None:
    model = built(family)
    before = logits_of(model)
    result = aw.trace(model, None, IDS)
    assert torch.equal(result.logits, before[0]), "bit for bit"
    assert_same(result, "self", eager(model, input_ids=torch.tensor([IDS])).attentions)
    assert all(isinstance(layer, FollowedLayer) for layer in result.stack_table["self"].layers)
    assert "recorded where its softmax meets the values" in result.warning
    with pytest.raises(ValueError, match=r"queries and keys were not recorded.*outside transformers"):
        result.query_key(0)


def test_a_fused_kernel_is_recorded_with_its_queries_and_keys() -> None:
    model = built("Falcon")
    result = aw.trace(model, None, IDS)
    torch.testing.assert_close(result.logits, logits_of(model)[0], **CLOSE)
    assert all(isinstance(layer, RecordedLayer) for layer in result.stack_table["self"].layers)
    weights = result.attention_layer(1)
    assert not weights.triu(1).any()
    query, key = result.query_key(1)
    scores = (query @ key.expand(HEADS, -1, -1).mT * DIM**-0.5).masked_fill(
        torch.ones(len(IDS), len(IDS)).triu(1) > 0, float("-inf")
    )
    torch.testing.assert_close(weights, scores.softmax(-1), **CLOSE)


@pytest.mark.parametrize("family", [family for family in tiny.OUTSIDE if family != "XLNet"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-5)])
def test_blocks_are_described(family: str, dtype: torch.dtype, tolerance: float) -> None:
    traced = aw.trace(built(family).to(dtype), None, IDS)
    for layer in traced.layers():
        block = block_of(traced, layer, "self", "alti")
        torch.testing.assert_close(block.recomputed(), block.output, rtol=tolerance, atol=tolerance)
        block.value_projection()
    assert np.isfinite(aw.alti(traced).values).all()
    assert np.isfinite(aw.attention_norm(traced).values).all()


REFERENCES: dict[str, tuple[str, dict[str, Any]]] = {
    "deberta-v2": (
        "DebertaV2ForMaskedLM",
        {
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "max_position_embeddings": 64,
            "pooler_hidden_size": 32,
            "position_biased_input": False,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
        },
    ),
    "mpnet": (
        "MPNetForMaskedLM",
        {
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
            "bos_token_id": 1,
        },
    ),
    "bloom": ("BloomForCausalLM", {"hidden_size": 32, "n_layer": 3, "n_head": 4, "pad_token_id": 0}),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        {
            "hidden_size": 32,
            "num_layers": 3,
            "num_heads": 4,
            "max_position_embeddings": 64,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "attention_types": [[["global", "local", "global"], 1]],
        },
    ),
    "xlnet": (
        "XLNetLMHeadModel",
        {"d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 48, "d_head": 8, "pad_token_id": 0},
    ),
}


@pytest.mark.parametrize("family", REFERENCES)
def test_weights_and_values_are_those_of_the_reference(family: str, shared: Path) -> None:
    """The references were stored from a pass in float32, by other code."""
    folder = shared / "reference" / "mixers"
    kind, options = REFERENCES[family]
    model_class = getattr(hf, kind)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(vocab_size=128, **options)).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    expected = np.load(folder / f"seen-{family}-0.npz")
    with borrowed(model) as twin, recording(twin, keeps=True) as session:
        twin(input_ids=torch.tensor(expected["ids"])[None])
    manifest = json.loads((folder / "manifest-attention.json").read_text("utf-8"))
    assert [call.name for call in session.calls] == manifest["files"][f"seen {family}"]["calls"]
    for layer, call in enumerate(session.calls):
        assert isinstance(call, FollowedCall)
        np.testing.assert_allclose(call.weights[0], expected[f"{layer}.weights"], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(call.values[0], expected[f"{layer}.values"], rtol=1e-4, atol=1e-6)


def test_other_threads_and_other_models_are_not_followed() -> None:
    recorded, other = built("MPNet"), built("MPNet")
    ids = torch.tensor([IDS])
    stacks: list[int] = []

    def look(*_: object) -> None:
        other(ids)
        thread = threading.Thread(target=lambda: (stacks.append(len(modes())), recorded(ids)))
        thread.start()
        thread.join()
        stacks.append(len(modes()))

    with borrowed(recorded) as twin, recording(twin) as session:
        twin.mpnet.encoder.layer[1].register_forward_pre_hook(look)
        twin(ids)
        assert not modes(), "nothing is followed between passes"
    assert stacks == [0, 1]
    assert [call.name for call in session.calls] == [
        f"mpnet.encoder.layer.{n}.attention.attn" for n in (0, 1)
    ]
    assert all(isinstance(call, FollowedCall) for call in session.calls)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_pass_that_ends_in_the_middle_is_followed_no_longer(error: type[BaseException]) -> None:
    model = built("MPNet")

    def fail(*_: object) -> None:
        raise error

    handle = model.mpnet.encoder.layer[1].register_forward_pre_hook(fail)
    with pytest.raises(error):
        aw.trace(model, None, IDS)
    assert not modes()
    attention = model.mpnet.encoder.layer[0].attention.attn.o.register_forward_pre_hook(fail)
    with pytest.raises(error), aw.ablate_heads(model, (0, 0)):
        logits_of(model)
    assert not modes()
    handle.remove()
    attention.remove()
    assert aw.trace(model, None, IDS).n_layers() == 2


def test_an_error_of_the_model_is_told_with_its_inputs() -> None:
    model = built("MPNet")
    model.mpnet.encoder.layer[1].attention.LayerNorm.weight = nn.Parameter(torch.ones(31))
    with pytest.raises(ValueError, match=r"raised RuntimeError when it was run on input_ids \[1, 9\]"):
        aw.trace(model, None, IDS)


class Pooled(nn.Module):
    """Attention over positions of the width, and a mean by a softmax that meets no values in a product."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, hidden_states: torch.Tensor, *args: Any, **options: Any) -> Any:
        kernel = (hidden_states[..., :5].unsqueeze(-2) * self.scale).softmax(-1)  # [batch, token, 1, 5]
        mixed = kernel @ hidden_states[..., :5].unsqueeze(-1)
        return self.inner(hidden_states + 0 * mixed.squeeze(-1), *args, **options)


def test_products_over_something_other_than_tokens_are_none() -> None:
    model = built("MPNet")
    expected = aw.trace(model, None, IDS)
    for layer in model.mpnet.encoder.layer:
        layer.intermediate = Pooled(layer.intermediate)
    result = aw.trace(model, None, IDS)
    assert result.n_layers() == 2
    np.testing.assert_array_equal(result.attention_layer(1), expected.attention_layer(1))


def test_a_softmax_that_meets_no_values_is_named() -> None:
    model = tiny.build(
        lambda: hf.ProphetNetForConditionalGeneration(
            hf.ProphetNetConfig(
                vocab_size=tiny.VOCAB, hidden_size=32, encoder_ffn_dim=37, decoder_ffn_dim=37,
                num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4,
                num_decoder_attention_heads=4, max_position_embeddings=64, decoder_start_token_id=0,
            )
        )
    )  # fmt: skip
    result = aw.trace(model, None, IDS, max_new_tokens=3)
    assert result.stacks == ("encoder", "cross")
    assert re.search(
        r"layer 0 \(ProphetNetNgramSelfAttention\) has a softmax of \[1, [\d, ]+\] that this version cannot "
        "follow to its values; its map is missing, and rollout over all layers is refused",
        result.warning,
    )
    assert aw.value_zeroing(result, stack="encoder").values.any()


def test_a_list_of_texts_is_recorded_in_one_pass() -> None:
    for family in ("MPNet", "BLOOM", "GPT-Neo"):
        model = built(family)
        rows = torch.tensor([IDS, IDS[:4] + [1] * (len(IDS) - 4)])
        mask = torch.ones_like(rows)
        mask[1, 4:] = 0
        both = aw.trace(model, None, input_ids=rows, attention_mask=mask)
        alone = aw.trace(model, None, IDS[:4])
        torch.testing.assert_close(both[1].attention_layer(1), alone.attention_layer(1), **CLOSE)


def squeezebert() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "embedding_size": 32, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    groups = {f"{name}_groups": 2 for name in ("q", "k", "v", "intermediate", "output")}
    model = hf.SqueezeBertModel(hf.SqueezeBertConfig(vocab_size=100, intermediate_size=48, **sizes, **groups))
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape)
    return model.eval()


def test_states_that_convolutions_read_have_their_tokens_last() -> None:
    """SqueezeBERT's blocks pass [batch, width, token], and return scores instead of weights."""
    model = squeezebert()
    result = aw.trace(model, None, IDS)
    with torch.no_grad():
        plain_output = model(torch.tensor([IDS]), output_attentions=True)
    for layer, scores in enumerate(plain_output.attentions):
        torch.testing.assert_close(result.attention_layer(layer), scores[0].softmax(-1), **CLOSE)
    # A head is ablated where its channels come out of the product with the values.
    module = model.encoder.layers[1].attention.matmul_qkv

    def zero(_: nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        output[:, HEAD] = 0
        return output

    handle = module.register_forward_hook(zero)
    with torch.no_grad():
        expected = model(torch.tensor([IDS])).last_hidden_state
    handle.remove()
    with aw.ablate_heads(result, {1: [HEAD]}), torch.no_grad():
        ablated = model(torch.tensor([IDS])).last_hidden_state
    torch.testing.assert_close(ablated, expected, **CLOSE)
    assert float((ablated - plain_output.last_hidden_state).abs().max()) > 1e-3


def wavlm() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 48}
    convolutions = {"conv_dim": (32,), "conv_stride": (5,), "conv_kernel": (10,)}
    positions = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
    config = hf.WavLMConfig(**sizes, **convolutions, **positions, num_feat_extract_layers=1)
    model = hf.WavLMModel(config)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape)
    return model.eval()


def test_projections_and_attention_in_one_call_of_torch_are_recorded() -> None:
    """WavLM returns the mean of its heads; each is recorded, with the bias that is added to its scores."""
    model, sound = wavlm(), torch.randn(200, generator=torch.Generator().manual_seed(1))
    result = aw.trace(model, None, audio=sound.tolist())
    assert not result.warning
    seen: dict[str, torch.Tensor] = {}
    module = model.encoder.layers[1].attention

    def keep(_: nn.Module, given: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
        seen.update(read=(given or (options["hidden_states"],))[0][0], out=output[0][0])

    hook = module.register_forward_hook(keep, with_kwargs=True)
    with torch.no_grad():
        returned = model(**result.inputs, output_attentions=True).attentions
    hook.remove()
    for layer in result.layers():
        weights = result.attention_layer(layer)
        assert weights.shape[0] == HEADS
        torch.testing.assert_close(weights.mean(0), returned[layer][0, 0], **CLOSE)
    values = module.v_proj(seen["read"]).unflatten(-1, (HEADS, -1)).transpose(0, 1)
    mixed = (result.attention_layer(1) @ values).transpose(0, 1).flatten(1)
    torch.testing.assert_close(module.out_proj(mixed), seen["out"], **CLOSE)
    zeroed = aw.value_zeroing(result, normalize=False).layer(1)
    assert zeroed.shape == weights.shape[1:]
    assert float(zeroed.max()) > 0
