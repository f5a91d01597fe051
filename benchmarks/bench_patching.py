"""What patching costs: a sweep over all states by reuse of the prefix, beside plain hooks; and an estimate.

`python benchmarks/bench_patching.py` on SmolLM2-135M. CPU seconds of one thread are given in plain forward passes
of the same text; *token passes* are counted: tokens x copies that go through blocks, by those of one pass.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LONG = (
    "is a country in the west of Europe, with a long history. It has many old towns, rivers and hills, and a lot "
    "of people like to travel there in summer. The capital of this country is"
)
TEXTS = (
    ("The capital of France is", "The capital of Italy is", " Paris", " Rome"),
    (
        "When Mary and John went to the store, John gave a drink to",
        "When Mary and John went to the store, Mary gave a drink to",
        " Mary",
        " John",
    ),
    (f"France {_LONG}", f"Italy {_LONG}", " Paris", " Rome"),
)
ROUNDS = 3


@contextmanager
def counted(model: Any) -> Iterator[dict[str, int]]:
    """Count the calls of blocks, and the tokens that go through them in all copies."""
    seen = {"calls": 0, "tokens": 0}
    block = type(model.model.layers[0])
    forward = block.forward

    def counting(self: Any, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen["calls"] += 1
        seen["tokens"] += hidden.shape[0] * hidden.shape[1]
        return forward(self, hidden, *args, **kwargs)

    block.forward = counting
    try:
        yield seen
    finally:
        block.forward = forward


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


@torch.no_grad()
def main() -> None:
    """Print a row for each pair of texts."""
    torch.set_num_threads(1)
    model, tokenizer = aw.demo_model("decoder")
    layers = len(model.model.layers)
    print(
        "tokens, differ from | bound | sweep: token passes, CPU, calls | plain hooks CPU | estimate: bound, CPU"
    )
    for clean_text, corrupt_text, target, foil in TEXTS:
        clean, corrupt = (aw.trace(model, tokenizer, text) for text in (clean_text, corrupt_text))
        options = {"foil": foil, "sites": "state"}
        n = len(clean.tokens)
        first = aw.circuits.patch(clean, corrupt, target, **options).differs[0]
        m = n - first
        forward = seconds(lambda clean=clean: model(**clean.inputs), 7)
        with torch.enable_grad():

            def both(clean: Any = clean) -> None:
                embeddings = model.get_input_embeddings()(clean.inputs["input_ids"]).detach().requires_grad_()
                logits = model(inputs_embeds=embeddings).logits[0, -1]
                torch.autograd.grad(logits[0], embeddings)

            with_gradient = seconds(both, 7)

        def sweep(clean: Any = clean, corrupt: Any = corrupt, options: Any = options, **more: Any) -> Any:
            return aw.circuits.patch(clean, corrupt, target, batch_size=64, **options, **more)  # noqa: B023

        with counted(model) as seen:
            sweep()
        swept = seconds(sweep)
        cells = [(layer, token) for layer in range(layers) for token in range(n)][:: max(1, n // 6)]
        plain = seconds(lambda c=cells, x=clean, y=corrupt: plain_sweep(model, x, y, c), 1)
        plain *= layers * n / len(cells)
        with counted(model) as of_estimate:
            sweep(estimate=True)
        estimated = seconds(lambda run=sweep: run(estimate=True))
        bound = (layers + 1) / 2 * m * m / n
        allowed = 1.1 * (forward + with_gradient)
        print(
            f"{n}, {first} | {bound:.1f} | {seen['tokens'] / (layers * n):.1f}, {swept / forward:.1f}, "
            f"{seen['calls'] / layers:.1f} | {plain / forward:.0f} | {allowed / forward:.1f}, "
            f"{of_estimate['tokens'] / (layers * n):.1f}, {estimated / forward:.1f}"
        )


main()
