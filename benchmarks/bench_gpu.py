"""Measure attnwidgets on an accelerator beside plain code on the same device: python benchmarks/bench_gpu.py.

    --device cuda        the device; by default the accelerator of this machine, or else its processor
    --tokens 128 512     lengths of the text; by default those of the device
    --write FILE         writes the table into a file as well

Two random models are measured, so that nothing is downloaded: a BERT and a Llama. Times are medians: seconds
on an accelerator, CPU seconds on a processor. *Apart* compares the numbers with those of a copy of the model
on the processor, relative to the largest, at the shortest length; more than 0.001 ends with an error. After
eight minutes no further step begins, and the table says which were left out.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import plain
import plain_decompx
import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable

MINUTES = 8
REPEATS = 3
TOLERANCE = 1e-3
TOKEN = 7  # the predicted token that is explained
CELLS = 20  # of a patching sweep, which plain hooks try
STEPS, BATCH = 100, 512  # of SAE training
# By kind of device: lengths, layers, heads, and width of a head.
SIZES = {"cpu": ((16, 64), 2, 4, 16), "accelerator": ((128, 512, 2048), 12, 12, 64)}


@dataclass
class Subject:
    """A model on a device with a text: its ids [1, token] and their trace."""

    model: Any
    ids: torch.Tensor
    trace: Any = None

    def traced(self) -> Any:
        """Trace the text again."""
        return aw.trace(self.model, None, input_ids=self.ids[0].tolist())


@dataclass
class Step:
    """What is measured.

    Args:
        name: Its name in the table.
        ours: Returns the numbers, or None.
        plain: The same by plain code, or the passes that it needs.
        share: Share of the work that `plain` does.
        longest: Length up to which it is measured.
    """

    name: str
    ours: Callable[[Subject], Any]
    plain: Callable[[Subject], Any]
    share: float = 1.0
    longest: int = 10**9


def passed(subject: Subject) -> Any:
    """Run the model."""
    return subject.model(subject.ids)


def attentions(subject: Subject) -> list[np.ndarray]:
    """Run the model, and fetch the attention of all layers."""
    return [layer[0].cpu().numpy() for layer in subject.model(subject.ids, output_attentions=True).attentions]


def opened(subject: Subject) -> None:
    """Make an Explorer and what a notebook shows of it."""
    view = aw.Explorer(subject.traced())
    view._repr_mimebundle_()
    view.close()


def gradient(subject: Subject) -> torch.Tensor:
    """Return the gradient of a logit with respect to the embeddings."""
    with torch.enable_grad():
        embeddings = subject.model.get_input_embeddings()(subject.ids).detach().requires_grad_()
        logits = subject.model(inputs_embeds=embeddings, use_cache=False).logits
        return torch.autograd.grad(logits[0, -1, TOKEN], embeddings)[0]


def patched(subject: Subject) -> np.ndarray:
    """Patch the states before every block at every token into a text with another second token."""
    other = subject.ids[0].tolist()
    other[1] += 1
    corrupt = aw.trace(subject.model, None, input_ids=other)
    return np.asarray(aw.circuits.patch(subject.trace, corrupt, TOKEN, sites="state").raw["state"])


def patched_by_hooks(subject: Subject) -> None:
    """Run some cells of the sweep by hooks, one pass each."""
    for number in range(CELLS):

        def hook(_: Any, args: Any, token: int = number) -> Any:
            hidden = args[0].clone()
            hidden[:, token % hidden.shape[1]] = 0
            return (hidden, *args[1:])

        layers = subject.model.model.layers
        handle = layers[number % len(layers)].register_forward_pre_hook(hook)
        passed(subject)
        handle.remove()


def trained(subject: Subject) -> None:
    """Train an SAE on the states after the first block."""
    width = subject.model.config.hidden_size
    texts = torch.randint(10, 400, (64, 128), generator=torch.Generator().manual_seed(1)).tolist()
    site = "blocks.0.hook_resid_post"
    aw.SAE.train(subject.model, None, texts, site=site, d_sae=4 * width, steps=STEPS, batch_size=BATCH)


def products(subject: Subject) -> None:
    """Run the five matrix products of every training step, without the model."""
    width = subject.model.config.hidden_size
    x, a = (torch.randn(BATCH, size, device=subject.ids.device) for size in (width, 4 * width))
    weights = torch.randn(4 * width, width, device=subject.ids.device)
    for _ in range(STEPS):
        for left, right in ((x, weights.T), (a, weights), (a.T, x), (x, weights.T), (a.T, x)):
            torch.mm(left, right)


def mixing(name: str, by_hand: Callable[[Any, Any], Any], longest: int, *options: str) -> Step:
    """Return the step of a measure of context mixing, beside plain code."""
    return Step(
        ", ".join((name, *options)),
        lambda subject: getattr(aw, name)(subject.trace, *options).values,
        lambda subject: by_hand(subject.model, subject.ids),
        longest=longest,
    )


def steps_of(kind: str, layers: int, n: int) -> list[Step]:
    """Return the steps that are measured on a model of a kind, "BERT" or "Llama"."""
    if kind == "BERT":
        return [
            Step("trace", lambda subject: subject.traced() and None, passed),
            Step("one row of a head", lambda s: s.trace.attention_rows(1, [0], [n - 1]), attentions),
            Step("first picture (Explorer)", opened, attentions),
            Step("rollout", lambda subject: aw.rollout(subject.trace).values, attentions),
            mixing("attention_norm", lambda m, ids: plain.attention_norm(m, ids, "attn"), 512),
            mixing("attention_norm", lambda m, ids: plain.attention_norm(m, ids, "res_ln"), 512, "res_ln"),
            mixing("globenc", plain.globenc, 512),
            mixing("alti", plain.alti, 512),
            mixing("value_zeroing", plain.value_zeroing, 128),
            mixing("decompx", lambda m, ids: plain_decompx.decompx(m, ids, None, mix_values=True), 128),
        ]
    return [
        Step("trace", lambda subject: subject.traced() and None, passed),
        Step("lrp, beside a gradient", lambda subject: aw.lrp(subject.trace, TOKEN).values, gradient),
        Step("saliency", lambda subject: aw.saliency(subject.trace, TOKEN).values, gradient),
        Step("patching, all states", patched, patched_by_hooks, CELLS / (layers * n), longest=128),
        Step("SAE training, beside its products", trained, products, longest=128),
    ]


def subject_of(kind: str, device: str, size: tuple[Any, int, int, int], n: int) -> Subject:
    """Return a random model of a kind and a size on a device, with a random text."""
    _, layers, heads, width = size
    torch.manual_seed(0)
    options = {"vocab_size": 1000, "hidden_size": heads * width, "num_hidden_layers": layers}
    options |= {"num_attention_heads": heads, "intermediate_size": 4 * heads * width}
    if kind == "BERT":
        model: Any = BertModel(BertConfig(max_position_embeddings=4096, **options))
    else:
        model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=4096, **options))
    model = model.eval().to(device)
    model.set_attn_implementation("eager")
    ids = torch.randint(10, 400, (1, n), generator=torch.Generator().manual_seed(n)).to(device)
    return Subject(model, ids)


def seconds(work: Callable[[], Any], device: str) -> float:
    """Return the median time of a call, after one that is not counted."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    taken = []
    for _ in range(REPEATS + 1):
        start = clock()
        work()
        if device != "cpu":
            torch.accelerator.synchronize()
        taken.append(clock() - start)
    return median(taken[1:])


