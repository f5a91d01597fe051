from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from attnwidgets.tracing.hooks.hook import hooked, reading
from attnwidgets.tracing.hooks.hook_point import (
    HookPoint,
    hook_name,
    hook_points_of_blocks,
    resolve_hook_point,
)
from attnwidgets.tracing.recording.borrow import borrowed
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny

IDS = torch.tensor([[5, 9, 11, 7, 30, 8], [6, 9, 10, 11, 24, 5]])


def states_at(model, name: str, **inputs) -> torch.Tensor:
    """The states of `reading` at a site."""
    with borrowed(model) as twin, reading(twin, resolve_hook_point(model, name)) as read:
        return read(input_ids=IDS, **inputs)


@contextmanager
def seen(module: nn.Module, side: str):
    """The states of a plain hook of torch at a module."""
    result: list[torch.Tensor] = []

    def after(_, args, output):
        value = args[0] if side == "input" else output
        result.append(value[0] if isinstance(value, tuple) else value)

    handle = module.register_forward_hook(after)
    yield result
    handle.remove()


@pytest.mark.parametrize("family", [*tiny.TEXT, "MPNet", "GPT-Neo"])
def test_the_residual_stream_is_what_the_model_calls_its_hidden_states(family):
    model = tiny.build((tiny.TEXT | tiny.OUTSIDE)[family])
    with torch.no_grad():
        hidden = model(input_ids=IDS, output_hidden_states=True).hidden_states
    depth = len(hidden) - 1
    for block in range(depth):
        assert torch.equal(states_at(model, f"blocks.{block}.hook_resid_pre"), hidden[block])
        if block < depth - 1:  # a decoder's last hidden state is after the final norm
            assert torch.equal(states_at(model, f"blocks.{block}.hook_resid_post"), hidden[block + 1])


def test_the_last_blocks_output_is_before_a_decoders_final_norm():
    model = tiny.build(tiny.TEXT["Llama"])
    with torch.no_grad():
        last = model(input_ids=IDS, output_hidden_states=True).hidden_states[-1]
        post = states_at(model, "blocks.1.hook_resid_post")
        assert not torch.equal(post, last)
        assert torch.equal(model.model.norm(post), last)


@pytest.mark.parametrize("family", ["GPT-2", "Llama", "Gemma 2", "Gemma 3", "ModernBERT", "Qwen3"])
def test_what_attention_and_mlp_add_is_what_the_stream_gains(family):
    model = tiny.build(tiny.TEXT[family])
    pre, mid, post, attended, fed = (
        states_at(model, f"blocks.1.{hook}")
        for hook in ("hook_resid_pre", "hook_resid_mid", "hook_resid_post", "hook_attn_out", "hook_mlp_out")
    )
    torch.testing.assert_close(pre + attended, mid)
    torch.testing.assert_close(mid + fed, post)


@pytest.mark.parametrize("family", ["BERT", "RoBERTa", "DistilBERT", "ELECTRA"])
def test_post_norm_blocks_have_the_same_hooks_between_their_norms(family):
    model = tiny.build(tiny.TEXT[family])
    pre, mid, post, attended, fed = (
        states_at(model, f"blocks.1.{hook}")
        for hook in ("hook_resid_pre", "hook_resid_mid", "hook_resid_post", "hook_attn_out", "hook_mlp_out")
    )
    torch.testing.assert_close(pre + attended, mid)
    norms = [module for module in model.modules() if getattr(module, "normalized_shape", None) == (32,)]
    same = [
        norm for norm in norms for other in norms if torch.allclose(other(norm(mid) + fed), post, atol=1e-6)
    ]
    assert same


