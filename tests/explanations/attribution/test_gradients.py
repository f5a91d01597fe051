"""Saliency, input x gradient and Integrated Gradients: as captum computes them, and by finite differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from tests.explanations.made import random_classifier
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path

METHODS = (aw.saliency, aw.input_x_gradient, aw.integrated_gradients)


@pytest.fixture(scope="module")
def captum(shared: Path) -> Any:
    """(trace, arrays) of the tiny Llama that captum explained; the target is token 19."""
    folder = shared / "reference" / "lrp"
    model = hf.AutoModelForCausalLM.from_pretrained(folder / "models" / "tiny_llama").eval()
    arrays = np.load(folder / "captum_llama.npz")
    return aw.trace(model, None, input_ids=arrays["input_ids"].tolist()), arrays


@pytest.fixture(scope="module")
def classified() -> Any:
    """A trace of the random classifier, in float64."""
    return aw.trace(random_classifier().double(), tiny.wordpiece(), "the cat sat")


def close(actual: Any, expected: Any, tolerance: float = 1e-5) -> bool:
    scale = np.abs(expected).max()
    return bool(np.abs(np.asarray(actual) - expected).max() <= tolerance * scale)


@pytest.mark.parametrize("reduce", ["sum", "mean", "l1", "l2"])
def test_gradients_equal_captum(captum: Any, reduce: Any) -> None:
    trace, arrays = captum
    assert close(aw.saliency(trace, 19, reduce=reduce).values, arrays[f"grad.{reduce}"])
    assert close(aw.input_x_gradient(trace, 19, reduce=reduce).values, arrays[f"gradxinput.{reduce}"])


@pytest.mark.parametrize(("name", "baseline"), [("zero", "zero"), ("pad", 0)])
@pytest.mark.parametrize("steps", [20, 50])
def test_integrated_gradients_equal_captum(captum: Any, name: str, baseline: Any, steps: int) -> None:
    trace, arrays = captum
    result = aw.integrated_gradients(trace, 19, baseline=baseline, steps=steps)
    expected = arrays[f"ig.{name}.n{steps}.sum"]
    assert close(result.values, expected)
    # captum's delta is the sum less the change; a residual is the missing part.
    assert result.residual == pytest.approx(-float(arrays[f"ig.{name}.n{steps}.delta"][0]), abs=1e-4)
    assert result.provenance["change"] == pytest.approx(expected.sum() + result.residual, abs=1e-4)
    l2 = aw.integrated_gradients(trace, 19, baseline=baseline, steps=steps, reduce="l2")
    assert close(l2.values, arrays[f"ig.{name}.n{steps}.l2"])


def test_the_trapezoid_s_weights_sum_to_one(captum: Any) -> None:
    trace, arrays = captum
    result = aw.integrated_gradients(trace, 19, baseline=0, steps=50, rule="trapezoid")
    # captum divides by the number of points instead of the number of gaps between them.
    assert close(result.values * 49 / 50, arrays["ig.pad.trapezoid50.sum"])


def test_a_baseline_of_zeros_says_what_is_missing(captum: Any) -> None:
    trace, _ = captum
    poor = aw.integrated_gradients(trace, 19, baseline="zero", steps=50)
    assert "the sum misses the change from the baseline" in poor.warning
    assert aw.integrated_gradients(trace, 19, baseline=0, steps=50).warning == ""


def test_input_x_gradient_is_the_slope_along_each_embedding(classified: Any) -> None:
    result = aw.input_x_gradient(classified, 1).values
    model, step = classified.model, 1e-6
    embeddings = model.bert.embeddings.word_embeddings(classified.inputs["input_ids"]).detach()
    for token in range(len(classified.tokens)):
        scores = []
        for factor in (1 + step, 1 - step):
            changed = embeddings.clone()
            changed[:, token] *= factor
            with torch.no_grad():
                scores.append(float(model(inputs_embeds=changed).logits[0, 1]))
        assert (scores[0] - scores[1]) / (2 * step) == pytest.approx(result[token], abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_foil_is_subtracted_and_several_targets_are_rows(classified: Any, method: Any) -> None:
    options: dict[str, Any] = {} if method is aw.integrated_gradients else {"reduce": "sum"}
    both = method(classified, [0, 2], **options)
    assert both.shape == (2, len(classified.tokens))
    assert both.targets == ("LABEL_0", "LABEL_2")
    contrast = method(classified, 0, foil=2, **options)
    np.testing.assert_allclose(contrast.values, both.values[0] - both.values[1], atol=1e-6)
    assert contrast.foil == "LABEL_2"
    assert "rather than 'LABEL_2'" in contrast.title
    with pytest.raises(ValueError, match="is the target itself"):
        method(classified, 0, foil=0, **options)


def test_reductions_divide_by_the_dimensions(classified: Any) -> None:
    result = {how: aw.saliency(classified, 0, reduce=how).values for how in ("sum", "mean", "l1", "l2")}
    dims = classified.model.config.hidden_size
    np.testing.assert_allclose(result["mean"] * dims, result["sum"], rtol=1e-6)
    mean_abs = aw.saliency(classified, 0, reduce="mean_abs").values
    np.testing.assert_allclose(mean_abs * dims, result["l1"], rtol=1e-6)
    mean_square = aw.saliency(classified, 0, reduce="mean_square").values
    np.testing.assert_allclose(mean_square * dims, result["l2"] ** 2, rtol=1e-5)


def test_words_are_sums_of_their_pieces(classified: Any) -> None:
    trace = aw.trace(classified.model, classified.tokenizer, "unbelievable cat")
    tokens, words = aw.input_x_gradient(trace, 0), aw.input_x_gradient(trace, 0, unit="word")
    assert words.labels == ("[CLS]", "unbelievable", "cat", "[SEP]")
    assert words.values[1] == pytest.approx(tokens.values[1:4].sum(), abs=1e-6)


@pytest.mark.parametrize("baseline", ["pad", "mask", "mean", "zero", "cat", 3, np.zeros(12)])
def test_integrated_gradients_reach_the_change_from_any_baseline(classified: Any, baseline: Any) -> None:
    result = aw.integrated_gradients(classified, 1, baseline=baseline, steps=200, batch_size=50)
    model = classified.model
    table = model.bert.embeddings.word_embeddings.weight.detach()
    tokenizer = classified.tokenizer
    rows = {"pad": table[0], "mask": table[4], "mean": table.mean(0), "zero": 0 * table[0], "cat": table[9]}
    row = table[3] if isinstance(baseline, int) else rows["zero"]
    row = rows[baseline] if isinstance(baseline, str) else row
    assert tokenizer.convert_tokens_to_ids(["[PAD]", "[MASK]", "cat"]) == [0, 4, 9]
    with torch.no_grad():
        below = model(inputs_embeds=row.expand(1, len(classified.tokens), -1)).logits[0, 1]
    change = float(classified.logits[1] - below)
    assert result.provenance["change"] == pytest.approx(change, abs=1e-6)
    assert float(result.values.sum()) == pytest.approx(change, abs=1e-4)
    assert abs(result.residual) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("family", ["T5", "Marian"])
def test_both_stacks_have_attributions(family: str) -> None:
    trace = aw.trace(tiny.build(tiny.SEQ2SEQ[family]), None, input_ids=[5, 6, 7, 8])
    for method in METHODS:
        source, read = method(trace, 3), method(trace, 3, stack="decoder")
        assert source.shape == (4,)
        assert read.shape == (len(trace.axes("decoder")[0]),)
        assert source.values.any()
    with pytest.raises(ValueError, match='"cross" has no tokens of its own'):
        aw.saliency(trace, 3, stack="cross")


@pytest.mark.parametrize("family", sorted(tiny.TEXT))
def test_every_family_has_gradients_and_comes_back_as_it_was(family: str) -> None:
    model = tiny.build(tiny.TEXT[family])
    trace = aw.trace(model, None, input_ids=[5, 6, 7, 8, 9])
    direction = aw.targets.embedding_dot(range(32), 2)
    target = direction if trace.logits is None else aw.targets.token(3, position=2)
    before = {name: (id(p), p.requires_grad) for name, p in model.named_parameters()}
    result = aw.integrated_gradients(trace, target, baseline=20, steps=60)
    assert abs(result.residual) < 0.02 * max(abs(result.provenance["change"]), np.abs(result.values).max())
    assert {name: (id(p), p.requires_grad) for name, p in model.named_parameters()} == before
    assert all(p.grad is None for p in model.parameters())


def test_images_have_attributions_by_patch() -> None:
    model = tiny.build(tiny.IMAGE["ViT"])
    pixels = torch.rand(3, 24, 24, generator=torch.Generator().manual_seed(0))
    trace = aw.trace(model, None, image=pixels)
    result = aw.integrated_gradients(trace, 1, baseline="mean", steps=30)
    assert result.shape == (len(trace.tokens),)
    assert abs(result.residual) < 1e-3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"reduce": "l3"}, ValueError, "reduce 'l3' is not one of"),
        ({"target": "LABEL_9"}, ValueError, "is not a class"),
        ({"unit": "wrod"}, ValueError, "Did you mean 'word'"),
        ({"stack": "encoder"}, ValueError, "is not in this trace"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_bad_input_is_said(classified: Any, method: Any, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        method(classified, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 1}, "steps must be at least 2"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"rule": "simpson"}, "rule 'simpson' is not one of"),
        ({"baseline": np.zeros(5)}, r"baseline has shape \(5,\)"),
        ({"baseline": 99}, "the token ids are 0 to 39"),
        ({"baseline": "msk"}, r"'msk' is neither one of 'pad', .* nor one token .* Did you mean 'mask'"),
    ],
)
def test_bad_integration_is_said(classified: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aw.integrated_gradients(classified, 0, **options)


def test_what_a_gradient_cannot_say_names_the_layer() -> None:
    model = random_classifier()
    trace = aw.trace(model, tiny.wordpiece(), "the cat sat")
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.bias.fill_(float("nan"))
    for method in METHODS:
        with pytest.raises(ValueError, match="the states after layer 1 hold NaN"):
            method(trace, 0)
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.bias.zero_()
        model.classifier.weight.zero_()
    trace = aw.trace(model, tiny.wordpiece(), "the cat sat")
    for method in METHODS:
        with pytest.raises(ValueError, match="is zero everywhere on its way into the last layer's output"):
            method(trace, 0)
    with torch.inference_mode(), pytest.raises(ValueError, match="inference_mode"):
        aw.saliency(trace, 0)


def test_smoothgrad_is_the_mean_gradient_of_noisy_embeddings(classified: Any) -> None:
    model, ids = classified.model, classified.inputs["input_ids"]
    table = model.get_input_embeddings()
    embedded = table(ids)[0].detach()
    spread = 0.2 * (embedded.max() - embedded.min())
    total = torch.zeros_like(embedded)
    for draw in range(12):
        noise = np.random.default_rng((3, draw)).standard_normal(tuple(embedded.shape))
        leaf = (embedded + spread * torch.as_tensor(noise)).requires_grad_()
        logits = model(inputs_embeds=leaf[None], attention_mask=classified.inputs["attention_mask"]).logits
        total += torch.autograd.grad(logits[0, 1], leaf)[0] / 12
    smooth = aw.saliency(classified, 1, noise=0.2, draws=12, seed=3)
    assert close(smooth.values, total.norm(dim=-1).numpy(), 1e-9)
    assert smooth.title.startswith("SmoothGrad (l2)")
    assert smooth.provenance["options"]["draws"] == 12
    assert not close(aw.saliency(classified, 1).values, smooth.values, 1e-3)
    with pytest.raises(ValueError, match=r"noise must be a share.*not -0\.1"):
        aw.saliency(classified, 1, noise=-0.1)
    with pytest.raises(ValueError, match="draws must be at least 1, not 0"):
        aw.saliency(classified, 1, noise=0.1, draws=0)


def test_expected_gradients_of_one_baseline_are_integrated_gradients(classified: Any) -> None:
    whole = aw.integrated_gradients(classified, 1, baseline="mask")
    expected = aw.integrated_gradients(classified, 1, baseline="mask", rule="expected", steps=200)
    assert close(expected.values, whole.values, 1e-2)
    assert expected.provenance["change"] == pytest.approx(whole.provenance["change"], abs=1e-9)


def test_expected_gradients_sum_to_the_change_from_the_mean_baseline(classified: Any) -> None:
    others = [aw.trace(classified.model, tiny.wordpiece(), text) for text in ("the dog ran", "cat the sat")]
    assert {len(other.tokens) for other in others} == {len(classified.tokens)}
    result = aw.integrated_gradients(classified, 1, baseline=others, rule="expected", steps=400)
    drawn = np.random.default_rng((0, 0)).integers(2, size=400)
    logits = [float(trace.logits.reshape(-1)[1]) for trace in (classified, *others)]
    change = logits[0] - np.mean([logits[1 + draw] for draw in drawn])
    assert result.provenance["change"] == pytest.approx(change, abs=1e-6)
    assert abs(result.residual) < 0.1 * abs(change)
    assert result.title.startswith("Expected Gradients from 2 baselines")
    again = aw.integrated_gradients(classified, 1, baseline=others, rule="expected", steps=400)
    assert (again.values == result.values).all()
    short = aw.trace(classified.model, tiny.wordpiece(), "cat")
    with pytest.raises(ValueError, match=r"a baseline has 3 tokens of width \d+, and the input 5"):
        aw.integrated_gradients(classified, 1, baseline=[short], rule="expected")


def test_expected_gradients_of_a_linear_model_are_exact() -> None:
    layer = torch.nn.Linear(3, 2).double()
    trace = aw.trace_module(layer, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    baselines = [np.full((3, 1), 0.5), np.array([[0.0], [1.0], [4.0]])]
    result = aw.integrated_gradients(trace, 1, baseline=baselines, rule="expected", steps=10, seed=5)
    drawn = np.random.default_rng((5, 0)).integers(2, size=10)
    mean = np.mean([baselines[number][:, 0] for number in drawn], axis=0)
    np.testing.assert_allclose(
        result.values, layer.weight[1].detach().numpy() * (np.array([1.0, 2.0, 3.0]) - mean), atol=1e-6
    )


def test_random_words_leave_special_tokens_alone(classified: Any) -> None:
    result = aw.integrated_gradients(classified, 1, rule="expected", steps=20)
    special = np.asarray(classified.units["token"].special)
    assert special.any()
    assert (result.values[special] == 0).all()
    assert (result.values[~special] != 0).all()
    assert "random words" in result.title
