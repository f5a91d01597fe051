"""Whether values add up to the lost output: captum's number, additive models, and where it is undefined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.evaluate import infidelity
from attnwidgets.evaluate.metrics.infidelity import mean_squared_error
from attnwidgets.explanations import Attributions
from attnwidgets.explanations.attribution.embedding_gradients import embedding_gradients
from attnwidgets.explanations.targets.target_set import resolve_target_set
from tests.explanations.made import random_classifier
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = (0.5, -2.0, 0.0, 3.0, 1.0)


@pytest.fixture(scope="module")
def additive() -> Any:
    """A trace of a model whose logit 1 is the sum of weights of its ids 10 to 14: a linear bag of words."""
    model = random_classifier().double()
    table = torch.zeros(40, dtype=torch.float64)
    table[10:15] = torch.tensor(WEIGHTS, dtype=torch.float64)

    def summed(_: Any, __: Any, kwargs: Any, output: Any) -> Any:
        mask = kwargs.get("attention_mask", torch.ones_like(kwargs["input_ids"]))
        output.logits = torch.zeros(len(mask), 3, dtype=torch.float64)
        output.logits[:, 1] = (table[kwargs["input_ids"]] * mask).sum(-1)
        return output

    model.register_forward_hook(summed, with_kwargs=True)
    return aw.trace(model, None, input_ids=[10, 11, 12, 13, 14])


def given(trace: Any, values: Any) -> Attributions:
    return Attributions(values, axis=trace.axes()[0])


def test_the_formula_on_embeddings_equals_captum(shared: Path) -> None:
    folder = shared / "reference" / "lrp"
    model = hf.AutoModelForCausalLM.from_pretrained(folder / "models" / "tiny_llama").eval()
    arrays = np.load(folder / "captum_llama.npz")
    trace = aw.trace(model, None, input_ids=arrays["input_ids"].tolist())
    targets = resolve_target_set(trace, 19, None, "test")
    noise = torch.from_numpy(arrays["infid.noise"])
    with embedding_gradients(trace, targets, "test", "self") as model:
        ((gradient, embeddings),) = model.at()
        after = targets.scores(model.run({"self": embeddings - noise}).outputs)[0].detach()
        before = model.scores()[0]
    products = (noise * gradient).sum((1, 2))
    error = mean_squared_error(products, before - after)
    np.testing.assert_allclose(error, arrays["infidelity.gradxinput_local"][0], rtol=1e-3)


@pytest.mark.parametrize("operator", ["delete", "pad", "attention_mask"])
def test_the_weights_of_an_additive_model_add_up(additive: Any, operator: Any) -> None:
    named = {"weights": given(additive, WEIGHTS), "half": given(additive, np.array(WEIGHTS) / 2)}
    card = infidelity(additive, named, 1, operator=operator, samples=40, share=0.3)
    assert card.of("weights")[0, 0, 0] == pytest.approx(0, abs=1e-12)
    assert card.of("oracle")[0, 0, 0] == pytest.approx(0, abs=1e-12)
    assert card.of("half")[0, 0, 0] > 0.1
    assert card.of("random")[0, 0, 0] > 0.1
    scaled = infidelity(additive, named, 1, operator=operator, samples=40, normalize=True)
    assert scaled.of("half")[0, 0, 0] == pytest.approx(0, abs=1e-12)


def test_no_values_beat_the_oracle() -> None:
    trace = aw.trace(random_classifier().double(), tiny.wordpiece(), "unbelievable cat")
    generator = np.random.default_rng(0)
    named = {str(number): given(trace, generator.normal(size=6)) for number in range(20)}
    card = infidelity(trace, named | {"gradient": "input_x_gradient"}, 1, operator="mask", normalize=True)
    least = card.of("oracle")[0, 0, 0]
    assert least > 0
    assert (card.samples[0, 0, :, 0] >= least).all()


def test_undefined_and_bad_input_are_said(additive: Any) -> None:
    bare = infidelity(additive, given(additive, WEIGHTS), 1, operator="delete", share=1 - 1e-9)
    assert np.isnan(bare.samples[0, 0, 0, 0])
    assert "nothing left to read" in bare.warning
    some = infidelity(additive, given(additive, WEIGHTS), 1, operator="delete", share=0.9)
    assert np.isfinite(some.samples).all(), "sets that leave nothing are left out"
    with pytest.raises(ValueError, match="share between 0 and 1"):
        infidelity(additive, given(additive, WEIGHTS), operator="pad", share=1)
    with pytest.raises(ValueError, match="Did you mean 'pad'"):
        infidelity(additive, given(additive, WEIGHTS), operator="padd")
