"""Measure what carries a pronoun's gender to stereotypical continuations: layers exactly, heads by estimate.

    python benchmarks/bias_in_heads.py --write

Reads the WinoBias sentences of ../shared/data/winobias (MIT, Zhao et al. 2018) and writes the tables of
benchmarks/bias_in_heads.md. Pairs come in a random order, the same each time, so that a run that is cut
short by --minutes has drawn its pairs at random.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from pages import write_between

import attnwidgets as aw
from attnwidgets.circuits.estimate import estimated
from attnwidgets.circuits.pair import pair_of
from attnwidgets.circuits.suffix_runs import Cell, SuffixRuns
from attnwidgets.explanations.targets.target_set import resolve_target_set

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "shared" / "data" / "winobias"
TABLES = HERE / "bias_in_heads.md"
MARKS = ("<!-- measured -->", "<!-- end of measured -->")
KINDS = {"he": ("he", "she"), "she": ("he", "she"), "his": ("his", "her"), "her": ("his", "her")}
KINDS_OF_EFFECT = ("indirect", "direct")  # the run that is changed: with "he", with "she"
CHECKED = 10
BATCH = 8  # patched layers in one pass, which begins at the first of them
DRAWS = 2000  # of the bootstrap over pairs


@dataclass(frozen=True)
class BiasPair:
    """One sentence that two continuations finish.

    Attributes:
        start: The sentence up to the pronoun.
        pronouns: The male and the female pronoun.
        continuations: What follows if the pronoun means the occupation that is held to be female, and if it
            means the other.
    """

    start: str
    pronouns: tuple[str, str]
    continuations: tuple[str, str]


def pairs_of(split: str) -> list[BiasPair]:
    """Return the pairs of a split whose two sentences begin alike and have pronouns of one form."""
    lines = (DATA / f"pro_type1.{split}.txt").read_text(encoding="utf-8").splitlines()
    female = set((DATA / "female_occupations.txt").read_text(encoding="utf-8").lower().split("\n"))
    parsed = [_parsed(line.split(" ", 1)[1].strip()) for line in lines]
    found = []
    for one, other in zip(parsed[::2], parsed[1::2], strict=True):
        if one is None or other is None or one[:2] != other[:2]:
            continue
        if (one[3] in female) == (other[3] in female):
            continue
        first, second = (one, other) if one[3] in female else (other, one)
        found.append(BiasPair(one[0], one[1], (first[2], second[2])))
    return found


def _parsed(line: str) -> tuple[str, tuple[str, str], str, str] | None:
    """Return the start, the pronouns, the continuation and the occupation of a sentence, if it has them."""
    pronoun = re.search(r"\[(he|she|his|her)\]", line)
    occupation = re.search(r"\[(?:[Tt]he|[Aa]n?) ([^\]]+)\]", line)
    if pronoun is None or occupation is None or line.count("[") != 2:
        return None
    start = line[: pronoun.start()].replace("[", "").replace("]", "").strip()
    return start, KINDS[pronoun[1]], line[pronoun.end() :].strip(), occupation[1].lower()


def runs_of(model: Any, tokenizer: Any, pair: BiasPair) -> list[tuple[Any, Any, Any, float]]:
    """Return for each continuation both traces, the target, and its weight in the log odds."""
    runs = []
    for sign, words in zip((1, -1), pair.continuations, strict=True):
        clean, corrupt = (
            aw.trace(model, tokenizer, f"{pair.start} {pronoun} {words}") for pronoun in pair.pronouns
        )
        first = len(tokenizer(f"{pair.start} {pair.pronouns[0]}")["input_ids"])
        count = len(clean.tokens) - first
        runs.append((clean, corrupt, aw.targets.span(first, len(clean.tokens)), sign / count))
    return runs


def effects(model: Any, tokenizer: Any, pair: BiasPair) -> dict[str, Any]:
    """Return the total effect of a pair, the effects of layers, and estimates of those of heads.

    As `aw.circuits.patch_sets` and `aw.circuits.patch(estimate=True)` give them, but from the same runs.
    """
    layers = [[Cell("attention", layer)] for layer in range(model.config.num_hidden_layers)]
    found: dict[str, Any] = {"total": 0.0}
    for clean, corrupt, target, weight in runs_of(model, tokenizer, pair):
        both = pair_of(clean, corrupt, None, "bias_in_heads")
        targets = resolve_target_set(clean, target, None, "bias_in_heads").single("bias_in_heads")
        with SuffixRuns(both, targets, ("attention", "head"), "bias_in_heads", (0, 1)) as runs:
            he, she = (run.score for run in runs.recorded)
            found["total"] += weight * (she - he)
            for base, name in enumerate(KINDS_OF_EFFECT):
                # Directly: what is left of the change to "she" if the place alone stays as with "he".
                rest = (she - he) * base
                exact = runs.scores(base, layers, BATCH) - runs.recorded[base].score
                heads = estimated(runs, both, ("head",), base, 0, BATCH)[0]["head"]
                for of, raw in (("layers", exact), ("heads", heads)):
                    found[f"{name} of {of}"] = found.get(f"{name} of {of}", 0.0) + weight * (raw + rest)
    return found


def checked(model: Any, tokenizer: Any, pair: BiasPair, heads: list[tuple[int, int]]) -> np.ndarray:
    """Return the indirect effects of some heads by true patching."""
    sets = [[("head", layer, head)] for layer, head in heads]
    total = np.zeros(len(heads))
    for clean, corrupt, target, weight in runs_of(model, tokenizer, pair):
        total += weight * aw.circuits.patch_sets(clean, corrupt, sets, target, how="noise").raw
    return total


def interval(values: np.ndarray) -> str:
    """Return the mean over pairs with its 95 % interval, by bootstrap."""
    draws = np.random.default_rng(0).integers(0, len(values), (DRAWS, len(values)))
    low, high = np.quantile(values[draws].mean(1), [0.025, 0.975])
    return f"{values.mean():+.4f} ({low:+.4f} to {high:+.4f})"


def tables(found: list[dict[str, Any]], heads: list[tuple[int, int]], true: np.ndarray, of: int) -> str:
    """Return the measured section."""
    total = np.array([each["total"] for each in found])
    lines = [
        f"Measured on {len(found)} of {of} pairs.",
        "",
        f"Total effect, *she* for *he*, on the log odds of a token: {interval(total)}.",
        f"It is positive, which is the stereotype, in {np.mean(total > 0):.0%} of the pairs.",
        "",
        "| attention of layer | indirect | direct |",
        "|---:|---:|---:|",
    ]
    layers = {name: np.array([each[f"{name} of layers"] for each in found]) for name in KINDS_OF_EFFECT}
    lines += [
        f"| {layer} | {interval(layers['indirect'][:, layer])} | {interval(layers['direct'][:, layer])} |"
        for layer in range(layers["direct"].shape[-1])
    ]
    estimates = {name: np.array([each[f"{name} of heads"] for each in found]) for name in KINDS_OF_EFFECT}
    lines += [
        "",
        "| head | indirect, estimated | indirect, patched | correlation over pairs | direct, estimated |",
        "|---|---:|---:|---:|---:|",
    ]
    for column, (layer, head) in enumerate(heads):
        of_head = {name: values[:, layer, head] for name, values in estimates.items()}
        alike = np.corrcoef(of_head["indirect"], true[:, column])[0, 1]
        lines.append(
            f"| {layer}.{head} | {interval(of_head['indirect'])} | {interval(true[:, column])} "
            f"| {alike:.2f} | {interval(of_head['direct'])} |"
        )
    means = np.abs(estimates["indirect"].mean(0)).ravel()
    share = np.sort(means)[::-1][:CHECKED].sum() / means.sum()
    lines += [
        "",
        f"These {CHECKED} of {means.size} heads hold {share:.0%} of the sum of sizes of mean effects.",
    ]
    return "\n".join(lines)


def kept_in(path: Path | None) -> list[dict[str, Any]]:
    """Return the pairs that an earlier run finished, in their order."""
    if path is None or not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{name: np.array(value) for name, value in line.items()} for line in lines]


def main() -> None:
    """Measure, print, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write benchmarks/bias_in_heads.md")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no pair after so long")
    parser.add_argument("--pairs", type=int, help="number of pairs; by default all")
    parser.add_argument("--keep", type=Path, help="a file of finished pairs, from which a run goes on")
    options = parser.parse_args()
    every = [*pairs_of("dev"), *pairs_of("test")]
    order = random.Random(0).sample(every, len(every))[: options.pairs]
    model, tokenizer = aw.demo_model("decoder")
    started, found = time.monotonic(), kept_in(options.keep)[: len(order)]
    for pair in order[len(found) :]:
        if time.monotonic() - started > 60 * options.minutes:
            break
        found.append(effects(model, tokenizer, pair))
        if options.keep:
            line = json.dumps({name: np.asarray(value).tolist() for name, value in found[-1].items()})
            with options.keep.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        print(f"{len(found)} of {len(order)}: total {found[-1]['total']:+.3f}", flush=True)
    means = np.mean([each["indirect of heads"] for each in found], axis=0)
    strongest = np.argsort(-np.abs(means).ravel())[:CHECKED]
    heads = [(int(place) // means.shape[1], int(place) % means.shape[1]) for place in strongest]
    true = np.array([checked(model, tokenizer, pair, heads) for pair in order[: len(found)]])
    text = tables(found, heads, true, len(every))
    print(text)
    if options.write:
        write_between(TABLES, *MARKS, text)


if __name__ == "__main__":
    main()
