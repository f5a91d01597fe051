"""Measure what methods cost on sound: python benchmarks/bench_speech.py.

Whisper tiny.en (4 + 4 layers x 6 heads, 1,500 frames) on one spoken sentence and the words that it wrote, one
thread. The plain pass is the model as loaded, the gradient that of the last token's logit with respect to the
spectrogram, with torch alone and without gradients of weights. The lowest CPU time of `TURNS` calls counts,
in one process. Methods start from a trace that was made before; the trace is a row of its own.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS = 3


def gradient(model: Any, inputs: dict[str, Any]) -> None:
    """Compute the gradient of the last token's largest logit by the spectrogram."""
    features = inputs["input_features"].detach().requires_grad_()
    logits = model(input_features=features, decoder_input_ids=inputs["decoder_input_ids"]).logits[0, -1]
    torch.autograd.grad(logits.max(), features)


def without_gradients(model: Any, inputs: dict[str, Any]) -> None:
    """Run the model as loaded."""
    with torch.no_grad():
        model(input_features=inputs["input_features"], decoder_input_ids=inputs["decoder_input_ids"])


def least(call: Callable[[], Any]) -> float:
    """Return the lowest CPU seconds of `TURNS` calls."""
    times = []
    for _ in range(TURNS):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    model, processor = aw.demo_model("speech")
    model.requires_grad_(requires_grad=False)
    spoken = aw.speech.demo_sentences()[0]
    written = aw.trace(model, processor, audio=spoken.wave, max_new_tokens=12)
    times = aw.speech.align(written)
    ids = written.inputs["decoder_input_ids"][0]
    last = int(ids[-1])
    text = processor.tokenizer.decode(ids, skip_special_tokens=True)
    again: Callable[[], Any] = lambda: aw.trace(model, processor, audio=spoken.wave, target_text=text)  # noqa: E731
    trace = again()
    example = [(times, spoken.target, spoken.cue)]
    rows: dict[str, Callable[[], Any]] = {
        "plain pass": lambda: without_gradients(model, dict(written.inputs)),
        "plain gradient": lambda: gradient(model, dict(written.inputs)),
        "trace": again,
        "align": lambda: aw.speech.align(trace),
        "saliency of bins": lambda: aw.saliency(trace, last, at="input", unit="bin"),
        "input_x_gradient of bins": lambda: aw.input_x_gradient(trace, last, at="input", unit="bin"),
        "lrp of bins": lambda: aw.lrp(trace, last, at="input", unit="bin"),
        "blank_out": lambda: aw.speech.blank_out(times, target=spoken.target, cue=spoken.cue),
        "cue_contribution, decoder and cross": lambda: aw.speech.cue_contribution(
            example, stacks=("decoder", "cross")
        ),
        "cue_contribution, encoder, attention": lambda: aw.speech.cue_contribution(
            example, methods=("attention",), stacks=("encoder",)
        ),
    }
    aw.check_conservation(trace)
    print("| | CPU, s | of a plain pass | of a plain gradient |\n|---|---:|---:|---:|", flush=True)
    found: dict[str, float] = {}
    for name, call in rows.items():
        call()
        found[name] = least(call)
        ratios = [found[name] / found[other] for other in ("plain pass", "plain gradient") if other in found]
        shown = [f"{ratio:.2f}" for ratio in ratios] + [""] * (2 - len(ratios))
        print(f"| {name} | {found[name]:.2f} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
