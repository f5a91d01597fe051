"""Attack six methods on sentences of SST-2: the table of docs/attack.md.

    python benchmarks/attack.py DATA --write               writes the table
    python benchmarks/attack.py DATA --resume FILE         goes on with an interrupted run

DATA contains sst2/dev.tsv (the GLUE file: sentence, label). The classifier is the demo's, which was trained
on sentences of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from pages import write_between

import attnwidgets as aw

PAGE = Path(__file__).parents[1] / "docs" / "attack.md"
MARKS = ("<!-- measured -->", "<!-- end of measured -->")
METHODS: dict[str, Any] = {
    "rollout": "rollout",
    "saliency": "saliency",
    "input x gradient": "input_x_gradient",
    "integrated gradients (4 steps)": ("integrated_gradients", {"steps": 4}),
    "LRP": "lrp",
    "occlusion": "occlusion",
}
TOKENS = range(8, 17)
SURE = 0.6
WORDS = 12


def sentences(path: Path, model: Any, tokenizer: Any, count: int) -> list[str]:
    """Return sentences of 8 to 16 tokens of which the model is sure, drawn at random, the same each time."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    texts = list(dict.fromkeys(line.split("\t")[0].strip() for line in lines if line.strip()))
    random.Random(0).shuffle(texts)
    chosen: list[str] = []
    for text in texts:
        if len(tokenizer(text, add_special_tokens=False)["input_ids"]) in TOKENS:
            trace = aw.trace(model, tokenizer, text)
            if trace.predictions(1)[0].probability > SURE:
                chosen.append(text)
        if len(chosen) == count:
            break
    return chosen


def scores(model: Any, tokenizer: Any, text: str, near: Any) -> dict[str, list[float]]:
    """Return, by method, attack, random, attack_top and random_top by embeddings, and the same by words."""
    trace = aw.trace(model, tokenizer, text)
    search = aw.evaluate.AttackSearch(most=WORDS)
    cards = [aw.evaluate.attacks([trace], METHODS, search=search)]
    try:
        cards.append(aw.evaluate.attacks([trace], METHODS, words=near, search=search))
    except ValueError as error:  # no word of the sentence is in the list
        print(f"{text!r}: {error}")
    lacking = [float("nan")] * (8 - 4 * len(cards))
    return {
        name: [float(x) for card in cards for x in card.samples[0, :, row, 0]] + lacking
        for row, name in enumerate(METHODS)
    }


def table(results: dict[str, dict[str, list[float]]]) -> str:
    """Return the medians over texts as a table, and how often the attack is ahead."""
    lines = [
        "| method | embeddings, attack | embeddings, random | one word, attack | one word, random |",
        "|---|---|---|---|---|",
    ]
    ahead = []
    for name in METHODS:
        every = np.array([text[name] for text in results.values()])
        middle = np.nanmedian(every, axis=0)
        cells = [f"{middle[i]:.2f} ({middle[i + 2]:.2f})" for i in (0, 1, 4, 5)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        ahead.append(int((every[:, 0] > every[:, 1]).sum()))
    by_words = np.isfinite([text["rollout"][4] for text in results.values()]).sum()
    about = (
        f"Medians over {len(results)} sentences of SST-2 (8 to 16 tokens, p above {SURE}) on the demo "
        "classifier: 1 - Spearman, in\nbrackets the share of the three largest tokens that changed. "
        "Embeddings: eight steps, and the best of nine random changes. One\n"
        f"word: the best of {WORDS} near words, and their median ({by_words} sentences)."
    )
    end = (
        f"By embeddings, the attack gets farther than chance in {min(ahead)} to {max(ahead)} of the "
        f"{len(results)} sentences, by method."
    )
    return "\n".join([about, "", *lines, "", end])


def main() -> None:
    """Attack, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--resume", type=Path, help="a file that holds what was measured")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    model, tokenizer = aw.demo_model("classifier")
    near = aw.evaluate.near_words(model, tokenizer)
    done = options.resume is not None and options.resume.exists()
    earlier = json.loads(options.resume.read_text()) if done else {}
    results = {}
    for text in sentences(options.data / "sst2" / "dev.tsv", model, tokenizer, options.sentences):
        results[text] = earlier.get(text) or scores(model, tokenizer, text, near)
        if options.resume is not None:
            options.resume.write_text(json.dumps(earlier | results))
    text = table(results)
    print(text)
    if options.write:
        write_between(PAGE, *MARKS, text)


if __name__ == "__main__":
    main()
