from __future__ import annotations

import warnings

import pytest
import torch

from attnwidgets.sae import check
from attnwidgets.sae.check import TEXTS, SAEMismatchWarning, read_states
from attnwidgets.sae.corpus import Corpus
from attnwidgets.tracing.hooks.hook_point import hook_points_of_blocks
from tests.tracing import tiny

from . import made


def hidden(model, tokenizer, texts, layer: int) -> torch.Tensor:
    """States of the tokens that are not special, text by text."""
    result = []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            states = model(**ids, output_hidden_states=True).hidden_states[layer][0]
        result.append(states[1:-1])
    return torch.cat(result)


def test_the_numbers_are_those_of_a_plain_loop(bert):
    model, tokenizer = bert
    sae = made.fitted(model, tokenizer, "blocks.1.hook_resid_post")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked = sae.check(model, tokenizer, made.TEXTS)
    h = hidden(model, tokenizer, made.TEXTS, 2).double()
    a = sae.double().encode(h)
    missed = (h - sae.decode(a)).square().sum()
    assert checked.tokens == len(h)
    assert checked.l0 == pytest.approx(float((a > 0).sum(-1).double().mean()), abs=0.05)
    assert checked.explained_variance == pytest.approx(
        float(1 - missed / (h - h.mean(0)).square().sum()), abs=1e-4
    )
    assert checked.dead == int((~(a > 0).any(0)).sum())
    assert checked.warnings == ()
    assert "explained variance" in str(checked)


def test_a_wrong_layer_is_noticed_and_the_right_one_named(bert):
    model, tokenizer = bert
    sae = made.fitted(model, tokenizer, "blocks.0.hook_resid_post")
    right = sae.check(model, tokenizer, made.TEXTS)
    sae.site = "blocks.1.hook_resid_post"
    with pytest.warns(SAEMismatchWarning) as caught:
        checked = sae.check(model, tokenizer, made.TEXTS)
    assert checked.explained_variance < 0.25 < right.explained_variance
    said = " ".join(str(warning.message) for warning in caught)
    assert "these are not the states it was trained on" in said
    assert said.endswith(checked.warnings[-1])
    assert f"explains {right.explained_variance:.2f} at blocks.0.hook_resid_post" in said


