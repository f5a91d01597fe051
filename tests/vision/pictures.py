"""Pictures and small models of the tests of aw.vision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from attnwidgets.demo.models import demo_model, lacks
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

FAMILIES: dict[str, Any] = {
    "ResNet": lambda: hf.ResNetForImageClassification(
        hf.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=3
        )
    ),
    "ConvNeXt": lambda: hf.ConvNextForImageClassification(
        hf.ConvNextConfig(hidden_sizes=[8, 8], depths=[1, 1], num_stages=2, num_labels=3)
    ),
    "Swin": lambda: hf.SwinForImageClassification(
        hf.SwinConfig(
            image_size=64,
            patch_size=4,
            embed_dim=8,
            depths=[1, 2],
            num_heads=[2, 2],
            window_size=4,
            num_labels=3,
        )
    ),
    "Swin 2": lambda: hf.Swinv2ForImageClassification(
        hf.Swinv2Config(
            image_size=64,
            patch_size=4,
            embed_dim=8,
            depths=[1, 1],
            num_heads=[2, 2],
            window_size=4,
            num_labels=3,
        )
    ),
    "SegFormer": lambda: hf.SegformerForImageClassification(
        hf.SegformerConfig(
            num_labels=3,
            hidden_sizes=[8, 16],
            num_encoder_blocks=2,
            depths=[1, 1],
            num_attention_heads=[1, 1],
            sr_ratios=[2, 1],
            patch_sizes=[7, 3],
            strides=[4, 2],
            mlp_ratios=[2, 2],
            decoder_hidden_size=8,
        )
    ),
}
"""Families without attention from every patch to every patch, by name."""


def of_family(name: str) -> Any:
    """Return a tiny random model of `FAMILIES`, by name."""
    torch.manual_seed(0)
    return FAMILIES[name]().eval()


def noise(rows: int = 64, columns: int = 64, seed: int = 1) -> torch.Tensor:
    """Return a model's input [channel, row, column]."""
    return torch.randn(3, rows, columns, generator=torch.Generator().manual_seed(seed))


def vit(**options: Any) -> Any:
    """Return a tiny random ViT of 4 x 4 patches with three classes."""
    config = {**tiny.SMALL, "image_size": 32, "patch_size": 8, "num_labels": 3, **options}
    return tiny.build(lambda: hf.ViTForImageClassification(hf.ViTConfig(**config)))


def reference(shared: Any, name: str) -> Any:
    """Return the authors' numbers for "vit_tiny" or "dino_chelsea"."""
    return np.load(shared / "reference" / "vision" / f"{name}.npz")


def tiny_of_reference(shared: Any) -> tuple[Any, Any]:
    """Return the trace of the reference's tiny ViT, and the authors' numbers."""
    model = hf.ViTForImageClassification.from_pretrained(shared / "reference" / "vision" / "vit_tiny").eval()
    numbers = reference(shared, "vit_tiny")
    return trace(model, None, image=torch.from_numpy(numbers["pixel_values"][0])), numbers


def dino_of_reference(shared: Any) -> tuple[Any, Any]:
    """Return the trace of DINOv2-S with the reference's head on [CLS], and the authors' numbers.

    In float64, as theirs: in float32 rounding takes some 1e-5 of the largest number.
    """
    if lacks("vision"):
        pytest.skip("the weights of DINOv2 are not installed")
    numbers = reference(shared, "dino_chelsea")
    backbone, _ = demo_model("vision")
    config = hf.Dinov2Config(**backbone.config.to_dict())
    config.num_labels = 10
    model = hf.Dinov2ForImageClassification(config).eval()
    model.dinov2.load_state_dict(backbone.state_dict())
    model.double()
    with torch.no_grad():
        # It also reads the mean of the patches, which the reference's head does not.
        model.classifier.weight.zero_()[:, : config.hidden_size] = torch.from_numpy(numbers["head_weight"])
        model.classifier.bias.copy_(torch.from_numpy(numbers["head_bias"]))
        for block in model.dinov2.encoder.layer:  # as the reference folds the layers' scales
            for linear, scale in (
                (block.attention.o_proj, block.layer_scale1),
                (block.mlp.fc2, block.layer_scale2),
            ):
                linear.weight.mul_(scale.lambda1[:, None])
                linear.bias.mul_(scale.lambda1)
                scale.lambda1.fill_(1)
    mean, std = (
        torch.tensor(each, dtype=torch.float64).view(3, 1, 1)
        for each in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    )
    pixels = torch.from_numpy(numbers["image"]).permute(2, 0, 1).double() / 255
    return trace(model, None, image=(pixels - mean) / std), numbers


def apart(ours: Any, theirs: Any) -> float:
    """Return the largest difference relative to the largest number."""
    theirs = np.asarray(theirs, dtype=float).reshape(-1)
    return float(np.abs(np.asarray(ours, dtype=float).reshape(-1) - theirs).max() / np.abs(theirs).max())
