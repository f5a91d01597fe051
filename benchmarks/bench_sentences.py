"""Sentence sums of all heads of a long text: time in forward passes, and memory beside the record's.

`python benchmarks/bench_sentences.py [TOKENS]`, 8,000 by default, on SmolLM2-135M.
"""

from __future__ import annotations

import resource
import sys
import time

import torch

import attnwidgets as aw

MEGABYTE = 2**20


def peak() -> float:
    """Return the most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print the figures."""
    torch.set_num_threads(1)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    model, tokenizer = aw.demo_model("decoder")
    text = " ".join(aw.demo_book())[5000:]
    ids = tokenizer(text, verbose=False)["input_ids"][:count]
    with torch.inference_mode():
        started = time.process_time()
        model(torch.tensor([ids]), use_cache=False, logits_to_keep=1)
        forward = time.process_time() - started
    before = peak()
    started = time.process_time()
    trace = aw.trace(model, tokenizer, input_ids=ids)
    traced = time.process_time() - started
    record = (
        sum(sum(part.nbytes for part in trace.query_key(layer)) for layer in range(trace.n_layers()))
        / MEGABYTE
    )
    held = peak()
    started = time.process_time()
    found = aw.circuits.sentence_attribution(trace, "attention")
    for layer in found.layers:
        found.layer(layer)
    summed = time.process_time() - started
    print(f"{len(ids)} tokens, {found.shape[-1]} sentences, {found.shape[0]} x {found.shape[1]} heads")
    print(
        f"plain forward {forward:.0f} s; trace {traced / forward:.2f}, sums {summed / forward:.2f} forwards"
    )
    print(f"queries and keys {record:.0f} MB; the trace's peak {held - before:.0f} MB above the forward's")
    result = found.values.nbytes / MEGABYTE
    print(f"sums added {peak() - held:.0f} MB to that peak; their result has {result:.0f} MB")


main()