def apart(step: Step, subject: Subject, beside: Subject) -> str:
    """Return the difference of a step's numbers from those on the processor; "" if it has none."""
    pair = [step.ours(subject), step.ours(beside)]
    if pair[0] is None:
        return ""
    # Methods return arrays, and a trace's rows are tensors on the processor.
    here, there = (np.asarray(numbers, dtype=float) for numbers in pair)
    relative = float(np.abs(here - there).max() / np.abs(there).max())
    if not relative < TOLERANCE:
        raise SystemExit(f"{step.name} differs from the processor's numbers by {relative:.2g}")
    return f"{relative:.0e}"


@torch.no_grad()
def table(device: str, lengths: tuple[int, ...], size: tuple[Any, int, int, int]) -> list[str]:
    """Measure, and return the lines of the table; each is printed when it is known."""
    end = time.monotonic() + 60 * MINUTES
    lines = ["| model | tokens | step | plain, ms | attnwidgets, ms | times as fast | apart |"]
    lines += ["|---|---:|---|---:|---:|---:|---:|"]
    print("\n".join(lines), flush=True)
    for kind in ("BERT", "Llama"):
        for n in lengths:
            subject = subject_of(kind, device, size, n)
            beside = Subject(copy.deepcopy(subject.model).cpu(), subject.ids.cpu())
            subject.trace, beside.trace = subject.traced(), beside.traced()
            for step in steps_of(kind, size[1], n):
                if n > step.longest:
                    continue
                cells = [kind, f"{n:,}", step.name]
                if time.monotonic() > end:
                    cells += [f"not run: {MINUTES} minutes were over", "", "", ""]
                else:
                    off = apart(step, subject, beside) if n == min(lengths) else ""
                    ours = seconds(partial(step.ours, subject), device)
                    theirs = seconds(partial(step.plain, subject), device) / step.share
                    cells += [f"{theirs * 1e3:.1f}", f"{ours * 1e3:.1f}", f"{theirs / ours:.2f}", off]
                lines.append(f"| {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Print the table, and write it with `--write`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    parser.add_argument("--device", default="cpu" if accelerator is None else accelerator.type)
    parser.add_argument("--tokens", type=int, nargs="+", help="lengths of the text")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table into a file")
    options = parser.parse_args()
    size = SIZES["cpu" if options.device == "cpu" else "accelerator"]
    if options.device == "cpu":
        torch.set_num_threads(1)
    _, layers, heads, width = size
    when = f"{time.strftime('%Y-%m-%d')}, {options.device}, torch {torch.__version__}"
    heading = f"{when}; {layers} layers x {heads} heads x {width}, float32.\n"
    print(heading, flush=True)
    lines = table(options.device, tuple(options.tokens or size[0]), size)
    if options.write:
        options.write.write_text("\n".join([heading, *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
