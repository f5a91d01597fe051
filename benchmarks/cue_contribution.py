"""Score methods by the cues of number agreement that they find, with trained and with random weights.

    python benchmarks/cue_contribution.py --write

Reads the annotated BLiMP sentences of ../shared/data/blimp (CC-BY 4.0, Warstadt et al. 2020) and writes the
tables of benchmarks/cue_contribution.md. The sentences are drawn at random, the same ones each time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from pages import write_between

import attnwidgets as aw

if TYPE_CHECKING:
    from attnwidgets.evaluate import Scorecard

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "shared" / "data" / "blimp" / "number_agreement_cues.jsonl"
TABLES = HERE / "cue_contribution.md"
MARKS = ("<!-- measured -->", "<!-- end of measured -->")
SUBSETS = {
    "ana": "anaphor_number_agreement",
    "dna": "determiner_noun_agreement_2",
    "dnaa": "determiner_noun_agreement_with_adj_2",
    "darn": "distractor_agreement_relational_noun",
    "rpsv": "regular_plural_subject_verb_agreement_1",
}
CUE_FIRST = ("ana", "darn", "rpsv")  # in the determiner sets the cue follows the target
GROUPS = ("trained", "random weights")
WHY_A_START = (
    "Why the start token: in {} of {} sentences a cue is the first word, on which attention rests regardless "
    "of the word. This table uses the row of the token before the target, which predicts the target:"
)
DRAWS = 10  # of random weights


def sentences(subset: str, n: int) -> list[dict[str, Any]]:
    """Return n sentences of a subset, the same ones each time."""
    lines = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    rows = [line for line in lines if line["uid"] == subset]
    return random.Random(0).sample(rows, min(n, len(rows)))


def for_decoder(row: dict[str, Any], start: str) -> dict[str, Any]:
    """Return a sentence as written, after the start token if there is one."""
    words, shift = row["words"], bool(start)
    text = start + " ".join(words[:-1]) + words[-1]
    return {
        "text": text,
        "words": [start, *words] if start else words,
        "target": row["target_index"] + shift,
        "cues": [cue + shift for cue in row["cue_indices"]],
    }


def scored(model: Any, tokenizer: Any, examples: list[Any], **options: Any) -> Scorecard:
    """Return the scores of trained and random weights side by side.

    Random weights are drawn several times, and each draw scores a part of the sentences: a single draw would
    rank tokens in the same way for all sentences.
    """
    options["ranked"] = ("all", "others")
    trained = aw.evaluate.cue_contribution(model, tokenizer, examples, **options)
    fresh = np.empty_like(trained.samples)
    for seed in range(min(DRAWS, len(examples))):
        with aw.randomized(model, seed=seed):
            part = aw.evaluate.cue_contribution(model, tokenizer, examples[seed::DRAWS], **options)
        fresh[seed::DRAWS] = part.samples
    groups = (trained, trained.with_samples(fresh))
    return aw.evaluate.beside(dict(zip(GROUPS, groups, strict=True)))


def pooled(cards: dict[str, Scorecard]) -> Scorecard:
    """Return the scores of all subsets together; all sentences have the same weight."""
    samples = np.concatenate([card.samples for card in cards.values()])
    return next(iter(cards.values())).with_samples(samples)


def rows_of(card: Scorecard) -> list[int]:
    """Return the rows in table order, without the oracle, which always scores 1."""
    rows = [row for row, name in enumerate(card.methods) if name != "oracle"]
    return sorted(
        rows, key=lambda row: (card.methods[row] in card.baselines, card.methods.index(card.methods[row]))
    )


def by_layer(card: Scorecard, metric: str, layers: list[int]) -> str:
    """Return a table of methods by layers, and below it half the width of the widest interval."""
    at = card.metrics.index(metric)
    low, high = (end[at] for end in card.interval)
    lines = [f"| {metric.replace('_', ' ')} | {' | '.join(f'layer {n}' for n in layers)} |"]
    lines.append("|---|" + "---:|" * len(layers))
    columns = [card.x.index(n) for n in layers]
    for row in rows_of(card):
        numbers = " | ".join(f"{card.mean[at, row, column]:.3f}" for column in columns)
        lines.append(f"| {card.row_name(row)} | {numbers} |")
    widest = np.nanmax(high - low) / 2
    lines += ["", f"95 % intervals (bootstrap over sentences) reach at most {widest:.3f} to either side."]
    return "\n".join(lines)


def by_subset(cards: dict[str, Scorecard], metric: str) -> str:
    """Return a table of methods by subsets: the mean over layers, and the best layer in brackets."""
    first = next(iter(cards.values()))
    at = first.metrics.index(metric)
    lines = [f"| {metric.replace('_', ' ')} | {' | '.join(cards)} |", "|---|" + "---:|" * len(cards)]
    for row in rows_of(first):
        cells = []
        for card in cards.values():
            mean = card.mean[at, row]
            best = f" ({mean.max():.2f} in {card.x[int(mean.argmax())]})"
            cells.append(f"{mean.mean():.2f}{'' if card.methods[row] in card.baselines else best}")
        lines.append(f"| {first.row_name(row)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def minilm(n: int) -> str:
    """Return the tables of the encoder, with masked targets."""
    model, tokenizer = aw.demo_model("encoder")
    cards = {subset: scored(model, tokenizer, sentences(subset, n)) for subset in SUBSETS}
    everything = pooled(cards)
    counts = ", ".join(f"{subset} {card.n_examples}" for subset, card in cards.items())
    parts = [
        f"## all-MiniLM-L6-v2, target masked, {everything.n_examples:,} sentences ({counts})",
        *(by_layer(everything, metric, list(everything.x)) for metric in everything.metrics),
        "By subset, the mean over layers (and the best layer):",
        *(by_subset(cards, metric) for metric in everything.metrics),
    ]
    return "\n\n".join(parts)


def smollm2(n: int) -> str:
    """Return the tables of the decoder with a start token, and how it differs without one."""
    model, tokenizer = aw.demo_model("decoder")
    start = tokenizer.bos_token
    rows = {subset: sentences(subset, n) for subset in CUE_FIRST}
    cards = {
        subset: scored(model, tokenizer, [for_decoder(row, start) for row in subset_rows])
        for subset, subset_rows in rows.items()
    }
    everything = pooled(cards)
    layers = [number for number in everything.x if number % 5 == 0 or number == everything.x[-1]]
    flat = [row for subset_rows in rows.values() for row in subset_rows]
    cheap = {}
    for name, token in (("without a start token", ""), ("after a start token", start)):
        examples = [for_decoder(row, token) for row in flat]
        cheap[name] = aw.evaluate.cue_contribution(
            model,
            tokenizer,
            examples,
            methods=["attention", "rollout"],
            protocol=aw.evaluate.CueProtocol(row="before"),
        )
    counts = ", ".join(f"{subset} {card.n_examples}" for subset, card in cards.items())
    first = sum(0 in row["cue_indices"] for row in flat)
    parts = [
        f"## SmolLM2-135M-Instruct, {everything.n_examples} sentences ({counts})",
        f"Every sentence follows the start token `{start}`. Row of the target; cues before it.",
        *(by_layer(everything, metric, layers) for metric in everything.metrics),
        "By subset, the mean over layers (and the best layer):",
        *(by_subset(cards, metric) for metric in everything.metrics),
        WHY_A_START.format(first, len(flat)),
        by_layer(aw.evaluate.beside(cheap), "average_precision", layers),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Measure, print, and write the tables with `--write`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minilm", type=int, default=400, metavar="N", help="sentences per subset, of five")
    parser.add_argument("--smollm2", type=int, default=60, metavar="N", help="sentences per subset, of three")
    parser.add_argument("--write", action="store_true", help=f"write the tables into {TABLES.name}")
    chosen = parser.parse_args()
    began = time.time()
    parts = [measure(n) for measure, n in ((minilm, chosen.minilm), (smollm2, chosen.smollm2)) if n]
    minutes = (time.time() - began) / 60
    command = (
        f"python benchmarks/cue_contribution.py --minilm {chosen.minilm} --smollm2 {chosen.smollm2} --write"
    )
    note = (
        f"{time.strftime('%Y-%m-%d')}, `{command}`: {minutes:.0f} minutes. "
        f"Random weights: {DRAWS} draws, each for its part of the sentences."
    )
    text = "\n\n".join([note, *parts])
    print(text)
    if chosen.write:
        write_between(TABLES, *MARKS, text)


if __name__ == "__main__":
    main()
