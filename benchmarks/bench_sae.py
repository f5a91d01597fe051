"""Measure sparse autoencoders: python benchmarks/bench_sae.py CORPUS [--steps 3000] [--features 3072] ...

CORPUS is a text file with one text per line, or JSON with texts (or objects with an "extract") in a list or
an object. The script trains an SAE of the third layer of all-MiniLM-L6-v2 with the default recipe, and times
the bare matrix products of its training steps. Then it computes statistics of half as many features over
100,000 tokens, times the model's forward passes over the same tokens, and measures the size of the features'
pages as a view sends them. Compare CPU times; wall times depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import attnwidgets as aw
from attnwidgets._progress import observing
from attnwidgets.sae.check import Measures
from attnwidgets.sae.corpus import Corpus, batches
from attnwidgets.tracing.recording.borrow import borrowed
from attnwidgets.views.features.payloads import columns_of, page_of, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

SITE, LAYER = "encoder.layer.2", 3
BATCH = 512
COUNTED = 100_000
COMPARED = 2048  # held-out tokens for comparing other reconstructions


def corpus_of(path: Path) -> list[str]:
    """Return the texts of a file."""
    if path.suffix != ".json":
        return [line for line in path.read_text(encoding="utf-8").split("\n") if len(line) > 60]
    content = json.loads(path.read_text(encoding="utf-8"))
    items: Iterable[Any] = content.values() if isinstance(content, dict) else content
    return [item["extract"] if isinstance(item, dict) else item for item in items]


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return a call's CPU seconds, wall seconds and result."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return time.process_time() - cpu, time.perf_counter() - wall, result


class Phases:
    """Records when each phase began, in CPU and wall time."""

    def __init__(self) -> None:
        self.begun: dict[str, tuple[float, float]] = {}

    def __call__(self, done: int, total: int | None, what: str) -> None:
        """Observe progress."""
        self.begun.setdefault(what, (time.process_time(), time.perf_counter()))
        if total and done % max(1, total // 10) == 0:
            print(f"  {what}: {done} of {total}", flush=True)


def products(steps: int, d_in: int, d_sae: int) -> tuple[float, float]:
    """Return CPU and wall seconds of the five products of a dense training step, for all steps."""
    x, a = torch.randn(BATCH, d_in), torch.randn(BATCH, d_sae)
    weights = torch.randn(d_sae, d_in)
    trials = max(10, steps // 30)

    def run() -> None:
        for _ in range(trials):
            torch.mm(x, weights.T)  # activations
            torch.mm(a, weights)  # reconstructions
            torch.mm(a.T, x)  # the decoder's gradient
            torch.mm(x, weights.T)  # the activations' gradient
            torch.mm(a.T, x)  # the encoder's gradient

    run()
    cpu, wall, _ = timed(run)
    return cpu * steps / trials, wall * steps / trials


def states_of(model: Any, tokenizer: Any, texts: list[str]) -> Tensor:
    """Return the states [token, width] of tokens that count, from the model's own hidden states."""
    rows: list[Tensor] = []
    corpus = Corpus(model, tokenizer, texts)
    with borrowed(model):
        for windows in batches(corpus.windows(), 4096):
            states = model(**corpus.inputs(windows), output_hidden_states=True).hidden_states[LAYER]
            rows += [
                row[: len(window.ids)][torch.tensor(window.counts)]
                for row, window in zip(states, windows, strict=True)
            ]
            if sum(map(len, rows)) >= COMPARED:
                break
    return torch.cat(rows)[:COMPARED]


def explained(h: Tensor, reconstruction: Tensor) -> float:
    """Return the share of variance that reconstructions explain."""
    measures = Measures(h.shape[-1], 1)
    measures.add(h, torch.zeros(len(h), 1), reconstruction)
    return measures.explained_variance


def by_pca(h: Tensor, rank: int) -> Tensor:
    """Return the reconstruction by the principal components of the states themselves."""
    mean = h.mean(0)
    plane = torch.linalg.svd(h - mean, full_matrices=False).Vh[:rank]
    return (h - mean) @ plane.T @ plane + mean


def by_random_directions(h: Tensor, k: int, d_sae: int) -> Tensor:
    """Return the best reconstructions from the k most similar of many random directions."""
    directions = torch.nn.functional.normalize(torch.randn(d_sae, h.shape[-1]), dim=-1)
    mean = h.mean(0)
    rows = ((h - mean) @ directions.T).abs().topk(k).indices
    basis = directions[rows].mT
    return (basis @ torch.linalg.lstsq(basis, (h - mean)[..., None]).solution)[..., 0] + mean


