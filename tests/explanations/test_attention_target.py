"""A weight of attention as a target, compared with autograd through the models' eager attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.evaluate.removals.removal import ElementRemoval
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing.families import FAMILIES, IDS
from tests.zoo.made import made

GRADIENTS = ("BERT", "GPT-2", "Llama", "Gemma 2", "ModernBERT", "OPT")


def by_hand(model, number, layer=1, head=1, query=6):
    """A number of a row of attention, its gradient by word embeddings [token, width], and the embeddings."""
    model.set_attn_implementation("eager")
    embeddings = model.get_input_embeddings()(torch.tensor([IDS])).detach().requires_grad_()
    row = model(inputs_embeds=embeddings, output_attentions=True).attentions[layer][0, head, query]
    value = number(row)
    return value.item(), torch.autograd.grad(value, embeddings)[0][0], embeddings[0].detach()


NUMBERS = {
    "weight": lambda row: row[5],
    "log": lambda row: row[5].log(),
    "log-odds": lambda row: torch.log(row[5] / (1 - row[5])),
}


@pytest.mark.parametrize("family", GRADIENTS)
@pytest.mark.parametrize("of", NUMBERS)
def test_gradients_are_those_of_eager_attention(family, of):
    trace = FAMILIES[family].traced()
    target = aw.targets.attention(1, 1, 6, 5, of=of)
    result = aw.input_x_gradient(trace, target)
    _, gradient, embeddings = by_hand(FAMILIES[family].model(), NUMBERS[of])
    expected = (gradient * embeddings).sum(-1).numpy()
    np.testing.assert_allclose(result.values, expected, atol=1e-5 * max(1, np.abs(expected).max()))
    assert (f"{of} of " if of != "weight" else "attention of ") in result.target


@pytest.mark.parametrize("family", ["BERT", "GPT-2"])
def test_integrated_gradients_sum_to_the_change_of_the_number(family):
    trace, target = FAMILIES[family].traced(), aw.targets.attention(1, 1, 6, 5)
    integrated = aw.integrated_gradients(trace, target, steps=300, baseline="zero")
    value, _, _ = by_hand(FAMILIES[family].model(), NUMBERS["log-odds"])
    start = by_hand_at_zero(FAMILIES[family].model(), NUMBERS["log-odds"])
    assert integrated.values.sum() == pytest.approx(value - start, abs=1e-3)


def by_hand_at_zero(model, number):
    model.set_attn_implementation("eager")
    embeddings = torch.zeros_like(model.get_input_embeddings()(torch.tensor([IDS])))
    return number(model(inputs_embeds=embeddings, output_attentions=True).attentions[1][0, 1, 6]).item()


@pytest.mark.parametrize("stack", ["encoder", "decoder", "cross"])
def test_every_stack_has_weights_of_its_own(stack):
    trace = FAMILIES["T5"].traced()
    weights = aw.attention(trace, stack).layer(1)[1]
    query = len(weights) - 1
    target = aw.targets.attention(1, 1, query, 0, of="weight", stack=stack)
    grad = aw.saliency(trace, target)
    assert np.abs(grad.values).max() > 0
    removal = aw.occlusion(trace, target, baseline="zero")
    assert np.abs(removal.values).max() > 0


def test_a_foil_of_the_same_query_gives_the_difference_of_two_scores():
    trace = FAMILIES["Llama"].traced()
    target, foil = (aw.targets.attention(1, 1, 6, key, of="log") for key in (2, 4))
    contrast = aw.input_x_gradient(trace, target, foil=foil)
    _, gradient, embeddings = by_hand(FAMILIES["Llama"].model(), lambda row: (row[2] / row[4]).log())
    np.testing.assert_allclose(contrast.values, (gradient * embeddings).sum(-1).numpy(), atol=1e-6)


def test_relevance_is_conserved():
    trace = FAMILIES["GPT-2"].traced()
    result = aw.lrp(trace, aw.targets.attention(1, 1, 6, 2, of="weight"), force=True)
    assert np.isfinite(result.values).all()
    assert np.abs(result.values).max() > 0
    deep = aw.deeplift(trace, aw.targets.attention(1, 1, 6, 2))
    assert np.isfinite(deep.values).all()


def test_a_head_is_led_by_the_letters_that_its_circuit_reads():
    """The induction head reads the letter after the query's; without that letter or the query it does not."""
    trace = aw.trace(*made("induction", letters="abcdefgh", length=16), "fadebcfadeb")
    target = aw.targets.attention(1, 0, 11, 6, of="weight")
    values = aw.occlusion(trace, target, baseline="zero").values
    assert {*np.argsort(-values)[:2].tolist()} == {5, 11}
    assert values[[5, 11]] == pytest.approx([1, 11 / 12], abs=0.1)


