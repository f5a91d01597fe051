"""A ViT with a unit that fires on white patches and makes outliers of them, and the same without it."""

from __future__ import annotations

import copy
from typing import Any

import torch

from tests.vision.pictures import vit

LAYER, UNIT = 1, 7
# Dimensions: how white a patch is, the direction that the unit writes, and a constant of every token.
_WHITE, _OUTLIER, _TOKEN = _OWN = (0, 1, 2)
_PLAIN = ((0, 3), (2, 1), (3, 3))


def models() -> tuple[Any, Any]:
    """Return the model with the unit, and without."""
    model = vit(num_hidden_layers=4)
    with torch.no_grad():
        embeddings = model.vit.embeddings
        projection = embeddings.patch_embeddings.projection
        # Brightness is seen in a single dimension.
        projection.weight -= projection.weight.mean((1, 2, 3), keepdim=True)
        projection.weight[_WHITE] = 0.2 / projection.weight[0].numel()
        projection.bias[_WHITE] = 0
        for table in (embeddings.position_embeddings, embeddings.cls_token):
            table[..., list(_OWN)] = 0
        embeddings.position_embeddings[..., _TOKEN] = 0.3
        projection.weight[[_OUTLIER, _TOKEN]] = 0
        projection.bias[[_OUTLIER, _TOKEN]] = 0
        for layer in model.vit.layers:
            attention = layer.attention
            for linear in (attention.o_proj, layer.mlp.fc2):
                linear.weight[list(_OWN)] = 0
                linear.bias[list(_OWN)] = 0
            attention.v_proj.weight *= 20  # so that the values matter
            for linear in (attention.q_proj, attention.v_proj, layer.mlp.fc1):
                linear.weight[:, _OUTLIER] = 0
            # Neither an outlier nor a token of zeros is read: every query is far from their keys.
            attention.q_proj.bias.fill_(1.0)
            attention.k_proj.weight[:, _OUTLIER] = -4.0
            attention.k_proj.weight[:, _TOKEN] = 3.0
            for norm in (layer.layernorm_before, layer.layernorm_after):
                norm.weight.fill_(1)
                norm.bias.fill_(0)
        without = copy.deepcopy(model)
        mlp = model.vit.layers[LAYER].mlp
        mlp.fc1.weight[UNIT] = 0
        mlp.fc1.weight[UNIT, _WHITE] = 4.0
        mlp.fc1.bias[UNIT] = -8.0
        mlp.fc2.weight[:, UNIT] = 0
        mlp.fc2.weight[_OUTLIER, UNIT] = 8.4
        mlp = without.vit.layers[LAYER].mlp
        mlp.fc2.weight[:, UNIT] = 0
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
