"""Chefer's rules and signed attention: as the authors compute them, and by finite differences."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import transformers as hf

import attnwidgets as aw
from attnwidgets.explanations.attribution.signed_attention import attention_gradients
from tests.explanations.made import random_classifier
from tests.tracing import tiny
from tests.tracing.families import needs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module", params=["llama", "minilm"])
def authors(shared: Path, request: pytest.FixtureRequest) -> Any:
    """(trace, target, arrays) of the authors' rules on a model's attention and its gradients."""
    folder = shared / "reference" / "lrp"
    arrays = np.load(folder / f"iccv2021_{request.param}.npz")
    if request.param == "llama":
        model = hf.AutoModelForCausalLM.from_pretrained(folder / "models" / "tiny_llama").eval()
        return aw.trace(model, None, input_ids=arrays["input_ids"].tolist()), 19, arrays
    from safetensors.torch import load_file

    encoder, tokenizer = request.getfixturevalue("minilm")
    config = hf.BertConfig.from_dict(encoder.config.to_dict() | {"num_labels": 3})
    model = hf.BertForSequenceClassification(config).eval()
    model.bert.load_state_dict(encoder.state_dict())
    model.load_state_dict(load_file(folder / "models" / "minilm_head.safetensors"), strict=False)
    text = "The movie was surprisingly good, although the unbelievable ending felt rushed."
    return aw.trace(model, tokenizer, text), 0, arrays


def test_the_rules_equal_the_authors(authors: Any) -> None:
    trace, target, arrays = authors
    result = aw.chefer(trace, target)
    np.testing.assert_allclose(result.values, arrays["R_row"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result.map.values, arrays["R_layers"], rtol=1e-5, atol=1e-5)


def test_signed_attention_equals_attention_times_its_gradient(authors: Any) -> None:
    trace, target, arrays = authors
    result = aw.signed_attention(trace, target, of="score")
    scale = np.abs(arrays["signed_attention"]).max()
    assert np.abs(result.values - arrays["signed_attention"]).max() <= 1e-5 * scale
    assert result.known("signed")


def test_the_loss_turns_with_the_probability(authors: Any) -> None:
    trace, target, _ = authors
    loss, score = (aw.signed_attention(trace, target, of=of) for of in ("loss", "score"))
    assert np.abs(loss.values - score.values).max() > 1e-4, "the normaliser has a gradient, too"
    foil = target + 1
    contrasts = [aw.signed_attention(trace, target, foil=foil, of=of).values for of in ("loss", "score")]
    scale = np.abs(contrasts[1]).max()
    assert np.abs(contrasts[0] - contrasts[1]).max() <= 1e-5 * scale, "between two logits it cancels"


def test_options_are_the_formulas_that_lectures_write(authors: Any) -> None:
    trace, target, arrays = authors
    products = arrays["attn"].astype(float) * arrays["attn_grad"]
    same = np.eye(products.shape[-1])
    forward = same
    backward = same
    plain = same
    for layer in products:
        forward = forward @ (same + layer.sum(0))
        backward = (same + layer.clip(min=0).sum(0)) @ backward
        plain = layer.clip(min=0).mean(0) @ plain
    options: dict[str, Any] = {"head_reduce": "sum"}
    result = aw.chefer(
        trace, target, **options, rule=("iccv2021", {"clamp": False}), order="input_first"
    ).map.layer(len(products) - 1)
    np.testing.assert_allclose(result, forward, rtol=1e-4, atol=1e-4 * np.abs(forward).max())
    result = aw.chefer(trace, target, **options).map.layer(len(products) - 1)
    np.testing.assert_allclose(result, backward, rtol=1e-4, atol=1e-4 * np.abs(backward).max())
    result = aw.chefer(trace, target, rule=("iccv2021", {"identity": False})).map.layer(len(products) - 1)
    np.testing.assert_allclose(result, plain, rtol=1e-4, atol=1e-4 * np.abs(plain).max())


def test_the_earlier_rule_weights_gradients_with_the_relevance_of_attention() -> None:
    trace = aw.trace(random_classifier().double(), tiny.wordpiece(), "the cat sat")

    def score(outputs: Any) -> Any:
        return outputs.logits[:, 1]

    plain = attention_gradients(trace, score, "test")
    ruled = attention_gradients(trace, score, "test", relevance="attnlrp")
    heads = aw.lrp(trace, 1, of="heads").map
    state = np.eye(len(trace.tokens))
    for layer in range(2):
        relevance = ruled.product("self", layer)
        # A head writes attention times values: half of its relevance is attention's.
        np.testing.assert_allclose(2 * relevance.sum(-1), heads.layer(layer)[:, 0], atol=1e-6)
        state = state + (plain.gradients["self"][layer] * relevance).clip(min=0).mean(0) @ state
    result = aw.chefer(trace, 1, rule="cvpr2021")
    np.testing.assert_allclose(result.values, state[0], rtol=1e-5, atol=1e-6)
    assert result.note == "attention's relevance (AttnLRP) instead of attention"
    assert np.abs(result.values - aw.chefer(trace, 1).values).max() > 1e-4


def test_departures_from_the_rules_are_said(authors: Any) -> None:
    trace, target, _ = authors
    assert aw.chefer(trace, target).note == ""
    said = aw.chefer(
        trace, target, rule=("iccv2021", {"clamp": False, "identity": False}), start_layer=1
    ).note
    assert said == "negative products kept; without identity; from layer 1"


def test_encoder_decoder_relevance_follows_equations_7_to_10() -> None:
    needs("interface", "T5")
    trace = aw.trace(tiny.build(tiny.SEQ2SEQ["T5"]).double(), None, input_ids=[5, 6, 7, 8], max_new_tokens=3)
    target = aw.targets.token(3, position=1)
    products = {
        name: np.asarray(aw.signed_attention(trace, target, of="score", stack=name).values, float)
        for name in ("encoder", "decoder", "cross")
    }
    joined = {name: result.clip(min=0).mean(1) for name, result in products.items()}

    def normal(relevance: Any) -> Any:
        rest = relevance - np.eye(len(relevance))
        totals = rest.sum(-1, keepdims=True)
        return np.where(totals == 0, 0, rest / np.where(totals == 0, 1, totals)) + np.eye(len(relevance))

    source = np.eye(4)
    for layer in joined["encoder"]:
        source = source + layer @ source
    read = np.eye(len(trace.axes("decoder")[0]))
    across = np.zeros((len(read), 4))
    for inside, cross in zip(joined["decoder"], joined["cross"], strict=True):
        read, across = read + inside @ read, across + inside @ across
        across = across + normal(read).T @ cross @ normal(source)
    result = aw.chefer(trace, target)
    np.testing.assert_allclose(result.map.layer(1), across, atol=1e-6 * across.max())
    np.testing.assert_allclose(result.values, across[1], atol=1e-6 * across.max())
    decoded = aw.chefer(trace, target, stack="decoder")
    np.testing.assert_allclose(decoded.values, read[1], atol=1e-6)
    assert result.labels == trace.axes("encoder")[0].tokens
    assert decoded.labels == trace.axes("decoder")[0].tokens


def test_the_row_is_where_the_target_is_read() -> None:
    classes = aw.trace(random_classifier(), tiny.wordpiece(), "the cat")
    tokens = aw.trace(tiny.build(tiny.TEXT["Llama"]), None, input_ids=[5, 6, 7, 8])
    for trace, target, row in (
        (classes, 1, 0),
        (tokens, 3, 3),
        (tokens, aw.targets.token(3, position=1), 1),
    ):
        result = aw.chefer(trace, target)
        np.testing.assert_array_equal(result.values, result.map.layer(1)[row])
    np.testing.assert_array_equal(
        aw.chefer(classes, 1, row=-1).values, aw.chefer(classes, 1).map.layer(1)[-1]
    )
    later = aw.chefer(tokens, aw.targets.token(3, position=1)).values
    assert not later[2:].any(), "nothing after the position has a part in it"


@pytest.mark.parametrize(
    ("method", "options", "error", "message"),
    [
        (aw.chefer, {"row": 9}, IndexError, "row 9 is out of range: the tokens are 0 to 3"),
        (aw.chefer, {"start_layer": 2}, IndexError, "start_layer 2 is out of range"),
        (aw.chefer, {"order": "sideways"}, ValueError, "order 'sideways' is not one of"),
        (aw.chefer, {"head_reduce": "max"}, ValueError, "head_reduce 'max' is not one of"),
        (aw.chefer, {"target": [1, 2]}, ValueError, "one target at a time"),
        (aw.signed_attention, {"of": "logit"}, ValueError, "of 'logit' is not one of"),
        (aw.signed_attention, {"target": [1, 2]}, ValueError, "one target at a time"),
    ],
)
def test_bad_input_is_said(method: Any, options: Any, error: Any, message: str) -> None:
    trace = aw.trace(tiny.build(tiny.TEXT["Llama"]), None, input_ids=[5, 6, 7, 8])
    with pytest.raises(error, match=message):
        method(trace, **options)


def test_models_that_cannot_be_followed_are_refused_with_what_works() -> None:
    trace = aw.trace(tiny.build(tiny.UNFOLLOWED["GPT-Neo with sums"]), None, input_ids=[5, 6, 7])
    for method in (aw.chefer, aw.signed_attention):
        with pytest.raises(ValueError, match=r"outside transformers' attention interface. aw.saliency"):
            method(trace, 3)
    assert aw.saliency(trace, 3).values.any()


def test_options_of_a_rule_and_their_former_keywords(authors: Any) -> None:
    trace, target, _ = authors
    now = aw.chefer(trace, target, rule=("iccv2021", {"clamp": False}))
    assert now.provenance["options"]["rule"] == ("iccv2021", {"clamp": False})
    for former in (partial(aw.chefer, trace), partial(aw.explain, trace, "chefer")):
        with pytest.warns(DeprecationWarning, match=r"chefer: 'clamp' belong in rule=\(\"iccv2021\""):
            np.testing.assert_array_equal(former(target=target, clamp=False).values, now.values)
    with pytest.raises(ValueError, match=r"rule 'iccv2021': option 'clmp'.*Did you mean 'clamp'"):
        aw.chefer(trace, target, rule=("iccv2021", {"clmp": False}))
    with pytest.raises(ValueError, match="rule 'iccv2021': option 'relevance' is not one of"):
        aw.chefer(trace, target, rule=("iccv2021", {"relevance": "alpha_beta"}))
    with pytest.raises(ValueError, match=r"rule 'iccv2012'.*Did you mean 'iccv2021'"):
        aw.chefer(trace, target, rule="iccv2012")
