"""Grad-CAM and its family, beside the authors' numbers, captum, and identities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.vision.pictures import (
    FAMILIES,
    apart,
    dino_of_reference,
    noise,
    of_family,
    tiny_of_reference,
    vit,
)

FIRST = "resnet.encoder.stages.1.layers.0.layer.0"
NAMES = {
    "gradcam": "GradCAM",
    "hirescam": "HiResCAM",
    "layercam": "LayerCAM",
    "gradcam++": "GradCAMPlusPlus",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "variants"), [(tiny_of_reference, NAMES), (dino_of_reference, ["gradcam++"])]
)
def test_maps_equal_the_authors(shared: Any, made: Any, variants: Any) -> None:
    trace, numbers = made(shared)
    target = int(numbers["target"])
    for variant in variants:
        name = NAMES[variant]
        result = aw.vision.grad_cam(trace, target, variant=variant)
        assert result.values[0] == 0  # [CLS] is not in the map
        assert apart(result.values[1:], numbers[f"pytorch_grad_cam_{name}_raw"]) < 1e-5
    assert result.provenance["layer"].endswith(("layernorm_before", "norm1"))
    attention = aw.vision.grad_cam(trace, target, variant="attention").values[1:].clip(min=0)
    scaled = (attention - attention.min()) / (attention.max() - attention.min())
    assert apart(scaled, numbers["attention_gradcam_chefer_baseline"]) < 1e-5


def test_hirescam_is_input_times_gradient_at_its_layer() -> None:
    model = vit()
    trace = aw.trace(model, None, image=noise(32, 32))
    outputs: list[torch.Tensor] = []

    def keep(*call: Any) -> None:
        call[2].retain_grad()
        outputs.append(call[2])

    norm = next(m for n, m in model.named_modules() if n.endswith("1.layernorm_before"))
    hook = norm.register_forward_hook(keep)
    model(trace.inputs["pixel_values"]).logits[0, 2].backward()
    hook.remove()
    expected = (outputs[0] * outputs[0].grad)[0, 1:].sum(-1).detach()
    result = aw.vision.grad_cam(trace, 2, variant="hirescam")
    assert apart(result.values[1:], expected) < 1e-5


def test_a_convolutional_model_equals_captum() -> None:
    from captum.attr import LayerGradCam

    model = of_family("ResNet")
    trace = aw.trace(model, None, image=noise(64, 96))
    for layer, path in ((-1, "resnet.encoder.stages.1"), (1, "resnet.encoder.stages.0"), (FIRST, FIRST)):
        module = model.get_submodule(path)
        theirs = LayerGradCam(lambda x: model(x).logits, module).attribute(
            trace.inputs["pixel_values"], target=1, relu_attributions=False
        )
        result = aw.vision.grad_cam(trace, 1, layer)
        assert result.source_unit.grid == tuple(theirs.shape[-2:])
        assert apart(result.values, theirs.detach()) < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_models_without_attention_over_patches(family: str) -> None:
    model = of_family(family)
    trace = aw.trace(model, None, image=noise())
    assert trace.no_attention
    with torch.no_grad():
        assert torch.equal(trace.logits, model(trace.inputs["pixel_values"]).logits[0])
    assert [p.id for p in trace.predictions(3)] == trace.logits.argsort(descending=True).tolist()
    assert aw.vision.grad_cam(trace).shape == (len(trace.tokens),)
    assert aw.saliency(trace).values.min() >= 0
    for method in (aw.attention, aw.rollout, aw.chefer, aw.alti, aw.Explorer):
        with pytest.raises(UnsupportedModelError, match=r"'grad_cam'.* need no attention"):
            method(trace)
    with pytest.raises(UnsupportedModelError, match="has no attention"):
        trace.attention_layer(0)


def test_a_module_that_is_no_model_of_transformers() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=2, padding=1),
        torch.nn.ReLU(inplace=True),
        torch.nn.Conv2d(4, 6, 3, stride=2, padding=1),
        torch.nn.ReLU(inplace=True),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(6, 3),
    )
    trace = aw.trace(model, None, image=noise(32, 48))
    result = aw.vision.grad_cam(trace, 1)
    assert result.source_unit.grid == (8, 12)
    # The head is linear in the mean of the map: the map is every cell's part of the logit.
    total = float(trace.logits[1]) - model[-1].bias[1].item()
    assert np.isclose(result.values.sum(), total, rtol=1e-5)
    assert aw.lrp(trace, 1, unit="pixel").shape == (32 * 48,)


def test_clip_reads_the_pictures_own_tower() -> None:
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
    from tests.tracing.pictures import Reader

    picture = noise(16, 16)
    trace = aw.trace(model, Reader({"pixel_values": picture[None]}, (1, 5, 6, 2)), "the cat", image=picture)
    result = aw.vision.grad_cam(trace)
    assert result.stack == "vision"
    assert result.shape == (5,)
    assert result.values[1:].any()


def test_where_nothing_speaks_for_the_target_it_is_said() -> None:
    trace = aw.trace(vit(), None, image=noise(32, 32))
    result = {
        sign: aw.vision.grad_cam(trace, lambda out, s=sign: s * out.logits[:, 0], variant="attention")
        for sign in (1, -1)
    }
    lower = min(result.values(), key=lambda each: each.values.max())
    assert np.allclose(result[1].values, -result[-1].values)
    if lower.values.max() <= 0:
        assert "0/0" in lower.warning
    zero = aw.vision.grad_cam(aw.trace(dead(), None, image=noise(32, 32)), 0, variant="hirescam")
    assert not (zero.values > 0).any()
    assert "0/0" in zero.warning


def dead() -> Any:
    """Return a model in which every cell speaks against class 0."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 2, 8, stride=8),
        torch.nn.Softplus(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
    )
    head = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(head.weight, -1.0)
    return torch.nn.Sequential(*model, head)