@pytest.mark.parametrize(
    ("family", "module", "hidden"),
    [
        ("BERT", "bert.encoder.layer.1.attention.output.dense", "bert.encoder.layer.1.output.dense"),
        ("GPT-2", "transformer.h.1.attn.c_proj", "transformer.h.1.mlp.c_proj"),
        ("Llama", "model.layers.1.self_attn.o_proj", "model.layers.1.mlp.down_proj"),
        ("GPT-NeoX", "gpt_neox.layers.1.attention.dense", "gpt_neox.layers.1.mlp.dense_4h_to_h"),
        ("OPT", "model.decoder.layers.1.self_attn.out_proj", "model.decoder.layers.1.fc2"),
    ],
)
def test_heads_and_hidden_units_are_what_the_projections_are_given(family, module, hidden):
    model = tiny.build(tiny.TEXT[family])
    for hook, path in (("attn.hook_z", module), ("hook_z", module), ("mlp.hook_post", hidden)):
        with seen(model.get_submodule(path), "input") as result, torch.no_grad():
            model(input_ids=IDS)
        assert torch.equal(states_at(model, f"blocks.1.{hook}").reshape(result[0].shape), result[0])


def test_a_shared_block_is_read_at_the_call_that_is_meant():
    model = tiny.build(tiny.TEXT["ALBERT"])
    with torch.no_grad():
        hidden = model(input_ids=IDS, output_hidden_states=True).hidden_states
    for block in range(3):
        assert torch.equal(states_at(model, f"blocks.{block}.hook_resid_post"), hidden[block + 1])
        # Again: the count begins anew with every pass.
        assert torch.equal(states_at(model, f"blocks.{block}.hook_resid_post"), hidden[block + 1])
    first, second = (states_at(model, f"blocks.{block}.hook_mlp_out") for block in (0, 2))
    assert not torch.equal(first, second)
    with pytest.raises(
        ValueError, match=r"block 3 does not exist in AlbertForMaskedLM, which has 3 \(0 to 2\)"
    ):
        resolve_hook_point(model, "blocks.3.hook_resid_post")


def test_embeddings_and_encoder_decoders_have_names_of_their_own():
    gpt = tiny.build(tiny.TEXT["GPT-2"])
    with torch.no_grad():
        assert torch.equal(states_at(gpt, "hook_embed"), gpt.transformer.wte(IDS))
    t5 = tiny.build(tiny.SEQ2SEQ["T5"])
    starts = {"decoder_input_ids": torch.zeros(2, 3, dtype=torch.long)}
    with torch.no_grad():
        out = t5(input_ids=IDS, **starts, output_hidden_states=True)
    assert torch.equal(states_at(t5, "encoder.0.hook_resid_post", **starts), out.encoder_hidden_states[1])
    assert torch.equal(states_at(t5, "decoder.0.hook_resid_post", **starts), out.decoder_hidden_states[1])
    with pytest.raises(ValueError, match="does not determine the blocks"):
        resolve_hook_point(t5, "blocks.0.hook_resid_post")


@pytest.mark.parametrize(
    ("name", "path", "side"),
    [
        ("bert.encoder.layer.1", "bert.encoder.layer.1", "output"),
        ("encoder.layer.1", "bert.encoder.layer.1", "output"),  # of AutoModel, in a model with a head
        ("encoder.layer.1.input", "bert.encoder.layer.1", "input"),
        (
            "encoder.layer.1.attention.output.dense.input",
            "bert.encoder.layer.1.attention.output.dense",
            "input",
        ),
        ("encoder.layer.1.output", "bert.encoder.layer.1.output", "output"),  # a module of BERT
        ("layer.1", "bert.encoder.layer.1", "output"),
    ],
)
def test_modules_are_named_as_hugging_face_does(name, path, side):
    model = tiny.build(tiny.TEXT["BERT"])
    site = resolve_hook_point(model, name)
    assert (site.module, site.side) == (path, side)
    with torch.no_grad(), seen(model.get_submodule(path), side) as result:
        model(input_ids=IDS)
    assert torch.equal(states_at(model, name), result[0])


def test_a_path_may_begin_further_out_than_the_model():
    model = tiny.build(tiny.TEXT["Llama"]).model  # as AutoModel gives it
    site = resolve_hook_point(model, "model.layers.1.mlp")
    assert site == HookPoint("model.layers.1.mlp", "layers.1.mlp", block=1)


