"""How far explanations move under noise: against captum's numbers, by hand, and where it must fail."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.evaluate import stability
from attnwidgets.explanations.attribution.embedding_gradients import embedding_gradients
from attnwidgets.explanations.targets.target_set import resolve_target_set
from tests.explanations.made import random_classifier
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def classified() -> Any:
    """A trace of a random classifier in float64: [CLS] un ##believ ##able cat [SEP]."""
    return aw.trace(random_classifier().double(), tiny.wordpiece(), "unbelievable cat")


def full_gradients(trace: Any) -> Any:
    with embedding_gradients(trace, resolve_target_set(trace, 19, None, "test"), "test", "self") as model:
        return next(model.at())[0][0]


def full_product(trace: Any) -> Any:
    with embedding_gradients(trace, resolve_target_set(trace, 19, None, "test"), "test", "self") as model:
        gradient, embeddings = next(model.at())
    return (gradient * embeddings)[0]


def test_max_sensitivity_equals_captum(shared: Path) -> None:
    folder = shared / "reference" / "lrp"
    model = hf.AutoModelForCausalLM.from_pretrained(folder / "models" / "tiny_llama").eval()
    arrays = np.load(folder / "captum_llama.npz")
    trace = aw.trace(model, None, input_ids=arrays["input_ids"].tolist())
    card = stability(
        trace, {"saliency": full_gradients, "gradxinput": full_product}, 19, noise=arrays["sens.noise"]
    )
    for name in ("saliency", "gradxinput"):
        np.testing.assert_allclose(card.of(name)[0, 0], arrays[f"sensitivity_max.{name}"], rtol=1e-3)


def test_every_method_is_computed_again_from_what_the_model_then_reads(classified: Any) -> None:
    """Attention too, which is recorded: by hand with the noise put into the table of words."""
    noise = np.random.default_rng(0).normal(scale=0.3, size=(2, len(classified.tokens), 12))

    def row(trace: Any) -> Any:
        return aw.rollout(trace).select(layer=-1).to_attributions("row", query=0)

    card = stability(
        classified, {"row": row, "gradient": "input_x_gradient"}, 1, noise=noise, normalize=False
    )
    ids = classified.input_ids
    expected: dict[str, list[float]] = {"row": [], "gradient": []}
    for item in noise:
        model = copy.deepcopy(classified.model)
        model.bert.embeddings.word_embeddings.weight.data[ids] += torch.from_numpy(item)
        again = aw.trace(model, classified.tokenizer, input_ids=ids)
        for name, method in (("row", row), ("gradient", lambda trace: aw.input_x_gradient(trace, 1))):
            change = method(again).values.astype(float) - method(classified).values
            expected[name].append(float(np.linalg.norm(change)))
    lengths = np.linalg.norm(noise.reshape(2, -1), axis=1)
    for name, moved in expected.items():
        by_hand = [max(moved), np.mean(moved), (np.array(moved) / lengths).max()]
        np.testing.assert_allclose(card.of(name)[0, :, 0], by_hand, rtol=1e-4)
    assert (card.of("oracle") == 0).all()
    assert np.isnan(card.of("random")).all()


def test_normalizing_divides_by_the_explanation_and_chance_moves_far(classified: Any) -> None:
    methods = {"gradient": "input_x_gradient"}
    plain, shares = (stability(classified, methods, 1, normalize=on, samples=4) for on in (False, True))
    length = np.linalg.norm(aw.input_x_gradient(classified, 1).values)
    np.testing.assert_allclose(plain.of("gradient")[0, :2], shares.of("gradient")[0, :2] * length, rtol=1e-5)
    assert shares.of("random")[0, 1, 0] > 1
    assert shares.of("gradient")[0, 1, 0] < shares.of("random")[0, 1, 0]


def test_only_noise_that_leaves_the_prediction_counts(classified: Any) -> None:
    noise = np.random.default_rng(0).normal(scale=30, size=(12, len(classified.tokens), 12))
    before, unchanged = int(classified.logits.argmax()), []
    for number, item in enumerate(noise):
        model = copy.deepcopy(classified.model)
        model.bert.embeddings.word_embeddings.weight.data[classified.input_ids] += torch.from_numpy(item)
        with torch.no_grad():
            if int(model(**classified.inputs).logits.argmax()) == before:
                unchanged.append(number)
    assert 0 < len(unchanged) < len(noise)
    same = stability(classified, "input_x_gradient", noise=noise, same_prediction=True)
    by_hand = stability(classified, "input_x_gradient", noise=noise[unchanged])
    np.testing.assert_array_equal(same.samples[0, :, 0], by_hand.samples[0, :, 0])
    none = stability(
        classified, "input_x_gradient", noise=np.delete(noise, unchanged, axis=0), same_prediction=True
    )
    assert np.isnan(none.samples[0, :, 0]).all()
    assert "leaves the prediction" in none.warning
    assert "random has no units" in none.warning, "every NaN has its reason"


def test_the_model_comes_back_as_it_was_also_after_a_failure(classified: Any) -> None:
    def fails(trace: Any) -> Any:
        if trace is not classified:
            raise KeyboardInterrupt
        return np.ones(3)

    with pytest.raises(KeyboardInterrupt):
        stability(classified, fails, 1)
    assert all("forward" not in vars(module) for module in classified.model.modules())
    again = aw.trace(classified.model, classified.tokenizer, "unbelievable cat")
    assert torch.equal(again.logits, classified.logits)


def test_undefined_and_bad_input_are_said(classified: Any) -> None:
    zero = stability(classified, {"zero": lambda _: np.zeros(4)}, 1, samples=1)
    assert np.isnan(zero.of("zero")).all()
    with pytest.raises(TypeError, match="is finished"):
        stability(classified, aw.input_x_gradient(classified))
    with pytest.raises(TypeError, match="is a map"):
        stability(classified, "rollout")
    with pytest.raises(TypeError, match="neither Attributions nor numbers"):
        stability(classified, {"words": lambda _: "no"})
    with pytest.raises(ValueError, match="6 tokens, 12 numbers"):
        stability(classified, "saliency", noise=np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match="radius above 0"):
        stability(classified, "saliency", radius=0)
    pair = aw.trace(classified.model, classified.tokenizer, "cat", text_pair="cat")
    pair.inputs["token_type_ids"] = torch.tensor([[0, 0, 0, 1, 1]])
    with pytest.raises(ValueError, match="not of one text"):
        stability(pair, "saliency")
