"""The scores of Quantus where its definitions are ours: written to quantus.json, which a test reads.

    pip install quantus==0.6.0
    python tests/evaluate/against_quantus.py

Quantus perturbs arrays. To remove the same tokens as we do, its input is a row of ones, for the tokens,
and the module that it calls puts the mask token where it sets a zero; for its sensitivities the input is the
embeddings themselves. Quantus is licensed under the LGPL and is called here, never copied.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

SCORES = Path(__file__).with_suffix(".json").with_name("quantus.json")
IDS = [2, 7, 30, 9, 21, 11, 12, 3]
MASK = 4
LABEL = 1
RADIUS = 0.05
EPSILON = 0.03
THRESHOLD = 0.3


def classifier() -> Any:
    """Return a small BERT whose weights are the same with every version of torch."""
    import transformers as hf

    sizes = {"vocab_size": 40, "hidden_size": 12, "intermediate_size": 8}
    config = hf.BertConfig(**sizes, num_hidden_layers=2, num_attention_heads=2, num_labels=3)
    model = hf.BertForSequenceClassification(config).double().eval()
    for number, parameter in enumerate(model.parameters()):
        waves = torch.sin(torch.arange(parameter.numel(), dtype=torch.float64) ** 1.5 * 1.7 + number)
        parameter.data = (0.6 * waves).reshape(parameter.shape)
    model.classifier.weight.data *= 4
    return model


class Masked(torch.nn.Module):
    """Logits of the text in which tokens with a zero are masked."""

    def __init__(self) -> None:
        super().__init__()
        self.model = classifier()

    def forward(self, mask: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, class] of zeros and ones [batch, 1, token]."""
        ids = torch.tensor(IDS).expand(len(mask), -1)
        return self.model(input_ids=ids.masked_fill(mask[:, 0] == 0, MASK)).logits.float()


class Embedded(torch.nn.Module):
    """Logits of embeddings [batch, token, dim]."""

    def __init__(self) -> None:
        super().__init__()
        self.model = classifier()

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, class]."""
        return self.model(inputs_embeds=given.double()).logits


def slopes(model: Any, inputs: Any, targets: Any, **_: Any) -> np.ndarray:
    """Return the gradient of a class by the embeddings."""
    result = []
    for item, label in zip(inputs, targets, strict=True):
        leaf = torch.as_tensor(item)[None].double().requires_grad_()
        with torch.enable_grad():
            result.append(torch.autograd.grad(model(leaf)[0, int(label)], leaf)[0][0].numpy())
    return np.stack(result)


def main() -> None:
    """Score, and write the numbers with the version."""
    import quantus

    vectors = np.random.default_rng(0).normal(size=(4, len(IDS)))
    vectors[3] = np.where(np.arange(len(IDS)) % 3, vectors[3], 0.0)
    quiet = {"disable_warnings": True, "display_progressbar": False}
    ones = np.ones((1, 1, len(IDS)), dtype=np.float32)
    baseline = {"perturb_baseline": 0.0}
    masked, label = Masked().eval(), np.array([LABEL])
    removal = {
        "monotonicity": quantus.MonotonicityCorrelation(
            features_in_step=1, nr_samples=1, perturb_func_kwargs=baseline, **quiet
        ),
        "non_sensitivity": quantus.NonSensitivity(
            features_in_step=1, eps=EPSILON, perturb_func_kwargs=baseline, **quiet
        ),
        "deletion": quantus.PixelFlipping(
            features_in_step=1, abs=False, normalise=False, perturb_func_kwargs=baseline, **quiet
        ),
    }
    simple = {
        "entropy": quantus.Complexity(abs=True, **quiet),
        "gini": quantus.Sparseness(**quiet),
        "features_above": quantus.EffectiveComplexity(eps=THRESHOLD, **quiet),
    }
    result: dict[str, Any] = {name: [] for name in (*removal, *simple)}
    for vector in vectors:
        given = {"x_batch": ones, "y_batch": label, "a_batch": vector[None, None].copy()}
        for name, metric in {**removal, **simple}.items():
            score = metric(model=masked, softmax=True, channel_first=True, **given)
            result[name].append(np.asarray(score, dtype=np.float64).reshape(-1).tolist())

    embedded = Embedded().eval()
    with torch.no_grad():
        start = embedded.model.get_input_embeddings()(torch.tensor(IDS))[None].numpy()
    noise = np.random.default_rng(1).uniform(-RADIUS, RADIUS, size=(5, *start.shape[1:])).round(6)
    for name, metric in (
        ("max_sensitivity", quantus.MaxSensitivity),
        ("average_sensitivity", quantus.AvgSensitivity),
        ("local_lipschitz", quantus.LocalLipschitzEstimate),
    ):
        drawn = iter(noise)

        def moved(arr: Any, drawn: Any = drawn, **_: Any) -> Any:
            return arr + next(drawn).reshape(arr.shape)

        score = metric(
            nr_samples=len(noise), perturb_func=moved, abs=False, normalise=False,
            return_nan_when_prediction_changes=False, **quiet,
        )(
            model=embedded, x_batch=start, y_batch=label, a_batch=slopes(embedded, start, label),
            explain_func=slopes, channel_first=True, softmax=False,
        )  # fmt: skip
        result[name] = [float(np.ravel(score)[0])]
    written = {
        "quantus": quantus.__version__,
        "script": "python tests/evaluate/against_quantus.py",
        "vectors": vectors.tolist(),
        "noise": noise.tolist(),
        "scores": result,
    }
    SCORES.write_text(json.dumps(written) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
