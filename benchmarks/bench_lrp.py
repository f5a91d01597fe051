"""Compare the cost of relevance with that of a gradient: python benchmarks/bench_lrp.py.

The plain pass computes the gradient of one logit with respect to the embeddings with torch alone: one forward
pass of the model as loaded (sdpa), and `torch.autograd.grad` back to the embeddings, without gradients of
weights. Both take turns in one run, and the lowest CPU time of several counts; repeat it on a loaded machine.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTHS = (64, 256)
TURNS = 7
TOKEN = 359


def plain(model: Any, ids: torch.Tensor, *, frozen: bool) -> torch.Tensor:
    """Return the gradient of the last row's logit with respect to the embeddings."""
    flags = [parameter.requires_grad for parameter in model.parameters()]
    if frozen:
        model.requires_grad_(requires_grad=False)
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, use_cache=False).logits
    gradient: torch.Tensor = torch.autograd.grad(logits[0, -1, TOKEN], embeddings)[0]
    for parameter, flag in zip(model.parameters(), flags, strict=True):
        parameter.requires_grad_(requires_grad=flag)
    return gradient


def cpu(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of a call."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    """Print one row per length."""
    torch.set_num_threads(1)
    model, _ = aw.demo_model("decoder")
    aw.check_conservation(model)
    generator = torch.Generator().manual_seed(0)
    print("| tokens | gradient, s | weights frozen, s | AttnLRP, s | CP-LRP, s | ratio | three targets |")
    print("|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    for n in LENGTHS:
        ids = torch.randint(1000, 9000, (1, n), generator=generator)
        trace = aw.trace(model, None, ids[0].tolist())
        work: dict[str, Callable[[], Any]] = {
            "gradient": lambda ids=ids: plain(model, ids, frozen=False),
            "frozen": lambda ids=ids: plain(model, ids, frozen=True),
            "attnlrp": lambda trace=trace: aw.lrp(trace, TOKEN),
            "cp_lrp": lambda trace=trace: aw.lrp(trace, TOKEN, rule="cp_lrp"),
            "three": lambda trace=trace: aw.lrp(trace, [TOKEN, 314, 500]),
        }
        least = {name: min(times) for name, times in _by_turns(work).items()}
        ratios = (least["attnlrp"] / least["gradient"], least["three"] / least["gradient"])
        shown = " | ".join(f"{least[name]:.2f}" for name in ("gradient", "frozen", "attnlrp", "cp_lrp"))
        print(f"| {n} | {shown} | {ratios[0]:.2f} | {ratios[1]:.2f} |", flush=True)


def _by_turns(work: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(TURNS):
        for name, function in work.items():
            times[name].append(cpu(function))
    return times


if __name__ == "__main__":
    main()
