"""A trace is of the model as the user has it, whatever was changed in it; or its warning says why not."""

from __future__ import annotations

import functools
import types
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import peft
import pytest
import torch
import transformers as hf
import transformers.models.llama.modeling_llama as llama
from torch.nn.utils import parametrizations, prune
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import attnwidgets as aw
from attnwidgets.tracing.recording import recorder
from attnwidgets.tracing.recording.returned import returned_weights
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing.families import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IDS = [5, 17, 31, 9, 44]
SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32}
SMALL |= {"vocab_size": 100, "intermediate_size": 48}


def made() -> Any:
    """A random Llama whose attention is far from uniform."""
    needs("interface", "Llama")
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL)).eval()
    for parameter in model.parameters():
        parameter.data *= 8
    return model


def attentions(model: Any) -> Iterator[Any]:
    return (layer.self_attn for layer in model.model.layers)


def sigmoid(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float = 1, **_: Any) -> Any:
    """Attention whose rows sum to less than one."""
    del module
    times = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    scores = query @ key.transpose(-1, -2) * scaling + mask
    weights = torch.sigmoid(scores) * (scores > -1e4)
    weights = weights / (weights.sum(-1, keepdim=True) + 1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def backend(model: Any, _: pytest.MonkeyPatch) -> None:
    AttentionInterface.register("sigmoid", sigmoid)
    AttentionMaskInterface.register("sigmoid", eager_mask)
    model.set_attn_implementation("sigmoid")


def eager_replaced(model: Any, patch: pytest.MonkeyPatch) -> None:
    plain: Any = llama.eager_attention_forward
    model.set_attn_implementation("eager")
    patch.setattr(
        llama,
        "eager_attention_forward",
        lambda m, q, k, v, mask, scaling, **more: plain(m, q, k, v, mask, scaling * 30, **more),
    )


def without_cause(model: Any, _: pytest.MonkeyPatch) -> None:
    for module in attentions(model):
        module.is_causal = False


def other_scaling(model: Any, _: pytest.MonkeyPatch) -> None:
    for module in attentions(model):
        module.scaling *= 2


def other_epsilon(model: Any, _: pytest.MonkeyPatch) -> None:
    model.model.norm.variance_epsilon = 10.0


def hook(model: Any, _: pytest.MonkeyPatch) -> None:
    model.model.layers[0].register_forward_hook(lambda _, __, output: output * 3)


def hook_on_heads(model: Any, _: pytest.MonkeyPatch) -> None:
    gate = torch.cat([torch.zeros(8), torch.ones(24)])
    model.model.layers[0].self_attn.o_proj.register_forward_pre_hook(lambda _, given: (given[0] * gate,))


def forward_replaced(model: Any, _: pytest.MonkeyPatch) -> None:
    attention = model.model.layers[0].self_attn
    plain = attention.forward

    def tripled(self: Any, *args: Any, **more: Any) -> Any:
        del self
        output, *rest = plain(*args, **more)
        return (output * 3, *rest)

    attention.forward = types.MethodType(tripled, attention)


def pruned(model: Any, _: pytest.MonkeyPatch) -> None:
    prune.l1_unstructured(model.model.layers[0].self_attn.o_proj, "weight", 0.5)


def parametrised(model: Any, _: pytest.MonkeyPatch) -> None:
    parametrizations.weight_norm(model.model.layers[0].mlp.down_proj)


def checkpointing(model: Any, _: pytest.MonkeyPatch) -> None:
    model.gradient_checkpointing_enable()


def other_activation(model: Any, _: pytest.MonkeyPatch) -> None:
    model.model.layers[1].mlp.act_fn = torch.nn.Tanh()


def fewer_blocks(model: Any, _: pytest.MonkeyPatch) -> None:
    del model.model.layers[1]


def adapter(model: Any, _: pytest.MonkeyPatch) -> Any:
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return peft.get_peft_model(model, config).eval()


def adapter_off(model: Any, patch: pytest.MonkeyPatch) -> Any:
    wrapped = adapter(model, patch)
    wrapped.base_model.disable_adapter_layers()
    return wrapped


WAYS = [
    backend,
    eager_replaced,
    without_cause,
    other_scaling,
    other_epsilon,
    hook,
    hook_on_heads,
    forward_replaced,
    pruned,
    parametrised,
    checkpointing,
    other_activation,
    fewer_blocks,
    adapter,
    adapter_off,
]


@pytest.mark.parametrize("change", WAYS, ids=[way.__name__ for way in WAYS])
def test_a_changed_model_is_traced_as_it_computes(
    change: Callable[[Any, pytest.MonkeyPatch], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    aw.trace(made(), None, input_ids=IDS)  # a check of a model must not hold for a changed model
    model = made()
    model = change(model, monkeypatch) or model
    with torch.no_grad():
        probabilities = model(torch.tensor([IDS])).logits[0, -1].softmax(-1)
    trace = aw.trace(model, None, input_ids=IDS)
    if change is without_cause:  # read by sdpa alone
        assert "whose output differs by" in trace.warning
        return
    assert "differs" not in trace.warning
    for prediction in trace.predictions(3):
        assert prediction.probability == pytest.approx(float(probabilities[prediction.id]), abs=1e-5)


def test_a_fused_function_that_was_replaced_has_no_weights_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()
    plain = ALL_ATTENTION_FUNCTIONS["sdpa"]
    monkeypatch.setitem(
        ALL_ATTENTION_FUNCTIONS, "sdpa", lambda m, q, k, v, mask, **more: plain(m, q * 30, k, v, mask, **more)
    )
    with pytest.raises(UnsupportedModelError, match="recording would change its output"):
        aw.trace(model, None, input_ids=IDS)


def test_the_weights_of_an_own_backend_are_those_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()
    backend(model, monkeypatch)
    with torch.no_grad():
        weights = model(torch.tensor([IDS]), output_attentions=True).attentions
    trace = aw.trace(model, None, input_ids=IDS)
    assert "what it returned itself" in trace.warning
    for layer, expected in enumerate(weights):
        torch.testing.assert_close(trace.attention_layer(layer), expected[0])


def test_scores_are_not_shown_as_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "following", lambda _: nullcontext())
    torch.manual_seed(0)
    small = {"hidden_size": 32, "embedding_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = hf.SqueezeBertConfig(vocab_size=100, intermediate_size=48, **small)
    with pytest.raises(UnsupportedModelError, match="rows sum to more than 1"):
        aw.trace(hf.SqueezeBertModel(config).eval(), None, input_ids=IDS)


def test_one_map_for_all_heads_is_one_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "following", lambda _: nullcontext())
    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    convolutions = {
        "conv_dim": (32,),
        "conv_stride": (5,),
        "conv_kernel": (10,),
        "num_feat_extract_layers": 1,
    }
    positions = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
    model = hf.WavLMModel(hf.WavLMConfig(**small, **convolutions, **positions)).eval()
    trace = aw.trace(model, None, audio=torch.randn(200).tolist())
    assert trace.n_heads() == 1
    assert "one map for all 4 heads" in trace.warning


def test_nan_is_not_said_to_be_scores() -> None:
    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    model = hf.MPNetModel(hf.MPNetConfig(vocab_size=100, **small)).eval()
    with torch.no_grad():
        model.encoder.layer[1].attention.attn.q.weight.fill_(float("nan"))
    trace = aw.trace(model, None, input_ids=IDS)
    assert bool(trace.attention_layer(1).isnan().all())
    assert bool(trace.attention_layer(0).isfinite().all())


def masked_autoencoder() -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    decoder = {f"decoder_{name}": number for name, number in sizes.items()}
    return hf.ViTMAEForPreTraining(hf.ViTMAEConfig(**sizes, **decoder, image_size=28, patch_size=7)).eval()


def test_a_model_that_draws_in_every_pass_is_told_from_one_that_recording_changes() -> None:
    model, picture = masked_autoencoder(), torch.rand(3, 28, 28)
    says = r"draws at random in every pass, and two passes on the same input differ by .*, noise=\.\.\.\)"
    with pytest.raises(ValueError, match=says):
        aw.trace(model, None, image=picture)
    model.forward = functools.partial(model.forward, noise=torch.arange(16.0)[None])
    result = aw.trace(model, None, image=picture)
    with torch.no_grad():
        expected = model(picture[None]).logits[0]
    torch.testing.assert_close(result.logits, expected, atol=1e-5, rtol=1e-4)


def test_patches_in_another_order_in_every_pass_are_told() -> None:
    config = {**SMALL, "image_size": 28, "patch_size": 7}
    del config["num_key_value_heads"]
    inputs = {"pixel_mask": torch.ones(1, 28, 28, dtype=torch.long), "pixel_values": torch.rand(1, 3, 28, 28)}

    def read(model: Any) -> Any:
        ids = torch.tensor([IDS])
        return returned_weights(model.eval(), {"input_ids": ids, **inputs}, {}, "it draws")

    with torch.no_grad():
        note = read(hf.ViltForQuestionAnswering(hf.ViltConfig(**config)))[2]
        assert "the weights and places of two passes differ" in note
        with pytest.raises(ValueError, match="takes no noise or generator that would fix it"):
            read(hf.ViltModel(hf.ViltConfig(**config)))
