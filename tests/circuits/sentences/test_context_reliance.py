"""Which tokens depend on a context: to plain passes, where nothing can depend on it, and on SmolLM2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw


@pytest.fixture(scope="module")
def induction() -> tuple[Any, Any]:
    return aw.zoo.induction(letters="abcdefgh", length=16)


def random_model(tokenizer: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=32, initializer_range=0.5,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def test_what_was_copied_depends_on_where_it_stood(induction):
    result = aw.circuits.context_reliance(*induction, "fadebc", "fad", separator="", max_new_tokens=3)
    assert result.output.axis.tokens == ("e", "b", "c")
    assert result.kept == (0, 1, 2)
    assert [(token, cue) for token, cue, _ in result.pairs()] == [("e", "e"), ("b", "b"), ("c", "c")]
    assert "'e' on 'e'" in repr(result)
    assert result.cues.shape == (1, 3, 6)


def test_scores_are_those_of_two_plain_passes(induction):
    tokenizer = induction[1]
    model = random_model(tokenizer)
    context, current, output = "fadebc", "gh", "abc"
    rows = []
    for text in (context + current, current):
        ids = tokenizer(text)["input_ids"] + tokenizer(output, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            rows.append(model(torch.tensor([ids])).logits[0, -4:-1].log_softmax(-1))
    answer = torch.tensor(tokenizer(output, add_special_tokens=False)["input_ids"])[:, None]
    first, second = (row.gather(1, answer)[:, 0] for row in rows)
    kl = torch.nn.functional.kl_div(rows[1], rows[0], log_target=True, reduction="none").sum(-1)
    expected = {"kl": kl, "pcxmi": first - second, "probability": first.exp() - second.exp()}
    for metric, values in expected.items():
        result = aw.circuits.context_reliance(
            model, tokenizer, context, current, output, metric=metric, separator=""
        )
        np.testing.assert_allclose(result.output.values, values, atol=1e-5)
    sizes = np.abs(result.output.values)
    assert result.kept == tuple(np.flatnonzero(sizes >= sizes.mean() + sizes.std() - 1e-7))
    assert all(
        contrast == tokenizer.decode([rows[1][at].argmax()]) for at, contrast in result.contrasts.items()
    )


def test_cues_are_the_contrast_attributed(induction):
    tokenizer = induction[1]
    model = random_model(tokenizer)
    result = aw.circuits.context_reliance(
        model, tokenizer, "fadebc", "gh", "abc", separator="", threshold=-10, method="saliency"
    )
    assert result.kept == (0, 1, 2)
    ids = tokenizer("fadebcgh")["input_ids"] + tokenizer("abc", add_special_tokens=False)["input_ids"]
    trace = aw.trace(model, tokenizer, input_ids=ids)
    target, foil = (
        aw.targets.token(tokenizer.convert_tokens_to_ids(name), position=len(ids) - 3)
        for name in ("b", result.contrasts[1])
    )
    foil = None if result.contrasts[1] == "b" else foil
    expected = aw.saliency(trace, target, foil).values[1:7]
    np.testing.assert_allclose(result.cues.values[0, 1], expected, rtol=1e-5)


def test_nothing_depends_on_a_context_that_is_not_read(induction):
    tokenizer = induction[1]
    model = random_model(tokenizer)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
    result = aw.circuits.context_reliance(model, tokenizer, "fadebc", "gh", "abc", separator="")
    np.testing.assert_allclose(result.output.values, 0, atol=1e-9)
    assert result.kept == ()
    assert result.pairs() == []
    assert result.cues is None


def test_what_cannot_be_asked_is_said(induction):
    with pytest.raises(ValueError, match="current is ''"):
        aw.circuits.context_reliance(*induction, "fadebc", "")
    with pytest.raises(ValueError, match="context is '  '"):
        aw.circuits.context_reliance(*induction, "  ", "a")
    with pytest.raises(ValueError, match="Did you mean 'pcxmi'"):
        aw.circuits.context_reliance(*induction, "abc", "a", metric="cxmi")
    with pytest.raises(ValueError, match="Did you mean 'saliency'"):
        aw.circuits.context_reliance(*induction, "abc", "a", method="salience")
    with pytest.raises(ValueError, match="has no tokens"):
        aw.circuits.context_reliance(*induction, "abc", "a", "")
    with pytest.raises(ValueError, match="continue a text"):
        aw.circuits.context_reliance(*aw.demo_model("classifier"), "A film.", "It was", "good")


@pytest.mark.extended
def test_smollm2_takes_the_colour_from_the_context(smollm2):
    model = smollm2
    texts = ("Anna bought a purple car last week.", "The colour of Anna's car is")
    result = aw.circuits.context_reliance(*model, *texts, " purple.", method="lrp")
    assert result.kept == (0,)
    assert [cue.strip("␣ ") for _, cue, _ in result.pairs()] == ["purple"]
    assert result.contrasts[0].strip("␣ ") == "red"
