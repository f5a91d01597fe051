"""Measure what methods cost on pictures: python benchmarks/bench_vision.py [side ...].

DINOv2 ViT-S/14 (12 layers x 6 heads) with a seeded head, on noise of 224 and 518 pixels (257 and 1,370
tokens), one thread. The plain pass is the model as loaded (sdpa), the gradient that of one logit with
respect to what the first block reads, with torch alone and without gradients of weights. Every row is a
process of its own, so that its peak memory is its own; the lowest CPU time of `TURNS` calls counts. A trace
is made before, and counts as a row.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import torch
import transformers as hf

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable

SIDES = (224, 518)
TURNS = 2
PASS, GRADIENT = "plain pass", "plain gradient"


def model_of(side: int) -> tuple[Any, torch.Tensor]:
    """Return DINOv2 with a head for ten classes, and pixels [1, channel, row, column]."""
    backbone, _ = aw.demo_model("vision")
    torch.manual_seed(0)
    model = hf.Dinov2ForImageClassification(backbone.config).eval()
    model.dinov2.load_state_dict(backbone.state_dict())
    return model, torch.randn(1, 3, side, side)


def gradient(model: Any, pixels: torch.Tensor) -> None:
    """Compute the gradient of one logit by the first block's input."""
    model.requires_grad_(requires_grad=False)
    kept: list[torch.Tensor] = []

    def leaf(_: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        kept.append(args[0].detach().requires_grad_())
        return (kept[0], *args[1:])

    hook = model.dinov2.encoder.layer[0].register_forward_pre_hook(leaf)
    torch.autograd.grad(model(pixels).logits[0, 0], kept[0])
    hook.remove()


def without_gradients(model: Any, pixels: torch.Tensor) -> None:
    """Run the model as loaded."""
    with torch.no_grad():
        model(pixels)


def rollout(trace: Any) -> None:
    """Multiply all layers."""
    aw.rollout(trace).layer(-1)


WORK: dict[str, Callable[[Any], Any]] = {
    "rollout": rollout,
    "saliency": lambda trace: aw.saliency(trace, 0),
    "saliency of pixels": lambda trace: aw.saliency(trace, 0, at="input", unit="pixel"),
    "grad_cam": lambda trace: aw.vision.grad_cam(trace, 0),
    "chefer": lambda trace: aw.chefer(trace, 0),
    "chefer, cvpr2021, alpha_beta": lambda trace: aw.chefer(
        trace, 0, rule=("cvpr2021", {"relevance": "alpha_beta"})
    ),
    "lrp": lambda trace: aw.lrp(trace, 0),
    "class_attention": aw.vision.class_attention,
    "token_norms": aw.vision.token_norms,
}
ROWS = (PASS, GRADIENT, "trace", *WORK)


def measured(side: int, name: str) -> dict[str, float]:
    """Return the CPU seconds of one row, and the peak memory of its process in bytes."""
    torch.set_num_threads(1)
    model, pixels = model_of(side)
    if name in (PASS, GRADIENT):
        call: Callable[[], Any] = lambda: (gradient if name == GRADIENT else without_gradients)(model, pixels)  # noqa: E731
    elif name == "trace":
        call = lambda: aw.trace(model, None, image=pixels[0])  # noqa: E731
        call()  # compares with a plain pass, once per architecture
    else:
        if name == "lrp":
            aw.check_conservation(aw.trace(model, None, image=pixels[0, :, :224, :224]))
        trace = aw.trace(model, None, image=pixels[0])
        call = lambda: WORK[name](aw.trace(model, None, image=pixels[0]) if name == "rollout" else trace)  # noqa: E731
    times = []
    for _ in range(TURNS):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return {"seconds": min(times), "peak": _peak()}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def main() -> None:
    """Print one table per size."""
    for side in [int(each) for each in sys.argv[1:]] or SIDES:
        print(f"\n{side} x {side} pixels, {(side // 14) ** 2 + 1:,} tokens:\n")
        print("| | CPU, s | of a plain pass | of a plain gradient | peak memory of the process |")
        print("|---|---:|---:|---:|---:|", flush=True)
        found: dict[str, dict[str, float]] = {}
        for name in ROWS:
            command = [sys.executable, __file__, "--row", str(side), name]
            found[name] = json.loads(
                subprocess.run(command, capture_output=True, check=True, text=True).stdout
            )
            seconds = found[name]["seconds"]
            ratios = [seconds / found[other]["seconds"] for other in (PASS, GRADIENT) if other in found]
            shown = " | ".join(f"{ratio:.2f}" for ratio in ratios) + " | " * (2 - len(ratios))
            peak = found[name]["peak"] / 1e9
            print(f"| {name} | {seconds:.2f} | {shown} | {peak:.2f} GB |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--row"]:
        print(json.dumps(measured(int(sys.argv[2]), sys.argv[3])))
    else:
        main()
