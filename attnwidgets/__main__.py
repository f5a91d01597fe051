"""Trace a model whose circuit is known, and two real ones where installed, and write one page of all."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SENTENCES = {
    "induction": "fadebcfadeb",
    "encoder": "The electroencephalographer read the trace before she spoke.",
    "decoder": "The capital of France is",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Trace the demo models and write the page; return the exit status of the process."""
    parser = argparse.ArgumentParser(prog="python -m attnwidgets", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("attnwidgets-demo.html"), help="the page to write")
    for kind, sentence in SENTENCES.items():
        parser.add_argument(f"--{kind}", metavar="TEXT", default=sentence, help=f"(default: {sentence!r})")
    options = parser.parse_args(arguments)

    import attnwidgets as aw
    from attnwidgets.demo.models import MODELS, lacks

    explorers, absent = [], []
    for kind in SENTENCES:
        if lacking := lacks(kind):
            absent.append(f"{MODELS[kind][1]} joins the page after {' and '.join(lacking)}.")
            continue
        start = time.perf_counter()
        model, tokenizer = aw.demo_model(kind)
        trace = aw.trace(model, tokenizer, getattr(options, kind))
        explorer = aw.Explorer(trace)
        if kind == "induction":  # opens on the head that the model is named after
            explorer.selection.layer, explorer.selection.head = 1, 0
        explorers.append(explorer)
        stack = trace.default_stack
        print(
            f"{trace.model_id}: {len(trace.tokens)} tokens, "
            f"{trace.n_layers(stack)} layers x {trace.n_heads(stack)} heads, "
            f"loaded and traced in {time.perf_counter() - start:.1f} s"
        )
        for guess in trace.predictions(1):
            print(f"  {trace.predictions_title}: {guess.label!r} {guess.probability:.2f}")
    print(*absent, sep="\n", end="\n" * bool(absent))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    aw.to_html(explorers, options.out)
    size = options.out.stat().st_size / 1e6
    print(f"Open this page in a browser ({size:.1f} MB, works offline):  {options.out.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
