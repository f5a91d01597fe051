"""Measure what the README quotes as ratios of one run, and print first what has become slower.

    python benchmarks/bench_ratios.py             prints the table
    python benchmarks/bench_ratios.py --write     and keeps its ratios in ratios.json, to be committed

A ratio is our CPU time by that of plain code for the same numbers (`plain.py`), or by that of a peer for its
output of the same maps; both take turns in one process on one thread. A ratio that is more than a quarter
above the one in ratios.json stands above the table. Peers that are not installed are named and left out;
`make bench` installs them into an environment of their own (`peers.py`).
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

import argparse
import importlib.util
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import bench_peers
import plain
import torch
from peers import PEERS

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMITTED = Path(__file__).with_name("ratios.json")
SLOWER = 1.25
TURNS = 7
LONG = 128  # tokens of which plain value zeroing takes five seconds
TEXTS = [f"The old student number {number} read the paper again before she spoke." for number in range(64)]
VIEWS = {
    "bertviz": (bench_peers.bertviz_row, "head_view"),
    "circuitsvis": (bench_peers.circuitsvis_row, "attention_heads"),
    "inspectus": (bench_peers.inspectus_row, "attention"),
    "attnview": (bench_peers.attnview_row, "render_html"),
}
"""By peer, how bench_peers.py draws all layers with it."""

Pair = tuple["Callable[[], Any]", "Callable[[], Any]"]


def gradient(model: Any, ids: torch.Tensor) -> None:
    """Compute the gradient of a logit with respect to the embeddings."""
    with torch.enable_grad():
        embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
        torch.autograd.grad(model(inputs_embeds=embeddings).logits[0, 0], embeddings)


def of_lengths(n: int) -> Iterator[tuple[str, Pair]]:
    """Yield steps on a text of so many tokens: by name, ours and plain code."""
    model, _ = aw.demo_model("encoder")
    classifier, _ = aw.demo_model("classifier")
    model.set_attn_implementation("eager")
    ids = torch.randint(1000, 9000, (1, n), generator=torch.Generator().manual_seed(n))
    trace, classified = (aw.trace(of, None, ids[0].tolist()) for of in (model, classifier))
    yield f"trace, {n} tokens", (lambda: aw.trace(model, None, ids[0].tolist()), lambda: model(ids))
    norms = partial(plain.attention_norm, model, ids, "attn")
    yield f"attention_norm, {n} tokens", (lambda: aw.attention_norm(trace).values, norms)
    yield f"alti, {n} tokens", (lambda: aw.alti(trace).values, partial(plain.alti, model, ids))
    if n < LONG:
        zeroing = partial(plain.value_zeroing, model, ids)
        yield f"value_zeroing, {n} tokens", (lambda: aw.value_zeroing(trace).values, zeroing)
    slope = partial(gradient, classifier, ids)
    yield f"saliency, {n} tokens", (lambda: aw.saliency(classified, 0).values, slope)
    yield f"lrp beside a gradient, {n} tokens", (lambda: aw.lrp(classified, 0).values, slope)


def of_a_batch() -> Iterator[tuple[str, Pair]]:
    """Yield the traces of many short texts beside one padded batch."""
    model, tokenizer = aw.demo_model("encoder")
    batch = partial(tokenizer, TEXTS, return_tensors="pt", padding=True)
    yield "trace, 64 short texts", (lambda: aw.trace(model, tokenizer, TEXTS), lambda: model(**batch()))


def of_peers(n: int, folder: Path) -> Iterator[tuple[str, Pair]]:
    """Yield our output of a text of so many tokens beside that of each peer that is installed."""
    model, tokenizer = aw.demo_model("encoder")
    model.set_attn_implementation("eager")
    inputs = tokenizer(bench_peers.text_of(tokenizer, n), return_tensors="pt")
    tensors = list(model(**inputs, output_attentions=True).attentions)
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])

    def ours() -> None:
        view = aw.Explorer(aw.from_attentions([layer.numpy() for layer in tensors], tokens))
        view._repr_mimebundle_()
        view.close()

    for module, (row, view) in VIEWS.items():
        if importlib.util.find_spec(module) is None:
            print(f"{PEERS[module]} is not installed, and is left out")
        else:
            yield (
                f"Explorer by {PEERS[module]}, {n} tokens",
                (ours, partial(row, view, tensors, tokens, folder)),
            )


def measured(ours: Callable[[], Any], beside: Callable[[], Any]) -> tuple[float, float]:
    """Return the median CPU seconds of both, in turns, after one that does not count."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS + 1):
        for work, times in zip((ours, beside), taken, strict=True):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
    first, second = (median(times[1:]) for times in taken)
    return first, second


@torch.no_grad()
def main() -> None:
    """Measure, print what is slower than committed, then the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="keep the ratios in ratios.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    committed = json.loads(COMMITTED.read_text(encoding="utf-8")) if COMMITTED.exists() else {}
    lines, slower, ratios = [], [], dict(committed)
    with tempfile.TemporaryDirectory() as folder:
        for steps in (of_lengths(16), of_lengths(128), of_a_batch(), of_peers(128, Path(folder))):
            for name, (work, beside) in steps:
                ours, other = measured(work, beside)
                before, ratios[name] = committed.get(name), round(ours / other, 2)
                cells = f"{name} | {ours * 1e3:.0f} | {other * 1e3:.0f} | {ratios[name]:.2f}"
                lines.append(f"| {cells} | {'' if before is None else f'{before:.2f}'} |")
                if before is not None and ratios[name] > SLOWER * before:
                    slower.append(f"slower: {name}: {ratios[name]:.2f}, committed {before:.2f}")
    print("\n".join(slower or ["nothing is slower than committed by more than a quarter"]))
    print("\n| step | ours, ms | beside, ms | ratio | committed |\n|---|---:|---:|---:|---:|")
    print("\n".join(lines))
    if options.write:
        COMMITTED.write_text(json.dumps(ratios, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
