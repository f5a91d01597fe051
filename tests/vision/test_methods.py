"""Methods of transformers on pictures, beside the authors' numbers and plain autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.tracing.pictures import Reader
from tests.vision.pictures import apart, dino_of_reference, noise, of_family, tiny_of_reference, vit


@pytest.fixture(scope="module")
def authors(shared: Any) -> Any:
    return tiny_of_reference(shared)


def test_both_of_chefers_rules_equal_the_authors(authors: Any) -> None:
    trace, numbers = authors
    target, foil = int(numbers["target"]), int(numbers["foil"])
    for asked, name in ((target, "chefer_mm_rules5_6"), (foil, "chefer_mm_rules5_6_foil_class")):
        assert apart(aw.chefer(trace, asked).values[1:], numbers[name]) < 1e-5
    result = aw.chefer(trace, target, rule=("cvpr2021", {"relevance": "alpha_beta"}))
    assert apart(result.values[1:], numbers["chefer2021_transformer_attribution"]) < 1e-5
    assert "alpha-beta" in result.note
    other = aw.chefer(trace, target, rule="cvpr2021")
    assert apart(other.values[1:], numbers["chefer2021_transformer_attribution"]) > 0.01
    assert "AttnLRP" in other.note


@pytest.mark.extended
def test_the_published_relevance_of_a_trained_model(shared: Any) -> None:
    trace, numbers = dino_of_reference(shared)
    result = aw.chefer(trace, int(numbers["target"]), rule=("cvpr2021", {"relevance": "alpha_beta"}))
    assert apart(result.values[1:], numbers["chefer2021_transformer_attribution"]) < 1e-5


def test_rollout_equals_the_authors_and_drops_the_lowest_weights_rightly(authors: Any) -> None:
    trace, numbers = authors
    assert apart(aw.rollout(trace).layer(-1)[0, 1:], numbers["rollout_chefer_baseline"]) < 1e-5
    for ratio in (0.0, 0.9):
        for rightly in (True, False):
            product = np.eye(17)
            for layer in range(3):
                weights = trace.attention_layer(layer).double().numpy().mean(0)
                flat = weights.reshape(-1)
                lowest = np.argsort(flat, kind="stable")[: int(flat.size * ratio)]
                flat[lowest[lowest != 0]] = 0
                mixed = (weights + np.eye(17)) / 2
                product = mixed / mixed.sum(-1, keepdims=rightly) @ product
            if rightly:
                ours = aw.rollout(trace, discard_ratio=ratio)
                assert apart(ours.layer(-1)[0], product[0]) < 1e-6
                assert np.allclose(ours.layer(-1).sum(-1), 1)
            else:  # theirs divides by the sums of other rows
                theirs = numbers[f"vit_explain_rollout_mean_{ratio}"].reshape(-1)
                assert apart(product[0, 1:] / product[0, 1:].max(), theirs) < 1e-5
    assert "without the lowest 90% of every layer's weights" in ours.note
    with pytest.raises(ValueError, match="discard_ratio must be a share"):
        aw.rollout(trace, discard_ratio=1.0)


def test_attention_of_the_class_token_is_its_row_and_says_what_is_elsewhere(authors: Any) -> None:
    trace, numbers = authors
    result = aw.vision.class_attention(trace)
    assert apart(result.values[:, 1:], numbers["cls_attention_last_layer"]) < 1e-5
    assert np.allclose(result.values.sum(-1), 1, atol=1e-6)
    assert np.allclose(
        result.provenance["elsewhere"], 1 - numbers["cls_attention_last_layer"].sum(-1), atol=1e-6
    )
    assert "of the attention is on [CLS], not on patches" in result.warning
    registers = tiny.build(
        lambda: hf.Dinov2WithRegistersModel(
            hf.Dinov2WithRegistersConfig(**tiny.SMALL, image_size=16, patch_size=8, num_register_tokens=2)
        )
    )
    more = aw.vision.class_attention(aw.trace(registers, None, image=noise(16, 16)), layer=0)
    assert "on [CLS] to [REG1], not on patches" in more.warning
    siglip = tiny.build(
        lambda: hf.SiglipVisionModel(hf.SiglipVisionConfig(**tiny.SMALL, image_size=16, patch_size=8))
    )
    with pytest.raises(UnsupportedModelError, match="this model has none"):
        aw.vision.class_attention(aw.trace(siglip, None, image=noise(16, 16)))


@pytest.mark.parametrize("start", [0, -1])
def test_chefers_rule_for_clip_explains_a_caption_in_both_towers(start: int) -> None:
    small = {**tiny.SMALL, "image_size": 16, "patch_size": 8}
    text = {
        **tiny.SMALL,
        "vocab_size": 40,
        "max_position_embeddings": 20,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    model = tiny.build(
        lambda: hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=small, projection_dim=16))
    )
    picture, ids = noise(16, 16), (1, 5, 6, 2)
    trace = aw.trace(model, Reader({"pixel_values": picture[None]}, ids), "the cat", image=picture)
    model.set_attn_implementation("eager")
    outputs = model(input_ids=torch.tensor([ids]), pixel_values=picture[None], output_attentions=True)
    for stack, row, tower in (
        ("vision", 0, outputs.vision_model_output),
        ("text", 3, outputs.text_model_output),
    ):
        slopes = torch.autograd.grad(outputs.logits_per_image[0, 0], tower.attentions, retain_graph=True)
        expected = torch.eye(tower.attentions[0].shape[-1])
        for weights, slope in list(zip(tower.attentions, slopes, strict=True))[start:]:
            expected = expected + (weights * slope)[0].clamp(min=0).mean(0) @ expected
        result = aw.chefer(trace, stack=stack, start_layer=start)
        assert apart(result.values, expected[row].detach()) < 1e-5


def test_gradients_by_pixels_are_autograds() -> None:
    model = vit()
    trace = aw.trace(model, None, image=noise(32, 32))
    pixels = noise(32, 32)[None].requires_grad_()
    model(pixels).logits[0, 1].backward()
    slope = pixels.grad[0]
    result = aw.saliency(trace, 1, at="input", unit="pixel")
    assert result.shape == (32 * 32,)
    assert result.source_unit.grid == (32, 32)
    assert apart(result.values, slope.norm(dim=0)) < 1e-5
    product = aw.input_x_gradient(trace, [1, 2], at="input")
    by_patch = (slope * pixels[0].detach()).sum(0).reshape(4, 8, 4, 8).sum((1, 3))
    assert apart(product.values[0, 1:], by_patch) < 1e-5
    assert product.labels[0] == "[CLS]"
    assert (product.values[:, 0] == 0).all()
    coarse = aw.input_x_gradient(trace, 1, at="input", unit="pixel").to("patch")
    assert coarse.labels == product.labels[1:]
    assert apart(coarse.values, product.values[0, 1:]) < 1e-5


def test_relevance_of_pixels_adds_up_to_that_of_patches() -> None:
    trace = aw.trace(vit(), None, image=noise(32, 32))
    pixels, patches = (aw.lrp(trace, 1, at="input", unit=unit) for unit in ("pixel", "patch"))
    assert apart(pixels.to("patch").values, patches.values[1:]) < 1e-5
    assert pixels.values.sum() + pixels.residual == pytest.approx(float(trace.logits[1]), abs=1e-5)
    with pytest.raises(ValueError, match="unit 'bin' is of another input: here the elements are pixels"):
        aw.lrp(trace, 1, at="input", unit="bin")


def test_a_spectrogram_is_read_by_its_bands_and_frames() -> None:
    model = tiny.whisper()
    reader = hf.WhisperFeatureExtractor(feature_size=8, hop_length=400, chunk_length=1)
    wave = np.random.default_rng(0).normal(size=3200).astype(np.float32)
    trace = aw.trace(model, reader, audio=wave, sampling_rate=16_000)
    bins = aw.saliency(trace, 5, at="input", unit="bin", reduce="sum")
    assert bins.source_unit.grid == (8, 40)
    values = trace.inputs["input_features"].clone().requires_grad_()
    decoder = trace.inputs["decoder_input_ids"]
    model(input_features=values, decoder_input_ids=decoder).logits[0, -1, 5].backward()
    assert apart(bins.values, values.grad[0]) < 1e-5
    frames = aw.saliency(trace, 5, at="input", reduce="sum")
    assert frames.shape == (20,)
    assert frames.stack == "encoder"
    assert apart(frames.values, values.grad[0].sum(0).reshape(20, 2).sum(1)) < 1e-4
    assert bins.to("frame").source_unit.times == frames.source_unit.times


def test_without_attention_the_input_is_explained() -> None:
    trace = aw.trace(of_family("ResNet"), None, image=noise())
    assert aw.saliency(trace).unit == "patch"
    relevance = aw.lrp(trace, 1)
    assert relevance.values.sum() + relevance.residual == pytest.approx(float(trace.logits[1]), abs=1e-4)
    assert "sum of the patches" in repr(relevance)
    for method in (aw.integrated_gradients, aw.occlusion):
        with pytest.raises(UnsupportedModelError, match="this model has none of patches"):
            method(trace)
