"""Score nine methods on SST-2 and on movie reviews with human rationales: the tables of faithfulness.md.

    python benchmarks/faithfulness.py DATA                 prints the tables
    python benchmarks/faithfulness.py DATA --write         and writes them into faithfulness.md
    python benchmarks/faithfulness.py DATA --cache FOLDER  resumes an interrupted run

DATA contains sst2/dev.tsv (the GLUE file: sentence, label) and movies_rationales (ERASER: val.jsonl, docs/).
The classifier is the demo's: MiniLM with a head trained on sentences of our own, and on neither data set. Of
each review only the first 120 words are read, with the rationale spans in them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import attnwidgets as aw

METRICS = [
    "comprehensiveness",
    "sufficiency",
    "fidelity_plus",
    "fidelity_minus",
    "monotonicity",
    "gini",
]
WORDS = 120


def last_row(maps: Any) -> Any:
    """Return the row of [CLS] in the last layer."""
    return maps.select(layer=-1).to_attributions("row", query="cls")


def attention(trace: Any) -> Any:
    """Return the attention of [CLS], averaged over heads."""
    return last_row(aw.attention(trace).mean("head"))


def rollout(trace: Any) -> Any:
    """Return the rollout of [CLS]."""
    return last_row(aw.rollout(trace))


def alti(trace: Any) -> Any:
    """Return the rollout of ALTI's contributions to [CLS]."""
    return last_row(aw.alti(trace, rolled_out=True))


METHODS = {
    "attention": attention,
    "rollout": rollout,
    "ALTI": alti,
    "saliency": "saliency",
    "input x gradient": "input_x_gradient",
    "input x gradient, length": ("input_x_gradient", {"reduce": "l2"}),
    "integrated gradients": ("integrated_gradients", {"steps": 16}),
    "LRP": "lrp",
    "DecompX": "decompx",
}


def sst2(folder: Path, count: int) -> list[dict[str, Any]]:
    """Return the first sentences of the development set."""
    lines = (folder / "sst2" / "dev.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    if not rows[0][-1].strip().isdigit():
        rows = rows[1:]
    column = 0 if not rows[0][0].strip().isdigit() else 1
    return [{"text": row[column].strip(), "label": int(row[1 - column])} for row in rows[:count]]


def movies(folder: Path, count: int) -> list[dict[str, Any]]:
    """Return beginnings of reviews that contain a rationale, with its spans in characters."""
    reviews = []
    for line in (folder / "movies_rationales" / "val.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        name = entry["annotation_id"]
        words = (folder / "movies_rationales" / "docs" / name).read_text(encoding="utf-8").split()
        kept = words[:WORDS]
        starts = [0]
        for word in kept:
            starts.append(starts[-1] + len(word) + 1)
        spans = [
            (starts[span["start_token"]], starts[min(span["end_token"], len(kept))] - 1)
            for group in entry["evidences"]
            for span in group
            if span["start_token"] < len(kept)
        ]
        if spans:
            reviews.append(
                {"text": " ".join(kept), "label": entry["classification"].lower()[:3], "rationale": spans}
            )
        if len(reviews) == count:
            break
    return reviews


def table(comparison: Any) -> str:
    """Return a comparison as a Markdown table: means ± half the width of their intervals."""
    card = comparison.table
    low, high = card.interval
    lines = [
        f"| | {' | '.join(name.replace('_', ' ') for name in card.metrics)} |",
        f"|---|{'---:|' * len(card.metrics)}",
    ]
    for row, name in enumerate(card.methods):
        cells = [
            "–" if card.count[metric, row, 0] == 0 else
            f"{card.mean[metric, row, 0]:.3f} ± {(high - low)[metric, row, 0] / 2:.3f}"
            for metric in range(len(card.metrics))
        ]  # fmt: skip
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spent(seconds: float, comparison: Any) -> str:
    """Return the cost of a table, as text."""
    cached = f", {comparison.reused:,} explanations from the cache" if comparison.reused else ""
    return f"{seconds:.0f} s of processor time{cached}"


def main() -> None:
    """Score both data sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--reviews", type=int, default=40)
    parser.add_argument("--cache")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    model, tokenizer = aw.demo_model("classifier")
    removal = aw.evaluate.Removal("mask")
    shared: dict[str, Any] = {"unit": "word", "cache": options.cache}
    start = time.process_time()
    small = aw.evaluate.compare(
        METHODS, METRICS, sst2(options.data, options.sentences), model, tokenizer, removal=removal, **shared
    )
    middle = time.process_time()
    large = aw.evaluate.compare(
        METHODS, [*METRICS, "auprc", "token_f1"], movies(options.data, options.reviews), model, tokenizer,
        removal=replace(removal, draws=3), **shared,
    )  # fmt: skip
    end = time.process_time()
    parts = [
        f"## SST-2, the first {options.sentences} of the development set ({spent(middle - start, small)})",
        "",
        table(small),
        "",
        f"## Movie reviews, the first {WORDS} words of {len(large.texts)} ({spent(end - middle, large)})",
        "",
        table(large),
    ]
    text = "\n".join(parts)
    print(text)
    if options.write:
        page = Path(__file__).with_suffix(".md")
        before, rest = page.read_text(encoding="utf-8").split("<!-- measured -->\n")
        after = rest.split("<!-- end of measured -->\n")[1]
        whole = f"{before}<!-- measured -->\n{text}\n<!-- end of measured -->\n{after}"
        page.write_text(whole, encoding="utf-8")


if __name__ == "__main__":
    main()
