"""What patching costs: a sweep over all states by reuse of the prefix, beside plain hooks; and an estimate.

`python benchmarks/bench_patching.py` on SmolLM2-135M. CPU seconds of one thread are given in plain forward
passes of the same text; *token passes* are counted: tokens x copies in blocks, by those of one pass.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import tested  # noqa: F401 - tests can be imported from here on
import torch

import attnwidgets as aw
from tests.circuits.made import counted

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS = (
    ("The capital of France is", "The capital of Italy is", " Paris", " Rome"),
    (
        "When Mary and John went to the store, John gave a drink to",
        "When Mary and John went to the store, Mary gave a drink to",
        " Mary",
        " John",
    ),
)
ROUNDS = 3
SAMPLE = 40  # cells that are patched by plain hooks, of which all would take too long


def seconds(run: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Return the least CPU seconds of some rounds."""
    taken = []
    for _ in range(rounds):
        started = time.process_time()
        run()
        taken.append(time.process_time() - started)
    return min(taken)


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


def row(model: Any, tokenizer: Any, texts: tuple[str, ...]) -> str:
    """Return the figures of a pair of texts."""
    clean, corrupt = (aw.trace(model, tokenizer, text) for text in texts[:2])
    layers, n = len(model.model.layers), len(clean.tokens)

    def sweep(**more: Any) -> Any:
        return aw.circuits.patch(
            clean, corrupt, texts[2], foil=texts[3], sites="state", batch_size=64, **more
        )

    with counted(type(model.model.layers[0])) as seen:
        first = sweep().differs[0]
    with counted(type(model.model.layers[0])) as of_estimate:
        sweep(estimate=True)
    forward = seconds(lambda: model(**clean.inputs), 7)
    allowed = 1.1 * (forward + seconds(lambda: gradient(model, clean.inputs["input_ids"]), 7))
    swept, estimated = seconds(sweep), seconds(lambda: sweep(estimate=True))
    least = seconds(lambda: sweep(estimate=True, checked=1))
    every = [(layer, token) for layer in range(layers) for token in range(n)]
    cells = random.Random(0).sample(every, SAMPLE)
    plain = seconds(lambda: plain_sweep(model, clean, corrupt, cells), 1) * len(every) / len(cells)
    bound = (layers + 1) / 2 * (n - first) ** 2 / n
    by_blocks = seen["calls"] / layers
    passes = [count["tokens"] / (layers * n) for count in (seen, of_estimate)]
    return (
        f"{n}, {first} | {bound:.1f} | {passes[0]:.1f}, {swept / forward:.1f}, {by_blocks:.1f} | "
        f"{plain / forward:.0f} | {allowed / forward:.1f}, {passes[1]:.1f}, "
        f"{least / forward:.1f} and {estimated / forward:.1f}"
    )


@torch.no_grad()
def main() -> None:
    """Print a row for each pair of texts."""
    torch.set_num_threads(1)
    model = aw.demo_model("decoder")
    print("tokens, differ from | bound | sweep: token passes, CPU, calls of every block", end=" | ")
    print("plain hooks: CPU | estimate: allowed CPU, token passes, CPU with 1 and with 6 places checked")
    for texts in TEXTS:
        print(row(*model, texts), flush=True)


if __name__ == "__main__":
    main()
