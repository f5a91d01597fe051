"""Compare DecompX with a plain implementation of the paper's equations, in one run.

    python benchmarks/bench_decompx.py [--threads 2]

Both start from the same tokens on all-MiniLM-L6-v2 and run the model, but most of the time goes into
following vectors. The plain implementation is `plain_decompx.py`, as the authors' program works and with
heads mixed as values. Times are CPU times of this process, the best of three; their ratio counts. The lengths
of every layer's vectors and the scores of a class are compared before timing.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING, Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import plain_decompx
import torch
from transformers import BertForSequenceClassification

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable


def seconds(function: Callable[[], Any]) -> float:
    """Return the lowest CPU time of three calls."""
    times = []
    for _ in range(3):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


@torch.no_grad()
def compare(model: Any, n: int) -> None:
    """Print a line for the scores and one for the lengths in every layer."""
    ids = torch.randint(1000, 20000, (1, n), generator=torch.Generator().manual_seed(0))

    def plain(*, scores: bool, **options: bool) -> np.ndarray:
        head = model.classifier if scores else None
        return np.asarray(plain_decompx.decompx(model.bert, ids, head, **options))

    def ours(*, scores: bool) -> np.ndarray:
        traced = aw.trace(model if scores else model.bert, None, ids)
        return aw.decompx(traced, [0, 1]).values.T if scores else aw.decompx(traced).values

    for what, scores in (("scores of a class", True), ("lengths, every layer", False)):
        expected, computed = plain(scores=scores), ours(scores=scores)
        off = float(np.abs(computed - expected).max() / np.abs(expected).max())
        if not off < 1e-4:
            raise SystemExit(f"{what} differ by {off:.2g}")
        authors = seconds(lambda scores=scores: plain(scores=scores))
        mixed = seconds(lambda scores=scores: plain(scores=scores, mix_values=True))
        here = seconds(lambda scores=scores: ours(scores=scores))
        ratios = f"{authors / here:.1f} | {mixed / here:.1f}"
        print(
            f"| {n} | {what} | {authors:.2f} | {mixed:.2f} | {here:.2f} | {ratios} | {off:.0e} |", flush=True
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, nargs="*", default=[32, 64, 128, 256])
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    encoder = aw.demo_model("encoder")[0]
    model = BertForSequenceClassification(encoder.config).eval()
    model.bert.load_state_dict(encoder.state_dict(), strict=False)
    model.set_attn_implementation("eager")
    print(
        "| tokens | what | plain, s | plain with values mixed, s | attnwidgets, s | times faster | | apart |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for n in chosen.tokens:
        compare(model, n)


if __name__ == "__main__":
    main()