@pytest.mark.slow
def test_a_layer_beside_the_right_one_is_noticed_where_much_is_explained_still(minilm):
    sae = made.fitted(*minilm, "blocks.2.hook_resid_post", rank=40, d_sae=384, texts=TEXTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = sae.check(*minilm)
    for wrong in ("blocks.1.hook_resid_post", "encoder.layer.3", "blocks.4.hook_resid_post"):
        with pytest.warns(SAEMismatchWarning) as caught:
            checked = sae.check(*minilm, site=wrong)
        assert 0.25 < checked.explained_variance < right.explained_variance - 0.05
        assert "it may belong to another layer" in str(caught[0].message)
        assert f"explains {right.explained_variance:.2f} at blocks.2.hook_resid_post." in checked.warnings[-1]


def test_every_place_is_looked_at_in_one_pass(bert):
    model, tokenizer = bert
    sae = made.fitted(model, tokenizer, "blocks.0.hook_resid_post")
    passes = []
    handle = model.bert.encoder.layer[1].register_forward_pre_hook(lambda *_: passes.append(1))
    with pytest.warns(SAEMismatchWarning):
        sae.check(model, tokenizer, made.TEXTS, site="blocks.1.hook_resid_post")
    handle.remove()
    assert len(passes) == 2  # at its site, and at all others


IDS = [[5, 9, 11, 7, 12, 30, 31], [8, 3, 2, 6, 17, 21, 40], [33, 14, 25, 9, 10, 41, 5]]


def test_one_pass_shows_the_states_of_every_place_also_where_blocks_are_shared():
    model = tiny.build(tiny.TEXT["ALBERT"])
    corpus, points = Corpus(model, None, IDS), hook_points_of_blocks(model)
    together = check._states_by_name(model, corpus, points)
    assert len(together) == len(points) > 9
    for point in points:
        alone = torch.cat([states for states, _ in read_states(model, corpus, point)])
        assert torch.equal(together[point.name], alone), point.name


@pytest.mark.parametrize("family", ["GPT-NeoX", "Llama", "Gemma 2"])
def test_the_right_place_is_named_in_every_kind_of_stack(family):
    model = tiny.build(tiny.TEXT[family])
    sae = made.fitted(model, None, "blocks.1.hook_mlp_out", rank=12, texts=IDS)
    sae.site = "blocks.0.hook_mlp_out"
    with pytest.warns(SAEMismatchWarning) as caught:
        sae.check(model, None, IDS)
    assert str(caught[-1].message).endswith("at blocks.1.hook_mlp_out.")


def test_centred_training_states_are_recognised():
    model = tiny.build(tiny.TEXT["GPT-2"])
    tokenizer = tiny.wordpiece()
    with torch.no_grad():
        model.transformer.wpe.weight += 5.0  # a mean that a centred stream does not have
    sae = made.fitted(model, tokenizer, "blocks.0.hook_resid_post")
    sae.b_dec.data -= sae.b_dec.mean()  # as if trained on centred states
    sae.W_enc.data -= sae.W_enc.mean(0)
    sae.W_dec.data -= sae.W_dec.mean(-1, keepdim=True)
    with pytest.warns(SAEMismatchWarning) as caught:
        sae.check(model, tokenizer, made.TEXTS)
    assert "at blocks.0.hook_resid_post with centre=True" in str(caught[-1].message)
    assert sae.replaced(centre=True).check(model, tokenizer, made.TEXTS).explained_variance > 0.25


def test_a_scale_that_is_off_is_noticed(bert):
    model, tokenizer = bert
    sae = made.fitted(model, tokenizer, "blocks.1.hook_resid_post")
    off = sae.replaced(b_enc=sae.b_enc + 1.5)
    with pytest.warns(SAEMismatchWarning) as caught:
        off.check(model, tokenizer, made.TEXTS)
    assert any(
        "features fire on a token: the states have another scale" in str(item.message) for item in caught
    )


def test_width_and_layer_that_do_not_match_are_named(bert):
    model, tokenizer = bert
    with pytest.raises(
        ValueError, match=r"width 8, but 'blocks.1.hook_resid_post' of BertForMaskedLM is 32 wide"
    ):
        made.sae(site="blocks.1.hook_resid_post").check(model, tokenizer)
    with pytest.raises(
        ValueError, match=r"width 8, but 'blocks.1.mlp.hook_post' of BertForMaskedLM is 37 wide"
    ):
        made.sae(site="blocks.1.mlp.hook_post").check(model, tokenizer)
    with pytest.raises(ValueError, match="block 7 does not exist in BertForMaskedLM, which has 2"):
        made.sae(site="blocks.7.hook_resid_post").check(model, tokenizer)
    with pytest.raises(ValueError, match="site is not known"):
        made.sae().check(model, tokenizer)
    with pytest.raises(ValueError, match="no token that counts"):
        made.sae(d_in=32, site="blocks.1.hook_resid_post").check(model, tokenizer, [""])


def test_the_model_comes_back_as_it_was(bert):
    model, tokenizer = bert
    model.train()
    hooks = [dict(module._forward_hooks | module._forward_pre_hooks) for module in model.modules()]
    sae = made.fitted(model, tokenizer, "blocks.1.hook_resid_post")
    sae.check(model, tokenizer, made.TEXTS)
    assert model.training
    assert hooks == [dict(module._forward_hooks | module._forward_pre_hooks) for module in model.modules()]
    model.eval()


def test_a_dozen_sentences_are_read_where_none_are_given(minilm):
    model, tokenizer = minilm
    sae = made.fitted(model, tokenizer, "encoder.layer.2", texts=TEXTS)
    checked = sae.check(model, tokenizer)
    assert 150 < checked.tokens < 400
    assert checked.site == "encoder.layer.2"
