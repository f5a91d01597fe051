"""Weights drawn anew: which, how, and that they are given back."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import attnwidgets as aw
from tests.tracing import tiny

FAMILIES = tiny.TEXT | tiny.SEQ2SEQ | tiny.IMAGE | tiny.OUTSIDE


def bert(depth: int = 4):
    return tiny.build(lambda: tiny._plain("Bert", "ForMaskedLM", num_hidden_layers=depth))


def state(model) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def drawn(before, model) -> set[str]:
    """The layers of a BERT whose weights differ."""
    changed = {name for name, value in model.named_parameters() if not torch.equal(before[name], value)}
    return {f"layer {match.group(1)}" for name in changed if (match := re.search(r"layer\.(\d+)\.", name))}


def is_restored(model, before, storages) -> bool:
    same = all(torch.equal(before[name], value) for name, value in model.named_parameters())
    return same and storages == [p.data_ptr() for p in model.parameters()]


@pytest.mark.parametrize("layers", ["all", "top", 1, (0, 2)])
def test_the_model_comes_back_bit_for_bit(layers):
    model = bert()
    before, storages = state(model), [p.data_ptr() for p in model.parameters()]
    parameters = list(model.parameters())
    with aw.randomized(model, layers) as inside:
        assert inside is model
        assert drawn(before, model)
    assert is_restored(model, before, storages)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_model_comes_back_after_an_exception(error):
    model = bert()
    before, storages = state(model), [p.data_ptr() for p in model.parameters()]
    with pytest.raises(error), aw.randomized(model):
        raise error
    assert is_restored(model, before, storages)


def test_nested_draws_come_back_one_by_one():
    model = bert()
    before = state(model)
    with aw.randomized(model, 3):
        between = state(model)
        with aw.randomized(model, 1, seed=4):
            assert drawn(between, model) == {"layer 1", "layer 2", "layer 3"}
        assert drawn(between, model) == set()
    assert drawn(before, model) == set()


@pytest.mark.parametrize(
    ("layers", "options", "expected"),
    [
        ("all", {}, {0, 1, 2, 3}),
        ("top", {}, {3}),
        (-1, {}, {3}),
        (2, {}, {2, 3}),
        (2, {"cascading": False}, {2}),
        ([0, 2], {}, {0, 2}),
        (range(1, 3), {}, {1, 2}),
    ],
)
def test_other_layers_are_untouched(layers, options, expected):
    model = bert()
    before = state(model)
    with aw.randomized(model, layers, **options):
        assert drawn(before, model) == {f"layer {number}" for number in expected}


@pytest.mark.parametrize(
    ("arguments", "below", "above"),
    [
        ({}, True, True),
        ({"embeddings": False}, False, True),
        ({"head": False}, True, False),
        ({"layers": 1}, False, True),
        ({"layers": 1, "embeddings": True}, True, True),
        ({"layers": [1]}, False, False),
        ({"layers": [1], "head": True}, False, True),
        ({"layers": 1, "cascading": False}, False, False),
    ],
)
def test_embeddings_and_head_are_drawn_where_they_are_meant(arguments, below, above):
    model = bert()
    word, head = model.bert.embeddings.word_embeddings.weight, model.cls.predictions.transform.dense.weight
    first, last = word.detach().clone(), head.detach().clone()
    with aw.randomized(model, **arguments):
        assert torch.equal(word, first) is not below
        assert torch.equal(head, last) is not above
        assert model.cls.predictions.decoder.weight is word


def test_the_same_seed_draws_the_same():
    model = bert()
    result = []
    for seed in (0, 0, 1):
        with aw.randomized(model, seed=seed):
            result.append(state(model))
    query = "bert.encoder.layer.2.attention.self.query.weight"
    assert all(torch.equal(result[0][name], result[1][name]) for name in result[0])
    assert not torch.equal(result[0][query], result[2][query])


def test_a_cascade_goes_on_where_a_shorter_one_ended():
    model = bert()
    result = []
    for layers, options in ((3, {}), (1, {}), ([3], {}), ("all", {})):
        with aw.randomized(model, layers, **options):
            result.append(model.bert.encoder.layer[3].output.dense.weight.detach().clone())
    assert all(torch.equal(result[0], other) for other in result[1:])


def test_the_users_random_numbers_go_on_as_before():
    model = bert()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with aw.randomized(model):
        pass
    assert torch.equal(torch.rand(3), expected)


def test_the_models_own_initialiser_draws():
    config = GPT2Config(vocab_size=50, n_embd=96, n_layer=8, n_head=4, n_positions=32, initializer_range=0.05)
    torch.manual_seed(0)
    fresh, model = GPT2LMHeadModel(config).eval(), GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(7.0).add_(1.0)
    with aw.randomized(model):
        block = model.transformer.h[2]
        assert block.mlp.c_fc.weight.std().item() == pytest.approx(0.05, rel=0.05)
        # GPT-2's paper scales updates of the residual stream by the number of layers; some versions do.
        scaled = fresh.transformer.h[2].mlp.c_proj.weight.std().item()
        assert block.mlp.c_proj.weight.std().item() == pytest.approx(scaled, rel=0.05)
        assert torch.equal(block.ln_1.weight, torch.ones(96))
        assert not block.attn.c_attn.bias.any()


def test_weights_loaded_from_a_checkpoint_are_drawn_as_well(tmp_path):
    bert().save_pretrained(tmp_path)
    model = type(bert()).from_pretrained(tmp_path).eval()
    before = state(model)
    with aw.randomized(model):
        assert len(drawn(before, model)) == 4


def test_without_an_initialiser_weights_keep_their_scale():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(64, 64)

        def forward(self, x):
            return self.project(x)

    class Foreign(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(30, 64)
            self.blocks = nn.ModuleList(Attention() for _ in range(3))

    torch.manual_seed(0)
    model = Foreign()
    with torch.no_grad():
        model.blocks[1].project.weight.normal_(3.0, 0.5)
    before = state(model)
    with aw.randomized(model, layers=1):
        weight = model.blocks[1].project.weight
        assert weight.mean().item() == pytest.approx(3.0, abs=0.05)
        assert weight.std().item() == pytest.approx(0.5, rel=0.05)
        assert not torch.equal(weight, before["blocks.1.project.weight"])
        assert torch.equal(model.blocks[0].project.weight, before["blocks.0.project.weight"])
        assert torch.equal(model.embed.weight, before["embed.weight"])


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_drawn_as_a_fresh_model_would_be(name):
    model = tiny.build(FAMILIES[name])
    before, storages = state(model), [p.data_ptr() for p in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    with aw.randomized(model):
        for path, parameter in model.named_parameters():
            assert parameter.isfinite().all(), path
            # A fresh weight has the mean and scale of the initial weight.
            if parameter.numel() > 200:
                assert parameter.mean().item() == pytest.approx(before[path].mean().item(), abs=0.1), path
                assert parameter.std().item() == pytest.approx(before[path].std().item(), rel=0.3), path
    assert storages == [p.data_ptr() for p in model.parameters()]


def test_half_precision_stays():
    model = bert().to(torch.bfloat16)
    before = state(model)
    with aw.randomized(model):
        assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
        assert len(drawn(before, model)) == 4


def test_tied_weights_stay_tied_and_go_with_the_embeddings():
    model = bert()
    word = model.bert.embeddings.word_embeddings.weight
    first = word.detach().clone()
    with aw.randomized(model, layers=0, head=True):
        assert torch.equal(word, first)
    with aw.randomized(model):
        assert model.cls.predictions.decoder.weight.data_ptr() == word.data_ptr()
        assert not torch.equal(word, first)


def test_blocks_that_share_weights_are_drawn_together_or_not_at_all():
    albert = tiny.build(tiny.TEXT["ALBERT"])
    with pytest.raises(IndexError, match="all 3 layers share one block"):
        aw.randomized(albert, layers=2)
    model = bert()
    model.bert.encoder.layer[2] = model.bert.encoder.layer[1]
    with pytest.raises(ValueError, match="blocks 1, 2 share weight"):
        aw.randomized(model, layers=2)
    before = state(model)
    with aw.randomized(model, layers=[1, 2]):
        assert drawn(before, model) == {"layer 1"}


def test_a_copy_leaves_the_model_alone():
    model = bert()
    before, storages = state(model), [p.data_ptr() for p in model.parameters()]
    fresh = aw.randomized(model, layers=2, copy=True)
    assert fresh is not model
    assert is_restored(model, before, storages)
    assert drawn(before, fresh) == {"layer 2", "layer 3"}
    assert not {p.data_ptr() for p in fresh.parameters()} & set(storages)
    with aw.randomized(model, layers=2):
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), fresh.parameters(), strict=True))


def test_of_several_stacks_one_is_named():
    model = tiny.build(tiny.SEQ2SEQ["T5"])
    with pytest.raises(ValueError, match=r"needs stack: .*'encoder.block', 'decoder.block'"):
        aw.randomized(model, layers=1)
    before = state(model)
    with aw.randomized(model, layers=1, stack="decoder"):
        changed = {n for n, value in model.named_parameters() if not torch.equal(before[n], value)}
    assert changed
    assert all(name.startswith(("decoder.block.1.", "decoder.final", "lm_head")) for name in changed)
    with pytest.raises(ValueError, match=r"'encoder\.block', 'decoder\.block'"):
        aw.randomized(model, layers=1, stack="middle")


def test_maps_inside_are_those_of_the_random_model(minilm):
    model, tokenizer = minilm
    text = "The cat sat."
    trained = aw.rollout(aw.trace(model, tokenizer, text)).values.copy()
    with aw.randomized(model):
        random = aw.rollout(aw.trace(model, tokenizer, text)).values.copy()
    again = aw.rollout(aw.trace(model, tokenizer, text)).values
    np.testing.assert_array_equal(again, trained)
    assert abs(random - trained).max() > 0.1
    # Fresh attention is nearly uniform: the rest is the residual connection.
    off = random[0][~np.eye(len(random[0]), dtype=bool)]
    np.testing.assert_allclose(off, 0.5 / len(random[0]), atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["attention_norm", "alti", "globenc", "value_zeroing"])
def test_a_map_begun_before_does_not_go_on_with_other_weights(minilm, method):
    model, tokenizer = minilm
    text = "The cat sat."
    expected = aw.explain(aw.trace(model, tokenizer, text), method).values
    result = aw.explain(aw.trace(model, tokenizer, text), method)
    result.layer(0)
    with aw.randomized(model):
        if method == "value_zeroing":  # holds the blocks that it calls as they were recorded
            np.testing.assert_allclose(result.layer(3), expected[3], atol=5e-6)
        else:
            with pytest.raises(ValueError, match="trace it again"):
                result.layer(3)
    np.testing.assert_allclose(result.values, expected, atol=5e-6)


@pytest.mark.parametrize(
    ("layers", "error", "told"),
    [
        (4, IndexError, "layers 0 to 3"),
        ([0, 9], IndexError, "layers 0 to 3"),
        ("tops", ValueError, "Did you mean 'top'"),
        (1.5, TypeError, "integer"),
        (True, TypeError, "integer"),
    ],
)
def test_layers_that_are_not_there_are_refused(layers, error, told):
    with pytest.raises(error, match=told):
        aw.randomized(bert(), layers)


def test_what_cannot_be_drawn_is_refused():
    model = bert()
    model.bert.encoder.layer[1].to("meta")
    with pytest.raises(ValueError, match="offloaded"):
        aw.randomized(model)
    with pytest.raises(ValueError, match="no list of attention blocks"):
        aw.randomized(nn.Linear(2, 2), layers=1)
    with pytest.raises(TypeError, match="model must be"):
        aw.randomized("bert")
    plain = nn.Linear(20, 20)
    original = plain.weight.detach().clone()
    with aw.randomized(plain):
        assert not torch.equal(plain.weight, original)
    assert torch.equal(plain.weight, original)