def training(model: Any, tokenizer: Any, texts: list[str], options: argparse.Namespace) -> None:
    """Train, and print the results."""
    phases = Phases()
    recipe = {"site": SITE, "d_sae": options.features, "steps": options.steps, "batch_size": BATCH}
    with observing(phases):
        cpu, wall, sae = timed(
            lambda: aw.SAE.train(model, tokenizer, texts, max_tokens=options.tokens, **recipe)
        )
        end = time.process_time(), time.perf_counter()
    begun = phases.begun["training the SAE"]
    trained = end[0] - begun[0], end[1] - begun[1]
    bare = products(options.steps, sae.d_in, sae.d_sae)
    last, about = sae.history.last, sae.history.options
    h = states_of(model, tokenizer, texts[9::10])
    l0 = round(float((sae.encode(h) > 0).sum(-1).float().mean()))
    pca, few = explained(h, by_pca(h, l0)), h[:500]
    random = explained(few, by_random_directions(few, l0, sae.d_sae))
    print(f"\n{sae}, trained on {about['tokens']:,} tokens, {options.steps} steps of {BATCH}\n")
    print("| | CPU, s | wall, s |\n|---|---:|---:|")
    print(f"| states read | {cpu - trained[0]:.0f} | {wall - trained[1]:.0f} |")
    print(f"| training | {trained[0]:.0f} | {trained[1]:.0f} |")
    print(f"| the bare matrix products of its steps | {bare[0]:.0f} | {bare[1]:.0f} |")
    print(f"| training over bare products | {trained[0] / bare[0]:.2f} | {trained[1] / bare[1]:.2f} |\n")
    print(
        f"On {about['held_out']:,} tokens held out: explained variance {last['explained_variance']:.3f}, "
        f"L0 {last['l0']:.1f}, dead features {last['dead']:.2%}. On {len(h):,} of them, at L0 {l0}: this SAE "
        f"{explained(h, sae(h)):.3f}, PCA of this rank {pca:.3f}, random directions {random:.3f}.\n",
        flush=True,
    )
    if options.save:
        sae.save_pretrained(options.save)


def statistics(model: Any, tokenizer: Any, texts: list[str], options: argparse.Namespace) -> None:
    """Compute statistics, and print their cost against the model's own passes."""
    features = options.features // 2
    sae = aw.SAE.train(model, tokenizer, texts, site=SITE, d_sae=features, steps=300, max_tokens=60_000)
    chosen, tokens = [], 0
    for text in texts:
        chosen.append(text)
        tokens += len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        if tokens >= COUNTED:
            break
    corpus = Corpus(model, tokenizer, chosen)

    def forward() -> None:
        with borrowed(model):
            for windows in batches(corpus.windows(), 2048, sort=16):
                model(**corpus.inputs(windows))

    before = timed(forward)
    counted = timed(lambda: aw.feature_stats(model, tokenizer, sae, chosen))
    after = timed(forward)
    cpu, wall = (before[0] + after[0]) / 2, (before[1] + after[1]) / 2
    l0, seen = sae.history.last["l0"], counted[2].tokens
    print(f"\nStatistics of {features:,} features (L0 {l0:.0f}) over {seen:,} tokens\n")
    print("| | CPU, s | wall, s |\n|---|---:|---:|")
    print(f"| the model's forward passes (all layers) | {cpu:.1f} | {wall:.1f} |")
    print(
        f"| statistics (the model up to the hook point, and counting) | {counted[0]:.1f} | {counted[1]:.1f} |"
    )
    print(f"| ratio | {counted[0] / cpu:.2f} | {counted[1] / wall:.2f} |\n", flush=True)
    pages(counted[2])


def pages(stats: aw.results.FeatureStats) -> None:
    """Print the size of a message about one feature, and of the table of all."""
    sizes = [size_of(page_of(stats, feature)) for feature in stats.features]
    left = sum(page_of(stats, feature)[0]["left"] > 0 for feature in stats.features)
    mean = sum(sizes) / len(sizes)
    print(
        f"A feature's page: {mean / 1000:.1f} kB on average, {max(sizes) / 1000:.1f} kB at most (in {left} "
        f"of {len(sizes)} some contexts are left out for that); the table: "
        f"{size_of(columns_of(stats)) / 1000:.0f} kB.\n",
        flush=True,
    )


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--features", type=int, default=3072)
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--only", choices=("training", "statistics"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", type=Path, help="folder to save the SAE in")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model, tokenizer = aw.demo_model("encoder")
    texts = corpus_of(options.corpus)
    for part in (training, statistics):
        if options.only in (None, part.__name__):
            part(model, tokenizer, texts, options)


if __name__ == "__main__":
    main()
