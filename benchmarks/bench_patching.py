"""What patching costs: a sweep over all states by reuse of the prefix, beside plain hooks; and an estimate.

`python benchmarks/bench_patching.py` on SmolLM2-135M. CPU times of one thread are given in plain forward
passes of the same text: medians over rounds in which everything runs in turn. *Token passes* are counted:
tokens x copies in blocks, by those of one pass. An estimate is measured without its checks, and with them.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING, Any

import tested  # noqa: F401 - tests can be imported from here on
import torch

import attnwidgets as aw
from attnwidgets.circuits.estimate import estimated
from attnwidgets.circuits.pair import pair_of
from attnwidgets.circuits.suffix_runs import SuffixRuns
from attnwidgets.explanations.targets.target_set import resolve_target_set
from tests.circuits.made import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TEXTS = (
    ("The capital of France is", "The capital of Italy is", " Paris", " Rome"),
    (
        "When Mary and John went to the store, John gave a drink to",
        "When Mary and John went to the store, Mary gave a drink to",
        " Mary",
        " John",
    ),
)
ROUNDS = 5
SAMPLE = 40  # cells that are patched by plain hooks, of which all would take too long


def ratios(steps: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the CPU time of every step by that of the first, in turns: the median of the rounds."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            started = time.process_time()
            step()
            taken[name].append(time.process_time() - started)
    first = next(iter(taken.values()))
    return {
        name: statistics.median(a / b for a, b in zip(times, first, strict=True))
        for name, times in taken.items()
    }


def plain_sweep(model: Any, clean: Any, corrupt: Any, cells: list[tuple[int, int]]) -> list[float]:
    """Patch the input of every block at every token by hooks, one forward pass each, as is usually done."""
    states: list[torch.Tensor] = []
    found = []
    hooks = [
        layer.register_forward_pre_hook(lambda _, args: states.append(args[0].clone()))
        for layer in model.model.layers
    ]
    model(**clean.inputs)
    for hook in hooks:
        hook.remove()
    for layer, token in cells:

        def patched(_: Any, args: Any, layer: int = layer, token: int = token) -> Any:
            hidden = args[0].clone()
            hidden[:, token] = states[layer][:, token]
            return (hidden, *args[1:])

        hook = model.model.layers[layer].register_forward_pre_hook(patched)
        found.append(float(model(**corrupt.inputs).logits[0, -1].max()))
        hook.remove()
    return found


def gradient(model: Any, ids: torch.Tensor) -> None:
    """Run a forward and a backward pass down to the embeddings."""
    with torch.enable_grad():
        embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
        torch.autograd.grad(model(inputs_embeds=embeddings).logits[0, -1, 0], embeddings)


def unchecked(clean: Any, corrupt: Any, target: str, foil: str) -> None:
    """Estimate all states as `aw.circuits.patch` does, and check none."""
    pair = pair_of(clean, corrupt, None, "patch")
    targets = resolve_target_set(clean, target, foil, "patch").single("patch")
    with SuffixRuns(pair, targets, ("state",), "circuits.patch", [1]) as runs:
        estimated(runs, pair, ("state",), 1, 0, 64)


def row(model: Any, tokenizer: Any, texts: tuple[str, ...]) -> str:
    """Return the figures of a pair of texts."""
    clean, corrupt = (aw.trace(model, tokenizer, text) for text in texts[:2])
    layers, n = len(model.model.layers), len(clean.tokens)

    def sweep(checked: int | None = None) -> Any:
        how = aw.circuits.Sweep(checked=checked or 1, batch_size=64)
        options = {"foil": texts[3], "sites": "state", "estimate": checked is not None, "sweep": how}
        return aw.circuits.patch(clean, corrupt, texts[2], **options)

    with counted(type(model.model.layers[0])) as seen:
        first = sweep().differs[0]
    with counted(type(model.model.layers[0])) as of_estimate:
        unchecked(clean, corrupt, *texts[2:])
    every = [(layer, token) for layer in range(layers) for token in range(n)]
    cells = random.Random(0).sample(every, SAMPLE)
    found = ratios(
        {
            "forward": lambda: model(**clean.inputs),
            "gradient": lambda: gradient(model, clean.inputs["input_ids"]),
            "estimate": lambda: unchecked(clean, corrupt, *texts[2:]),
            "1 checked": lambda: sweep(1),
            "6 checked": lambda: sweep(6),
            "sweep": sweep,
            "plain": lambda: plain_sweep(model, clean, corrupt, cells),
        }
    )
    bound = (layers + 1) / 2 * (n - first) ** 2 / n
    by_blocks = seen["calls"] / layers
    passes = [count["tokens"] / (layers * n) for count in (seen, of_estimate)]
    checks = [found[name] - found["estimate"] for name in ("1 checked", "6 checked")]
    return (
        f"| {n}, from {first} | {bound:.1f} | {passes[0]:.1f} | {found['sweep']:.1f} | {by_blocks:.1f} | "
        f"{found['plain'] * len(every) / len(cells):.0f} | {1.1 * (1 + found['gradient']):.1f} | "
        f"{passes[1]:.1f} | {found['estimate']:.1f} | +{checks[0]:.1f}, +{checks[1]:.1f} |"
    )


@torch.no_grad()
def main() -> None:
    """Print a row for each pair of texts."""
    torch.set_num_threads(1)
    model = aw.demo_model("decoder")
    print(
        "| tokens, that differ | bound | sweep, token passes | sweep, CPU | calls | plain hooks, CPU ", end=""
    )
    print("| allowed, CPU | estimate, token passes | estimate, CPU | its checks, CPU: 1 place, 6 |")
    print("|---|" + "---:|" * 9)
    for texts in TEXTS:
        print(row(*model, texts), flush=True)


if __name__ == "__main__":
    main()
