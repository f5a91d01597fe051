"""Measure how cost grows with the text, beside what it must cost.

    python benchmarks/bench_growth.py --tokens 512 2048    prints the table, smallest texts first
    python benchmarks/bench_growth.py --write              and writes it into benchmarks/README.md

The model is a random Llama of 2 layers x 16 heads with 8 dimensions per head, on one thread. Each figure
comes from its own process: CPU seconds, and peak memory beyond what the process held before the step
(reported by Linux only). The step first runs once on 20 tokens, so that imports do not count; the trace that
it starts from is made before measuring. The last figure of a cell is the time in floors (`growth_floors.py`),
plain code for the least work that the step's numbers need. A step whose floor exceeds `--seconds` is not run.

    --tree FOLDER    measures another checkout of attnwidgets, for comparison
    --limit GB       limits the process's memory; a step that needs more fails
    --seconds S      limits the CPU time of a step
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import growth_floors as floors
from growth_views import VIEWS
from pages import write_between

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKENS = (512, 2048, 8192, 32_768)
LAYERS, HEADS, WIDTH = 2, 16, 128
TIMED = 0.02
"""Seconds of a floor from which a ratio to it says something."""
FORK = multiprocessing.get_context("fork")
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- measured: growth -->", "<!-- end of measured: growth -->"


class Step(NamedTuple):
    """A step: its name in the table, a function of a trace, its floor, and how many of them it needs."""

    title: str
    run: Callable[[Any], Any]
    floor: Callable[[Any, Any], None] | None = None
    times: Callable[[int], float] = lambda _: 1


def method(name: str, **options: Any) -> Callable[[Any], Any]:
    """Return a step that computes a method's values, of a map those of its last layer."""

    def step(trace: Any) -> Any:
        import attnwidgets as aw

        result = aw.explain(trace, name, **options)
        return result.values if result.kind == "Attributions" else result.layer(result.layers[-1])

    return step


def statistics(trace: Any) -> Any:
    """Return statistics of all heads."""
    import attnwidgets as aw

    return aw.statistics.head_statistics(trace)


STEPS: dict[str, Step] = {
    "trace": Step("`aw.trace`", lambda trace: trace, floors.forward),
    "causal": Step("whether it is causal", lambda trace: trace.is_causal()),
    "row": Step("one row of one head", lambda t: t.attention_rows(1, [0], [len(t.tokens) - 1]), floors.row),
    "tile": Step("one head", lambda trace: trace.attention_rows(1, [0]), floors.head),
    "layer": Step("one layer", lambda trace: trace.attention_layer(1), floors.layer),
    **{name: Step(title, step) for name, (title, step) in VIEWS.items()},
    "saliency": Step("saliency", method("saliency"), floors.gradient),
    "input_x_gradient": Step("input x gradient", method("input_x_gradient"), floors.gradient),
    "lrp": Step("LRP", method("lrp"), floors.gradient),
    "deeplift": Step("DeepLIFT", method("deeplift"), floors.gradient, lambda _: 2),
    "chefer": Step("Chefer's relevance", method("chefer"), floors.gradient),
    "signed_attention": Step("signed attention", method("signed_attention"), floors.gradient),
    "head_statistics": Step("`head_statistics`", statistics, floors.reduced),
    "rollout": Step("rollout", method("rollout"), floors.rolled),
    "mixing_ratio": Step("mixing ratio", method("mixing_ratio"), floors.contributions, lambda _: LAYERS),
    "attention_norm": Step("norms, 1 layer", method("attention_norm", layers=[0]), floors.contributions),
    "alti": Step("ALTI, 1 layer", method("alti", layers=[0]), floors.contributions),
    "alti_logit": Step("ALTI-Logit", method("alti_logit"), floors.contributions, lambda _: LAYERS - 1),
    "globenc": Step("GlobEnc", method("globenc"), floors.contributions, lambda _: LAYERS),
    "contribution_graph": Step(
        "contribution graph, 1 layer", method("contribution_graph", layers=[0]), floors.contributions
    ),
    "value_zeroing": Step("value zeroing, 1 layer", method("value_zeroing", layers=[0]), floors.feed_forward),
    "decompx": Step("DecompX", method("decompx"), floors.feed_forward, lambda _: LAYERS),
    "integrated_gradients": Step(
        "integrated gradients, 50 steps", method("integrated_gradients"), floors.gradient, lambda _: 50
    ),
    "lime": Step("LIME, 1,000 samples", method("lime"), floors.forward, lambda _: 1000),
    "occlusion": Step("occlusion", method("occlusion"), floors.forward, lambda n: n),
    "contextual_decomposition": Step(
        "contextual decomposition", method("contextual_decomposition"), floors.forward, lambda n: 2 * n
    ),
    "shapley_sampling": Step(
        "Shapley, 25 orders", method("shapley_sampling"), floors.forward, lambda n: 25 * n
    ),
}
"""All steps by name, cheap ones first."""