def test_what_cannot_be_read_is_refused_in_words() -> None:
    trace = aw.trace(vit(), None, image=noise(32, 32))
    with pytest.raises(ValueError, match=r"layer 'vit.encoder.layer' is not a module"):
        aw.vision.grad_cam(trace, layer="vit.encoder.layer")
    with pytest.raises(IndexError, match=r"layer 2 is out of range: there are layers 0 to 1"):
        aw.vision.grad_cam(trace, layer=2)
    with pytest.raises(ValueError, match="zero everywhere"):
        aw.vision.grad_cam(trace, lambda out: out.logits[:, 0] * 0)
    with pytest.raises(ValueError, match="which is not a map of the picture"):
        aw.vision.grad_cam(trace, layer="classifier")
    bert = aw.trace(tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece(), "the cat")
    assert "no stack of this trace holds a picture" in aw.methods()["grad_cam"].refusal(bert)
    with pytest.raises(ValueError, match="grad_cam: it needs a picture"):
        aw.vision.grad_cam(bert, lambda out: out.last_hidden_state[:, 0, 0])


def test_model_and_gradients_are_left_alone() -> None:
    model = of_family("ResNet")
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    trace = aw.trace(model, None, image=noise())
    aw.vision.grad_cam(trace)
    assert all(torch.equal(weights, before[name]) for name, weights in model.state_dict().items())
    assert all(weights.grad is None and weights.requires_grad for weights in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_guided_pictures_equal_captum_and_say_that_they_are_no_more_faithful() -> None:
    from captum.attr import GuidedBackprop, GuidedGradCam

    model = of_family("ResNet")
    trace = aw.trace(model, None, image=noise(64, 96))

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).logits

    pixels, whole = trace.inputs["pixel_values"].clone(), Logits()
    theirs = GuidedBackprop(whole).attribute(pixels, target=1)[0].sum(0).detach()
    result = aw.saliency(trace, 1, relu="guided", reduce="sum", unit="pixel")
    assert apart(result.values.reshape(64, 96), theirs) < 1e-5
    plain = aw.saliency(trace, 1, reduce="sum", unit="pixel")
    assert apart(plain.values.reshape(64, 96), theirs) > 0.05
    layer = model.get_submodule("resnet.encoder.stages.1")
    theirs = GuidedGradCam(whole, layer).attribute(pixels, target=1, interpolate_mode="bilinear")
    cam = aw.vision.grad_cam(trace, 1, variant="guided")
    assert cam.unit == "pixel"
    assert apart(cam.values.reshape(64, 96), theirs[0].sum(0).detach()) < 1e-5
    assert cam.to("patch").shape == (len(trace.units["patch"]),)
    for guided in (result, cam):
        assert "sharpened, not faithful" in guided.warning
    assert "sharpened" not in plain.warning


def test_guided_needs_relus() -> None:
    trace = aw.trace(vit(), None, image=noise(32, 32))
    for guided in (
        lambda: aw.saliency(trace, 1, relu="guided", at="input"),
        lambda: aw.vision.grad_cam(trace, 1, variant="guided"),
    ):
        with pytest.raises(ValueError, match=r'relu="guided" changes.*this model runs none'):
            guided()


def test_a_guided_picture_hardly_depends_on_the_weights_above_it() -> None:
    """Adebayo et al. 2018: under other upper weights gradients differ, and guided ones are much alike."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, padding=1)]
    layers += [torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(128, 5)]
    model = torch.nn.Sequential(*layers).eval()
    trace = aw.trace(model, None, image=torch.rand(1, 16, 16))

    def picture(relu: Any) -> Any:
        return aw.saliency(trace, 1, relu=relu, unit="pixel").values

    before = {relu: picture(relu) for relu in ("gradient", "guided")}
    alike: dict[str, list[float]] = {relu: [] for relu in before}
    for _ in range(5):
        layers[-1].reset_parameters()
        trace = aw.trace(model, None, image=trace.inputs["pixel_values"][0])
        for relu, values in before.items():
            alike[relu].append(np.corrcoef(values, picture(relu))[0, 1])
    assert np.mean(alike["guided"]) > np.mean(alike["gradient"]) + 0.2, alike
