"""What concepts and influence cost beside the passes of the model that they need.

    python benchmarks/bench_concepts.py

TCAV: 20 runs x 6 layers x 3 concepts on the demo classifier, with 999 permutations and three-fold accuracies,
beside one forward pass of all texts and one forward and backward pass of the examples. Influence: a head of
10,000 texts x 768 features, with 20 tests, self-influence and leverage, beside the feature pass of as many
texts by MiniLM (384 wide, so that a model with 768 features takes longer). Processor times on one thread.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import attnwidgets as aw
from attnwidgets.concepts.refit import Refit, with_ones

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS, WIDTH, TESTS = 10_000, 768, 20


def seconds(work: Callable[[], Any], repeat: int = 3) -> float:
    """Return the median processor time of some work."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return float(np.median(times))


def tcav() -> None:
    """Print what TCAV takes."""
    model, tokenizer = aw.demo_model("classifier")
    train = [each.text for each in aw.demo_texts("train")]
    examples = [each.text for each in aw.demo_texts("test") if each.label == "negative"]
    concepts = {
        "negation": [text for text in train if " no " in text or " not " in text][:24],
        "length": sorted(train, key=len)[-24:],
        "question": train[:24],
    }
    options: dict[str, Any] = {"layers": range(1, 7), "at": "mean"}

    def passes() -> None:
        aw.concepts.states(model, tokenizer, train, **options)
        aw.concepts.states(model, tokenizer, examples, target="negative", **options)

    def whole() -> None:
        aw.concepts.tcav(model, tokenizer, concepts, examples, "negative", random=train, **options)

    passes()
    base, all_of_it = seconds(passes), seconds(whole)
    print(f"passes over {len(train) + len(examples)} texts: {base:.2f} s")
    print(f"20 runs x 6 layers x 3 concepts: {all_of_it:.2f} s, {all_of_it / base:.2f} times the passes")


def influence() -> None:
    """Print what influence takes."""
    model, tokenizer = aw.demo_model("classifier")
    texts = [each.text for each in aw.demo_texts()] * 3
    features = seconds(lambda: aw.concepts.states(model, tokenizer, texts, layers=[6], at="cls"), 1)
    features *= TEXTS / len(texts)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(TEXTS, WIDTH)) / 2
    labels = (values[:, 0] + rng.normal(size=TEXTS) > 0).astype(float)

    def work() -> None:
        refit = Refit(with_ones(values), labels, 1, "binary", 0.01)
        tests = with_ones(values[:TESTS])
        refit.influence(tests, labels[:TESTS])
        refit.influence(tests, labels[:TESTS], without=True)
        _ = refit.self_influence, refit.leverage

    head = seconds(work)
    print(f"features of {TEXTS:,} texts: {features:.0f} s (measured on {len(texts)})")
    ratio = 1 + head / features
    print(f"influence of a head, {TEXTS:,} x {WIDTH}: {head:.2f} s; with the features {ratio:.3f} times")


if __name__ == "__main__":
    tcav()
    influence()
