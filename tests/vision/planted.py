"""A ViT with one unit that fires on white patches and makes outliers of them, and the same without it."""

from __future__ import annotations

import copy
from typing import Any

import torch

from tests.vision.pictures import vit

LAYER, UNIT = 1, 7
_WHITE, _OUTLIER = 0, 1  # dimensions: how white a patch is, and the direction that the unit writes
_PLAIN = ((0, 3), (2, 1), (3, 3))


def models() -> tuple[Any, Any]:
    """Return the model with the unit, and without."""
    model = vit(num_hidden_layers=4)
    with torch.no_grad():
        embeddings = model.vit.embeddings
        projection = embeddings.patch_embeddings.projection
        projection.weight[_WHITE] = 1 / projection.weight[0].numel()
        projection.bias[_WHITE] = 0
        for table in (embeddings.position_embeddings, embeddings.cls_token):
            table[..., [_WHITE, _OUTLIER]] = 0
        projection.weight[_OUTLIER] = projection.bias[_OUTLIER] = 0
        for layer in model.vit.layers:
            attention = layer.attention
            for linear in (attention.o_proj, layer.mlp.fc2):
                linear.weight[[_WHITE, _OUTLIER]] = 0
                linear.bias[[_WHITE, _OUTLIER]] = 0
            for linear in (attention.q_proj, attention.v_proj, layer.mlp.fc1):
                linear.weight[:, _OUTLIER] = 0
            # An outlier is read by no one: every query is far from its key.
            attention.q_proj.bias.fill_(1.0)
            attention.k_proj.weight[:, _OUTLIER] = -4.0
            for norm in (layer.layernorm_before, layer.layernorm_after):
                norm.weight.fill_(1)
                norm.bias.fill_(0)
        without = copy.deepcopy(model)
        mlp = model.vit.layers[LAYER].mlp
        mlp.fc1.weight[UNIT] = 0
        mlp.fc1.weight[UNIT, _WHITE] = 4.0
        mlp.fc1.bias[UNIT] = -8.0
        mlp.fc2.weight[:, UNIT] = 0
        mlp.fc2.weight[_OUTLIER, UNIT] = 25.0
        kept = without.vit.layers[LAYER].mlp
        kept.fc2.weight[:, UNIT] = 0
    return model, without


def picture(seed: int = 0) -> torch.Tensor:
    """Return a picture of noise with three white patches, [channel, row, column]."""
    pixels = torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(seed))
    for row, column in _PLAIN:
        pixels[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = 8.0
    return pixels


def white() -> tuple[str, ...]:
    """Return the labels of the white patches."""
    return tuple(f"{row},{column}" for row, column in _PLAIN)