def test_the_first_name_that_is_there_counts():
    model = tiny.build(tiny.TEXT["BERT"])
    assert (
        resolve_hook_point(model, "blocks.9.hook_resid_post", "encoder.layer.1").module
        == "bert.encoder.layer.1"
    )
    with pytest.raises(ValueError, match="block 9 does not exist"):
        resolve_hook_point(model, "blocks.9.hook_resid_post", "encoder.layer.8")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", r"site is not known.*Pass site="),
        ("blocks.2.hook_resid_post", r"block 2 does not exist in BertForMaskedLM, which has 2 \(0 to 1\)"),
        ("blocks.1.hook_resid_pst", "Did you mean 'hook_resid_post'"),
        ("blocks.1.hook_mlp_in", "is not known"),
        ("hook_rotary", "is not a known hook"),
        ("bert.encoder.layer.1.outputs", r"not a module of BertForMaskedLM\. Did you mean .*Its blocks are"),
    ],
)
def test_places_that_are_not_there_say_what_is(name, message):
    with pytest.raises(ValueError, match=message):
        resolve_hook_point(tiny.build(tiny.TEXT["BERT"]), name)


@pytest.mark.parametrize(("family", "hook"), [("OPT", "hook_resid_mid"), ("XLNet", "hook_mlp_out")])
def test_hooks_that_no_description_settles_are_refused(family, hook):
    model = tiny.build((tiny.TEXT | tiny.OUTSIDE)[family])
    with pytest.raises(UnsupportedModelError, match="name the module instead"):
        resolve_hook_point(model, f"blocks.1.{hook}")


def test_sites_are_found_and_named_again():
    model = tiny.build(tiny.TEXT["Llama"])
    names = [site.name for site in hook_points_of_blocks(model)]
    assert names[:3] == ["hook_embed", "blocks.0.hook_resid_pre", "blocks.0.hook_resid_post"]
    assert len(names) == 2 + 2 * 3
    assert hook_name(model, resolve_hook_point(model, "model.layers.1")) == "blocks.1.hook_resid_post"
    assert hook_name(model, resolve_hook_point(model, "model.layers.1.input")) == "blocks.1.hook_resid_pre"
    assert hook_name(model, resolve_hook_point(model, "model.layers.1.mlp")) == "model.layers.1.mlp"
    assert hook_name(model, resolve_hook_point(model, "blocks.1.hook_mlp_out")) == "blocks.1.hook_mlp_out"


class Pair(nn.Module):
    """A block that returns a tuple, as blocks of transformers 4 do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x), {"cache": 1}


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Pair(nn.Linear(4, 4)), nn.Linear(4, 4)

    def forward(self, x):
        states, beside = self.first(x)
        assert beside == {"cache": 1}
        return self.second(states)


def test_tuples_are_read_and_changed_in_their_first_place():
    torch.manual_seed(0)
    model, x = Stack(), torch.randn(1, 3, 4)
    with torch.no_grad():
        plain = model(x)
        with hooked(model, resolve_hook_point(model, "first"), lambda states: 2 * states) as tap:
            doubled = model(x)
        assert tap.passes == 1
        torch.testing.assert_close(doubled, model.second(2 * model.first(x)[0]))
        assert torch.equal(model(x), plain)


def test_hooks_are_gone_after_an_exception_and_what_lies_behind_a_site_is_not_run():
    torch.manual_seed(0)
    model = Stack()

    def explode(_):
        raise RuntimeError("boom")

    with (
        pytest.raises(RuntimeError, match="boom"),
        hooked(model, resolve_hook_point(model, "first"), explode),
    ):
        model(torch.randn(1, 3, 4))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with seen(model.second, "output") as result, reading(model, resolve_hook_point(model, "first")) as read:
        read(x=torch.randn(1, 3, 4))
    assert not result


def test_a_site_that_a_pass_does_not_reach_is_an_error():
    model = Stack()
    model.unused = nn.Linear(4, 4)
    with (
        pytest.raises(UnsupportedModelError, match="does not reach 'unused'"),
        reading(model, resolve_hook_point(model, "unused")) as read,
    ):
        read(x=torch.randn(1, 3, 4))
