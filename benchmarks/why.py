"""Measure `aw.why`: python benchmarks/why.py [families] [heads] [cost] [--write].

families: how far the parts' sum is from what recorded attention says, on tiny random models of every family.
heads: what removing single parts does to ten heads of SmolLM2, beside what the shares predict.
cost: processor time of one cell, on one thread. --write puts the tables into docs/why.md.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from pages import write_between

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[1] / "docs" / "why.md"
TEXTS = (
    "The capital of France is Paris, and the capital of Italy is",
    "When Mary and John went to the store, John gave a drink to",
    "The cat sat on the mat because the cat was",
)
HEADS = 10
CLEAR = 0.3, 0.97  # attention between which there is something to lose, and something to choose
LENGTHS = 16, 128, 1024


def families() -> Iterator[str]:
    """Yield the rows of the table of families."""
    import tested  # noqa: F401

    from tests.circuits.scores.test_why import EVERY, REFUSED, contrast

    yield "| family | parts | largest error of a sum, in nats |"
    yield "|---|---:|---:|"
    refused: dict[str, list[str]] = {}
    for name, family in EVERY.items():
        trace = family.traced()
        for stack in trace.stacks:
            label = name if len(trace.stacks) == 1 else f"{name}, {stack}"
            layers = trace.layers(stack)
            if stack in ("decoder", "cross") or name in REFUSED:
                refused.setdefault(REFUSED.get(name, "reads another sequence"), []).append(label)
                continue
            worst, parts = 0.0, 0
            for layer in (layers[0], layers[-1]):
                for head in (0, 1, 3):
                    for foil in ("others", "row", 5):
                        why = aw.why(trace, 5, 4, layer=layer, head=head, foil=foil, stack=stack)
                        worst = max(worst, abs(why.total - contrast(trace, why, stack)))
                        parts = max(parts, len(why.parts))
            yield f"| {label} | {parts} | {worst:.0e} |"
    yield ""
    for reason, names in refused.items():
        yield f"Refused by name ({reason}): {'; '.join(names)}."


def cells() -> list[tuple[Any, int, int, int]]:
    """Return ten cells of SmolLM2 (trace, layer, head, key), of the last token, spread over its layers."""
    model, tokenizer = aw.demo_model("decoder")
    result = []
    for text in TEXTS:
        trace = aw.trace(model.float(), tokenizer, text)
        last = len(trace.tokens) - 1
        best = {}
        for layer in range(2, 30):
            rows = np.asarray(aw.attention(trace).layer(layer))[:, last]
            for head, row in enumerate(rows):
                key = 1 + int(row[1:last].argmax())
                if CLEAR[0] < row[key] < CLEAR[1] and row[key] > best.get(layer, (0,))[0]:
                    best[layer] = row[key], head, key
        chosen = [(trace, layer, head, key) for layer, (_, head, key) in sorted(best.items())]
        result += chosen[:: max(1, len(chosen) // 4)][:4]
    return result[:HEADS]


def log_odds(weight: float) -> float:
    """Return the log-odds of a weight."""
    return float(np.log(weight) - np.log1p(-weight))


def heads() -> Iterator[str]:
    """Yield the rows of the table of heads."""
    yield (
        "| head | reads | attention | correlation, key | query | without three of the key: predicted | "
        "measured | at random | of the query: predicted | measured | at random |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    correlations: dict[str, list[float]] = {"key": [], "query": []}
    for trace, layer, head, key in cells():
        why = aw.why(trace, len(trace.tokens) - 1, key, layer=layer, head=head)
        sides = []
        for side in ("key", "query"):
            alone = [why.without([part], side, n_random=1) for part in why.parts[:-1]]
            changes = [
                [log_odds(getattr(removal, name)) for removal in alone] for name in ("predicted", "after")
            ]
            correlations[side].append(float(np.corrcoef(changes)[0, 1]))
            three = why.without(3, side)
            sides.append(f"{three.predicted:.2f} | {three.after:.2f} | {three.random.mean():.2f}")
        pair = " | ".join(f"{correlations[side][-1]:.2f}" for side in ("key", "query"))
        words = " → ".join(word.strip("'\"") for word in why.words)
        yield f"| {layer}.{head} | {words} | {why.attention:.2f} | {pair} | {' | '.join(sides)} |"
    medians = " | ".join(f"{np.median(correlations[side]):.2f}" for side in ("key", "query"))
    yield f"| median | | | {medians} | | | | | | |"


def cost() -> Iterator[str]:
    """Yield the rows of the table of processor time."""
    torch.set_num_threads(1)
    model, tokenizer = aw.demo_model("decoder")
    model = model.float()
    ids = tokenizer("\n".join(aw.demo_book()), return_tensors="pt")["input_ids"][0]
    yield "| tokens | a forward pass | the first cell | another cell of the text | another foil |"
    yield "|---:|---:|---:|---:|---:|"
    for length in LENGTHS:
        with torch.no_grad():
            times = [seconds(model, ids[None, :length])]
        trace = aw.trace(model, None, input_ids=ids[:length].tolist())
        cell = partial(aw.why, trace, layer=23, head=4)
        times.append(seconds(cell, length - 1, length // 2))
        times.append(seconds(cell, length - 2, length // 3))
        times.append(seconds(cell, length - 2, length // 3, foil=1))
        yield f"| {length:,} | " + " | ".join(f"{time:.2f} s" for time in times) + " |"


def seconds(run: Any, *args: Any, **options: Any) -> float:
    """Return the processor time of a call."""
    start = process_time()
    run(*args, **options)
    return process_time() - start


def main() -> None:
    """Print the tables, and write them into the page."""
    transformers.logging.set_verbosity_error()
    tables = {"families": families, "heads": heads, "cost": cost}
    for name in [name for name in sys.argv[1:] if name in tables] or tables:
        lines = []
        for line in tables[name]():
            print(line, flush=True)
            lines.append(line)
        if "--write" in sys.argv:
            ends = f"<!-- {name} -->", f"<!-- end of {name} -->"
            write_between(PAGE, *ends, "\n".join(lines))


if __name__ == "__main__":
    main()