def memory(field: str) -> float:
    """Return a field of this process's status in MB (10^6 bytes)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024 / 1e6


def apart(work: Callable[[], Any], options: argparse.Namespace) -> Any:
    """Return what a function returns in a process of its own; the reason in words if it ends without."""
    receiving, sending = FORK.Pipe(duplex=False)

    def child() -> None:
        last = int(time.process_time() + options.seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (last, last + 5))  # the second limit kills without a reason
        if options.limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (int(options.limit * 1e9),) * 2)
        try:
            sending.send(work())
        except (MemoryError, RuntimeError, ValueError) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            sending.send("refused" if isinstance(error, ValueError) else f"failed ({type(error).__name__})")

    process = FORK.Process(target=child)
    process.start()
    sending.close()
    try:
        return receiving.recv()
    except EOFError:
        process.join()
        return (
            f"more than {options.seconds:.0f} s"
            if process.exitcode == -signal.SIGXCPU
            else f"ended with {process.exitcode}"
        )


def measure(tokens: int, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the name of each step and its cell of the table."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import attnwidgets as aw

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "max_position_embeddings": 40_000}
    counts = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=500, **sizes, **counts)).eval()

    def read(count: int) -> Any:
        return aw.trace(model, None, input_ids=torch.randint(10, 400, (count,)))

    trace = read(tokens)
    least: dict[Any, Any] = {None: ""}

    def run(name: str) -> tuple[float, float]:
        STEPS[name].run(read(20))
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # resets the peak
        held, begin = memory("VmRSS"), time.process_time()
        result = read(tokens) if name == "trace" else STEPS[name].run(trace)
        seconds = time.process_time() - begin
        del result
        return seconds, max(0.0, memory("VmHWM") - held)

    for name in options.steps:
        step = STEPS[name]
        if step.floor not in least:
            ids = torch.randint(10, 400, (1, tokens))
            least[step.floor] = apart(partial(floors.seconds, step.floor, model, ids), options)
        floor = least[step.floor]
        needed = floor * step.times(tokens) if isinstance(floor, float) else floor
        if isinstance(needed, float) and needed > options.seconds:
            yield name, f"not run: its floor is {needed:,.0f} s"
            continue
        cell = apart(partial(run, name), options)
        if not isinstance(cell, str):
            seconds, peak = cell
            cell = f"{seconds:.{3 if seconds < 0.1 else 1}f} / {peak:,.0f}"
            if not isinstance(needed, float):
                cell += needed and f" / floor: {needed}"
            elif needed > TIMED:
                cell += f" / {seconds / needed:.1f}"
        yield name, cell


def main() -> None:
    """Print a table: one row per step, one column per length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--limit", type=float, help="GB of memory")
    parser.add_argument("--seconds", type=float, default=120, help="CPU seconds of a step")
    parser.add_argument("--write", action="store_true", help="write the table into benchmarks/README.md")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        for name, cell in measure(options.tokens[0], options):
            print(json.dumps([name, cell]), flush=True)
        return
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = str(options.tree.resolve())
    rows = {name: f"| {STEPS[name].title} |" for name in options.steps}
    for count in sorted(options.tokens):
        command = [sys.executable, __file__, "--one", "--steps", *options.steps, "--tokens", str(count)]
        command += ["--seconds", str(options.seconds)]
        command += [] if options.limit is None else ["--limit", str(options.limit)]
        cells = dict.fromkeys(options.steps, "not reached")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            for line in process.stdout or ():
                name, cell = json.loads(line)
                cells[name] = cell
                print(f"{count:,} tokens, {STEPS[name].title}: {cell}", flush=True)
        for name, cell in cells.items():
            rows[name] += f" {cell} |"
    lines = [
        f"{time.strftime('%Y-%m-%d')}, CPU s / peak MB / times its floor; 1 thread.",
        "",
        "| step |" + "".join(f" n = {count:,} |" for count in sorted(options.tokens)),
        "|---|" + "---:|" * len(options.tokens),
        *rows.values(),
    ]
    print("\n".join(lines))
    if options.write:
        write_between(README, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    main()
