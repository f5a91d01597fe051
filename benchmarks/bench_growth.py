"""Measure how cost grows with the text: python benchmarks/bench_growth.py [--tokens 1024 2048] [--steps ...].

The model is a random Llama of 2 layers x 16 heads with 8 dimensions per head, on one thread. Each figure
comes from its own process: CPU seconds, and peak memory beyond what the process held before the step
(reported by Linux only). The step first runs once on 20 tokens, so that imports do not count; the trace that
it starts from is made before measuring. A step in another module adds itself to `STEPS`.

    --tree FOLDER    measures another checkout of attnwidgets, for comparison
    --limit GB       limits the process's memory; a step that needs more prints its own error
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from growth_views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS = (1024, 2048, 4096, 8192)
LAYERS, HEADS, WIDTH = 2, 16, 128
SECONDS = 280


def row(trace: Any) -> Any:
    """Return one row of one head; older versions take it from the layer."""
    if hasattr(trace, "attention_rows"):
        return trace.attention_rows(1, [0], [len(trace.tokens) - 1])
    return trace.attention_layer(1)[0, -1]


def tile(trace: Any) -> Any:
    """Return one head."""
    return trace.attention_rows(1, [0]) if hasattr(trace, "attention_rows") else trace.attention_layer(1)[0]


def method(name: str, **options: Any) -> Callable[[Any], Any]:
    """Return a step that computes a method's values for the last of its layers."""

    def step(trace: Any) -> Any:
        import attnwidgets as aw

        result = getattr(aw, name)(trace, **options)
        return result.values if result.kind == "Attributions" else result.layer(result.layers[-1])

    return step


STEPS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "trace": ("`aw.trace`", lambda trace: trace),
    "causal": ("whether it is causal", lambda trace: trace.is_causal()),
    "row": ("one row of one head", row),
    "tile": ("one head", tile),
    "layer": ("one layer", lambda trace: trace.attention_layer(1)),
    "rollout": ("rollout", method("rollout")),
    "value_zeroing": ("value zeroing, 1 layer", method("value_zeroing", layers=[0])),
    "lrp": ("lrp", method("lrp")),
    **VIEWS,
}
"""Steps: the name in the table, and a function of a trace."""


def memory(field: str) -> float:
    """Return a field of this process's status in MB (10^6 bytes)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024 / 1e6


def measure(name: str, tokens: int, limit: float | None) -> dict[str, Any]:
    """Return the CPU seconds and peak MB of a step in this process, or its error."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import attnwidgets as aw

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "max_position_embeddings": 20_000}
    counts = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=500, **sizes, **counts)).eval()

    def read(count: int) -> Any:
        return aw.trace(model, None, input_ids=torch.randint(10, 400, (count,)))

    step = STEPS[name][1]
    step(read(20))
    trace = None if name == "trace" else read(tokens)
    if limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(limit * 1e9),) * 2)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # reset the peak
    held, begin = memory("VmRSS"), time.process_time()
    try:
        result = read(tokens) if trace is None else step(trace)
    except (MemoryError, RuntimeError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    seconds = time.process_time() - begin
    del result
    return {"seconds": seconds, "peak": max(0.0, memory("VmHWM") - held), "tree": aw.__file__}


def cell(name: str, tokens: int, options: argparse.Namespace) -> str:
    """Measure a step in its own process; return CPU seconds and MB as a cell of the table."""
    command = [sys.executable, __file__, "--one", name, "--tokens", str(tokens)]
    command += [] if options.limit is None else ["--limit", str(options.limit)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = str(options.tree.resolve())
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"more than {SECONDS} s"
    if done.returncode:
        print(done.stderr[-500:], file=sys.stderr)
        return f"ended with {done.returncode}"
    measured = json.loads(done.stdout.splitlines()[-1])
    if "error" in measured:
        print(f"{name}, {tokens}: {measured['error']}", file=sys.stderr)
        return "refused" if "force=True" in measured["error"] else "failed"
    seconds = measured["seconds"]
    return f"{seconds:.{3 if seconds < 0.1 else 1}f} / {measured['peak']:,.0f}"


def main() -> None:
    """Print a table: one row per step, one column per length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--limit", type=float)
    parser.add_argument("--one", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.tokens[0], options.limit)))
        return
    print(f"CPU s / peak MB; {LAYERS} layers x {HEADS} heads, 1 thread\n")
    print("| step |" + "".join(f" n = {count:,} |" for count in options.tokens))
    print("|---|" + "---:|" * len(options.tokens))
    for name in options.steps:
        print(f"| {STEPS[name][0]} |", end="", flush=True)
        for count in options.tokens:
            print(f" {cell(name, count, options)} |", end="", flush=True)
        print(flush=True)


if __name__ == "__main__":
    main()
