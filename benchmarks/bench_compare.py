"""Measure the cost of comparing six methods against the passes that their definitions require.

    python benchmarks/bench_compare.py [texts]

One process, one thread, processor time. "Required" is the time of the same passes and nothing else: every
distinct input with features removed (over all methods, shares, draws and the oracle), in batches of 64 of one
length, through `model(...)` under no_grad; and for each text one pass for the trace, one forward and one
backward pass for each of the three gradient methods, and those of integrated gradients at its default number
of steps.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import torch

import attnwidgets as aw
from attnwidgets.evaluate.removals import shared_batches
from attnwidgets.tracing.gradients import differentiable

METRICS = ["comprehensiveness", "sufficiency"]


def last_row(maps: Any) -> Any:
    """Return the row of [CLS] in the last layer."""
    return maps.select(layer=-1).to_attributions("row", query="cls")


METHODS = {
    "attention": lambda trace: last_row(aw.attention(trace).mean("head")),
    "rollout": lambda trace: last_row(aw.rollout(trace)),
    "saliency": "saliency",
    "input x gradient": "input_x_gradient",
    "LRP": "lrp",
    "integrated gradients": "integrated_gradients",
}


def main() -> None:
    """Time both and print the ratio."""
    torch.set_num_threads(1)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    model, tokenizer = aw.demo_model("classifier")
    texts = aw.demo_texts()[:count]
    aw.evaluate.compare(METHODS, METRICS, texts[:2], model, tokenizer, operator="mask")

    # Record the passes as they are made.
    forward: list[dict[str, torch.Tensor]] = []
    graphs: list[tuple[int, int]] = []
    pack, run = shared_batches.pack, differentiable.Runner.__call__

    def packed(question: Any) -> Any:
        batch = pack(question)
        forward.append(batch.inputs)
        return batch

    def graphed(self: Any, replace: Any = None, **options: Any) -> Any:
        graph = run(self, replace, **options)
        graphs.append(next(iter(graph.inputs.values())).shape[:2])
        return graph

    shared_batches.pack, differentiable.Runner.__call__ = packed, graphed
    start = time.process_time()
    aw.evaluate.compare(METHODS, METRICS, texts, model, tokenizer, operator="mask")
    whole = time.process_time() - start
    shared_batches.pack, differentiable.Runner.__call__ = pack, run

    by_length: dict[int, list[dict[str, torch.Tensor]]] = {}
    for inputs in forward:
        if inputs:
            by_length.setdefault(inputs["input_ids"].shape[1], []).append(inputs)
    start = time.process_time()
    rows = 0
    with torch.no_grad():
        for several in by_length.values():
            whole_set = {name: torch.cat([inputs[name] for inputs in several]) for name in several[0]}
            size = len(whole_set["input_ids"])
            rows += size
            for begin in range(0, size, 64):
                model(**{name: value[begin : begin + 64] for name, value in whole_set.items()})
    removal = time.process_time() - start
    embeddings = model.get_input_embeddings()
    start = time.process_time()
    for batch, length in graphs:
        ids = torch.zeros(batch, length, dtype=torch.long)
        states = embeddings(ids).detach().requires_grad_()
        logits = model(inputs_embeds=states).logits
        torch.autograd.grad(logits[:, 0].sum(), states)
    gradients = time.process_time() - start
    start = time.process_time()
    with torch.no_grad():
        for text in texts:
            model(**tokenizer(text.text, return_tensors="pt"))
    traces = time.process_time() - start
    required = removal + gradients + traces
    print(f"{len(texts)} texts, {len(METHODS)} methods, {', '.join(METRICS)}, mask, 10 random orders, oracle")
    print(f"compare: {whole:.1f} s")
    print(f"required: {required:.1f} s ({rows:,} inputs with features removed {removal:.1f} s, "
          f"{len(graphs):,} gradient passes {gradients:.1f} s, traces {traces:.1f} s)")  # fmt: skip
    print(f"ratio: {whole / required:.2f}")


if __name__ == "__main__":
    main()
