"""Compare the measures of context mixing with plain implementations of their papers, in one run.

    python benchmarks/bench_mixing.py                    prints the table
    python benchmarks/bench_mixing.py --write            and writes it into benchmarks/README.md
    python benchmarks/bench_mixing.py --tokens 64 --methods alti value_zeroing --models MiniLM

Both end with the maps of every layer. The plain one (`plain.py`, `plain_decompx.py`) starts from the tokens
and runs the model once; attnwidgets starts from a trace that was made before, and "from tokens" adds making
it. Results are compared before timing. Times are medians of this process's CPU time on one thread, in turns.
Memory is torch's peak beyond what it held before, measured in one more run of each.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

# These must be set before torch starts its threads.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["KINETO_LOG_LEVEL"] = "99"  # silences the memory profiler

import numpy as np
import plain
import plain_decompx
import torch
from allocated import peak
from pages import write_between

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- measured: mixing -->", "<!-- end of measured: mixing -->"
LONG_SECONDS = 20  # slower ones run once

# By name: the plain implementation (model, ids) and ours (trace).
METHODS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "attention_norm": (
        lambda model, ids: plain.attention_norm(model, ids, "attn"),
        aw.attention_norm,
    ),
    "attention_norm, res": (
        lambda model, ids: plain.attention_norm(model, ids, "res"),
        lambda traced: aw.attention_norm(traced, "res"),
    ),
    "attention_norm, res_ln": (
        lambda model, ids: plain.attention_norm(model, ids, "res_ln"),
        lambda traced: aw.attention_norm(traced, "res_ln"),
    ),
    "globenc": (plain.globenc, aw.globenc),
    "alti": (plain.alti, aw.alti),
    "value_zeroing": (plain.value_zeroing, aw.value_zeroing),
    "decompx": (
        lambda model, ids: plain_decompx.decompx(model, ids, None, mix_values=True),
        aw.decompx,
    ),
}
CASES: dict[str, tuple[str, tuple[int, ...], tuple[str, ...]]] = {
    "MiniLM": (
        "encoder",
        (16, 32, 64, 128, 256),
        ("attention_norm", "attention_norm, res_ln", "globenc", "alti", "value_zeroing", "decompx"),
    ),
    "SmolLM2": (
        "decoder",
        (16, 64, 128),
        ("attention_norm", "attention_norm, res", "alti", "value_zeroing"),
    ),
}


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU time of a call, and its result."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


@torch.no_grad()
def compare(name: str, model: Any, method: str, n: int, repeats: int) -> str:
    """Return one row of the table."""
    theirs, ours = METHODS[method]
    ids = torch.randint(1000, 9000, (1, n), generator=torch.Generator().manual_seed(n))
    inner = getattr(model, "model", model)  # without the head, which no measure reads

    def traced() -> Any:
        return aw.trace(model, None, ids[0].tolist())

    expected = np.asarray(theirs(model, ids))
    computed = ours(traced()).values
    off = float(np.abs(computed - expected).max() / np.abs(expected).max())
    if not off < 1e-3:
        raise SystemExit(f"{name} {method} differs by {off:.2g}")
    times: dict[str, list[float]] = {"pass": [], "plain": [], "trace": [], "ours": []}
    for _ in range(repeats):
        taken, trace = seconds(traced)
        times["trace"].append(taken)
        times["pass"].append(seconds(lambda: inner(ids))[0])
        times["plain"].append(seconds(lambda: theirs(model, ids))[0])
        times["ours"].append(seconds(lambda trace=trace: ours(trace).values)[0])
        if times["plain"][0] > LONG_SECONDS:
            break
    alone, there, traces, here = (median(values) for values in times.values())
    trace = traced()
    held = [peak(lambda: theirs(model, ids)), peak(lambda: ours(trace).values)]
    cells = [name, str(n), method, *(f"{value:.3f}" for value in (alone, there, here))]
    cells += [f"**{there / here:.2f}**", f"{there / (traces + here):.2f}"]
    cells += [f"{size / 1e6:.1f}" for size in held]
    return f"| {' | '.join([*cells, f'{off:.0e}'])} |"


def main() -> None:
    """Measure, print, and write with `--write`."""
    import transformers

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tokens", type=int, nargs="*", help="text lengths; by default those of the table")
    parser.add_argument("--methods", nargs="*", help="names of the methods to run; all by default")
    parser.add_argument("--models", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write the table into benchmarks/README.md")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    columns = (
        "model",
        "tokens",
        "method",
        "pass, s",
        "plain, s",
        "attnwidgets, s",
        "times as fast",
        "from tokens",
    )
    columns += "plain, MB", "attnwidgets, MB", "apart"
    threads = f"{options.threads} thread{'s' if options.threads > 1 else ''}"
    when = f"{time.strftime('%Y-%m-%d')}, {threads} ({platform.machine()})"
    lines = [f"{when}, Python {platform.python_version()}; {versions}.", ""]
    lines += [f"| {' | '.join(columns)} |", f"|---|---:|---|{'---:|' * (len(columns) - 3)}"]
    print("\n".join(lines), flush=True)
    for name in options.models:
        kind, lengths, methods = CASES[name]
        model = aw.demo_model(kind)[0]
        model.set_attn_implementation("eager")
        for n in options.tokens or lengths:
            for method in methods if options.methods is None else options.methods:
                if method in methods:
                    lines.append(compare(name, model, method, n, options.repeats))
                    print(lines[-1], flush=True)
    if options.write:
        write_between(README, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
