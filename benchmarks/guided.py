"""How much guided backpropagation depends on the class and on the weights, beside the gradient.

`python benchmarks/guided.py` trains a small convolutional network on the digits of scikit-learn and prints
the rank correlation of pictures of two classes, and of a class before and after the upper layers are made
random (Adebayo et al. 2018, Sanity Checks for Saliency Maps).
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from torch import nn

import attnwidgets as aw

LOWER_LAYERS = 6


def trained() -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    """Return a network, pictures of 32 x 32 pixels, and their digits."""
    pixels, digits = load_digits(return_X_y=True)
    small = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    pictures, labels = nn.functional.interpolate(small, (32, 32), mode="bilinear"), torch.tensor(digits)
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [
        nn.Conv2d(24, 24, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(96, 10),
    ]
    model = nn.Sequential(*layers)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(150):
        batch = torch.randint(len(pictures), (128,))
        loss = nn.functional.cross_entropy(model(pictures[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval(), pictures, labels


def main() -> None:
    """Print the table."""
    model, pictures, labels = trained()
    print(f"accuracy {float((model(pictures).argmax(1) == labels).float().mean()):.2f}")
    other = copy.deepcopy(model)
    for layer in list(other)[LOWER_LAYERS:]:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    traces = [aw.trace(each, None, image=pictures[3]) for each in (model, other)]
    for relu in ("gradient", "guided"):
        before, after = (
            [aw.saliency(trace, digit, relu=relu, unit="pixel").values for digit in range(10)]
            for trace in traces
        )
        classes = [spearmanr(before[i], before[j])[0] for i in range(10) for j in range(i)]
        weights = [spearmanr(*pair)[0] for pair in zip(before, after, strict=True)]
        print(f"{relu:9} other class {np.mean(classes):.2f}, other weights {np.mean(weights):.2f}")


if __name__ == "__main__":
    main()
