"""Value zeroing beside a plain implementation: python benchmarks/bench_value_zeroing.py.

The plain one does what the paper says and no more: every layer is called again once per token, from its
recorded input, with that token's value zeroed in a forward hook; cosine distances are taken token by token.
Both are measured in CPU time, in one run; on a loaded machine run it again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

import attnwidgets as aw
from attnwidgets.tracing.rerun import capture

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTHS = {"encoder": (32, 64, 128, 256), "decoder": (64, 128)}
LAYERS = 3  # the same ones for both; all layers cost alike


def plain(trace: Any) -> torch.Tensor:
    """Return row-normalised value zeroing [layer, query, key], one block call per layer and token."""
    blocks = capture(trace, trace.default_stream, "benchmark")
    n = len(trace.tokens)
    scores = torch.zeros(LAYERS, n, n)
    for layer, block in enumerate(blocks.layers[:LAYERS]):
        values = next(m for name, m in block.module.named_modules() if name.endswith((".value", ".v_proj")))
        with torch.no_grad():
            before = block.module(*block.args, **block.kwargs)[0]
            for key in range(n):

                def zero(_: Any, __: Any, output: torch.Tensor, key: int = key) -> torch.Tensor:
                    output[:, key] = 0
                    return output

                handle = values.register_forward_hook(zero)
                after = block.module(*block.args, **block.kwargs)[0]
                handle.remove()
                for query in range(n):
                    pair = (after[query].double(), before[query].double())
                    scores[layer, query, key] = 1 - torch.nn.functional.cosine_similarity(*pair, dim=0)
    return scores / scores.sum(-1, keepdim=True)


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds that work takes, and what it returns."""
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def main() -> None:
    """Print one row for each model and length."""
    torch.set_num_threads(2)
    print("| model | tokens | plain, s | ours, s | ratio | largest difference |\n|---|---|---|---|---|---|")
    for kind, lengths in LENGTHS.items():
        model, _ = aw.demo_model(kind)
        generator = torch.Generator().manual_seed(0)
        aw.value_zeroing(aw.trace(model, None, [1000, 1001]), layers=0).layer(0)  # loads what is loaded once
        for n in lengths:
            ids = torch.randint(1000, 9000, (n,), generator=generator).tolist()
            trace = aw.trace(model, None, ids)
            theirs, expected = cpu(lambda trace=trace: plain(trace))
            ours, found = cpu(lambda trace=trace: aw.value_zeroing(trace, layers=range(LAYERS)).values)
            apart = float((torch.tensor(found) - expected).abs().max())
            print(
                f"| {kind} | {n} | {theirs:.2f} | {ours:.2f} | {theirs / ours:.1f} | {apart:.1g} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