def test_tokens_are_named_by_number_or_label():
    trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
    by_label = aw.saliency(trace, aw.targets.attention(3, 1, "sat", "cat"))
    by_number = aw.saliency(trace, aw.targets.attention(3, 1, 3, 2))
    assert by_label.target == "log-odds of attention of 'sat' (token 3) to 'cat' (token 2) in head 3.1"
    np.testing.assert_array_equal(by_label.values, by_number.values)


@pytest.mark.parametrize(
    ("named", "error", "words"),
    [
        ((1, 1, 2, 5), ValueError, "is 0, masked"),
        ((1, 1, 0, 0), ValueError, "no odds"),
        ((1, 9, 6, 2), IndexError, "head 9 is out of range"),
        ((7, 1, 6, 2), IndexError, "layer 7 is out of range"),
        ((1, 1, 6, 99), IndexError, "key 99 is out of range"),
    ],
)
def test_cells_that_there_are_not_are_refused(named, error, words):
    with pytest.raises(error, match=words):
        aw.saliency(FAMILIES["Llama"].traced(), aw.targets.attention(*named))


def test_what_needs_a_logit_and_what_moves_tokens_say_so():
    trace = FAMILIES["BERT"].traced()
    target = aw.targets.attention(1, 1, 6, 2)
    with pytest.raises(ValueError, match="not a single logit"):
        aw.decompx(trace, target)
    with pytest.raises(ValueError, match="moves the tokens"):
        aw.evaluate.faithfulness(trace, aw.saliency(trace, target), target, operator="delete")
    with pytest.raises(ValueError, match="odds"):
        aw.saliency(trace, aw.targets.attention(1, 1, 6, 2, of="odds"))


def test_a_model_that_returns_no_weights_is_refused_by_name():
    model = FAMILIES["Llama"].model()
    forward = model.forward

    def without(*args, **options):
        outputs = forward(*args, **options)
        outputs["attentions"] = None
        return outputs

    model.forward = without
    trace = aw.trace(model, None, input_ids=IDS)
    with pytest.raises(UnsupportedModelError, match="does not return those of layer 1"):
        aw.saliency(trace, aw.targets.attention(1, 1, 6, 2))


@pytest.mark.parametrize("operator", ["zero", "attention_mask"])
def test_removals_read_it_in_the_changed_pass(operator):
    """Without a key, here by the attention mask, the query's weight on it is gone."""
    model = FAMILIES["BERT"].model()
    trace = aw.trace(model, None, input_ids=IDS)
    target = aw.targets.attention(1, 1, 6, 5, of="weight")
    removal = ElementRemoval(
        trace,
        trace.axes("self")[0].units["token"],
        "self",
        resolve_target(trace, target, method="a test"),
        operator,
    )
    gone = np.zeros((2, len(IDS)), dtype=bool)
    gone[1, 3] = True
    with removal.answering() as ask:
        before, after = ask(gone).number
    assert before == pytest.approx(float(aw.attention(trace).value(6, 5, layer=1, head=1)), abs=1e-6)
    model.set_attn_implementation("eager")
    inputs = {"input_ids": torch.tensor([IDS])}
    if operator == "attention_mask":
        inputs["attention_mask"] = torch.ones(1, len(IDS)).long()
        inputs["attention_mask"][0, 3] = 0
    else:
        states = model.get_input_embeddings()(torch.tensor([IDS])).detach().clone()
        states[0, 3] = 0
        inputs = {"inputs_embeds": states}
    with torch.no_grad():
        expected = model(**inputs, output_attentions=True).attentions[1][0, 1, 6, 5]
    assert after == pytest.approx(float(expected), abs=1e-6)


def test_other_heads_are_knocked_out_for_it():
    """`head_importance` reads it in each of its passes: a head of an earlier layer moves it."""
    trace = FAMILIES["Llama"].traced()
    target = aw.targets.attention(1, 1, 6, 5, of="log")
    exact = aw.head_importance(trace, target, how="exact")
    model = FAMILIES["Llama"].model()
    model.set_attn_implementation("eager")

    def log_weight():
        with torch.no_grad():
            return float(model(torch.tensor([IDS]), output_attentions=True).attentions[1][0, 1, 6, 5].log())

    before = log_weight()
    projection = model.model.layers[0].self_attn.o_proj
    size = projection.weight.shape[1] // 4
    projection.weight.data[:, 2 * size : 3 * size] = 0
    values = exact["removal"]
    assert values[0, 2] == pytest.approx(before - log_weight(), abs=1e-5)
    assert values[1] == pytest.approx(0, abs=1e-6)
