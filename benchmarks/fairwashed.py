"""What notices a twin that predicts the same and shows other maps: the second table of docs/attack.md.

    python benchmarks/fairwashed.py DATA --write           writes the table

DATA contains sst2/dev.tsv, on which neither the classifier nor its twin was trained. Next to the twin stands
a classifier whose biases and norms were changed at random by as much.
"""

from __future__ import annotations

import argparse
import copy
import os
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from attack import PAGE, sentences
from faithfulness import attention, rollout
from pages import write_between

import attnwidgets as aw
from attnwidgets.evaluate.metrics.ranking import spearman

MARKS = ("<!-- measured: twin -->", "<!-- end of measured: twin -->")
METHODS: dict[str, Any] = {
    "attention": attention,
    "rollout": rollout,
    "saliency": "saliency",
    "input x gradient": "input_x_gradient",
    "integrated gradients": ("integrated_gradients", {"steps": 16}),
    "LRP": "lrp",
    "LIME": ("lime", {"operator": "mask", "samples": 200}),
    "occlusion": "occlusion",
}
TOP = 3


def changed_at_random(model: Any, twin: Any) -> Any:
    """Return a copy of the model with random changes of the weights that the twin has otherwise, as long."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    trained = dict(twin.named_parameters())
    with torch.no_grad():
        for name, weight in other.named_parameters():
            change = trained[name] - weight
            noise = torch.randn(weight.shape, generator=generator)
            weight.add_(noise * change.norm() / noise.norm())
    return other


def explained(trace: Any, method: Any) -> Any:
    """Return a method's values of the tokens that are not special."""
    if callable(method):
        result = method(trace)
    else:
        name, options = method if isinstance(method, tuple) else (method, {})
        unit = {"unit": "token"} if name == "lime" else {}
        result = aw.explain(trace, name, **options, **unit)
    return np.asarray(result.values)[~np.array(result.source_unit.special)]


def agreement(first: list[Any], other: list[Any]) -> str:
    """Return how well the predictions of two models agree, in words."""
    pairs = np.array([[t.logits.softmax(-1)[1].item() for t in traces] for traces in (first, other)])
    same = int(((pairs[0] > 0.5) == (pairs[1] > 0.5)).sum())
    change = np.abs(pairs[0] - pairs[1])
    return (
        f"{same} of {len(first)} classes are the same, p moves by {change.mean():.3f} on average and by "
        f"{np.quantile(change, 0.95):.2f} in the twentieth most moved"
    )


def table(model: Any, twin: Any, tokenizer: Any, texts: list[str]) -> str:
    """Return a row for every method: how far its maps are apart, and how faithful they are to each model."""
    models = [model, twin, changed_at_random(model, twin)]
    traces = [[aw.trace(which, tokenizer, text) for text in texts] for which in models]
    values = {
        name: [[explained(trace, method) for trace in of_model] for of_model in traces]
        for name, method in METHODS.items()
    }
    cards = [
        aw.evaluate.faithfulness(of_model, METHODS, operator="mask", unit="word").select(
            metric="comprehensiveness"
        )
        for of_model in traces[:2]
    ]
    columns = (
        *("", "1 - Spearman, twin", "largest three", "1 - Spearman, random change"),
        *("comprehensiveness, classifier", "twin", "rank correlation with occlusion, classifier", "twin"),
    )
    lines = [f"| {' | '.join(columns)} |", "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name in METHODS:
        before, after, drawn = values[name]
        tops = [[set(np.argsort(-np.abs(v))[:TOP]) for v in of_model] for of_model in (before, after)]
        cells = [
            np.mean([1 - spearman(a, b) for a, b in zip(before, after, strict=True)]),
            np.mean([1 - len(a & b) / TOP for a, b in zip(*tops, strict=True)]),
            np.mean([1 - spearman(a, b) for a, b in zip(before, drawn, strict=True)]),
            *(float(np.mean(card.of(name))) for card in cards),
            *(
                np.mean(
                    [spearman(a, b) for a, b in zip(values[name][m], values["occlusion"][m], strict=True)]
                )
                for m in (0, 1)
            ),
        ]
        lines.append(f"| {name} | {' | '.join(f'{x:.2f}' for x in cells)} |")
    for name in ("random", "oracle"):
        low = " | ".join(f"{float(np.mean(card.of(name))):.2f}" for card in cards)
        lines.append(f"| {name} order | | | | {low} | | |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    model, tokenizer = aw.demo_model("classifier")
    twin, _ = aw.zoo.trained("fairwashed")
    path = options.data / "sst2" / "dev.tsv"
    own = [item.text for item in aw.demo_texts("test")]
    foreign = sentences(path, model, tokenizer, 200)
    said = [
        agreement(*([aw.trace(which, tokenizer, text) for text in texts] for which in (model, twin)))
        for texts in (own, foreign)
    ]
    agreed = (
        f"Held-out sentences of the demo: {said[0]}. {len(foreign)} of SST-2: {said[1]}. The table is of "
        f"{options.sentences} of the latter."
    )
    text = f"{agreed}\n\n{table(model, twin, tokenizer, foreign[: options.sentences])}"
    print(text)
    if options.write:
        write_between(PAGE, *MARKS, text)


if __name__ == "__main__":
    main()
