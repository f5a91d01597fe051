"""A training run: weights, optimizer and measurements, step by step, with checkpoints."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from safetensors.torch import save as dump_tensors

from attnwidgets._files import write_bytes
from attnwidgets._progress import Cancelled, progress
from attnwidgets.sae.dependencies import require_same
from attnwidgets.sae.measures import Measures, measure
from attnwidgets.sae.sae import SAE
from attnwidgets.sae.training.history import History, Live
from attnwidgets.sae.training.objective import Loss, Weights, lecture_loss, topk_loss

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from attnwidgets.sae.training.harvest import States

_WARM, _FALL = 0.1, 0.2  # shares of the steps
_CLIP = 1.0
_FIRST_NORM = 0.1  # of directions, in the lecture's loss
_MEASURED = 1024  # tokens that are measured on while training goes on
_MEASUREMENTS = 20
_SILENT = 25_600  # tokens without firing, after which a topk feature is asked to explain what is missed
STATE = "training.safetensors"
"""Name of the file of a checkpoint."""


class TrainingDivergedError(RuntimeError):
    """The loss became NaN or infinite.

    Attributes:
        sae: The SAE of the last measurement before that.
        step: The step at which it did.
    """

    def __init__(self, message: str, sae: SAE, step: int) -> None:
        super().__init__(message)
        self.sae, self.step = sae, step


@dataclass(frozen=True)
class Plan:
    """What is asked for; see `train`."""

    d_sae: int
    l1: float | None
    k: int | None
    steps: int
    batch_size: int
    lr: float
    seed: int

    def check(self) -> None:
        """Raise ValueError for what cannot be."""
        if self.l1 is not None and self.k is not None:
            raise ValueError("give l1 (the lecture's penalty) or k (topk), not both.")
        if self.k is not None and not 1 <= self.k <= self.d_sae:
            raise ValueError(f"k must be from 1 to d_sae, which is {self.d_sae}; not {self.k}.")
        if self.l1 is not None and not self.l1 >= 0:
            raise ValueError(f"l1 must not be negative, and it is {self.l1}.")
        for name in ("d_sae", "steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, not {self.lr}.")

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        up = (step + 1) / max(1.0, _WARM * self.steps)
        down = (self.steps - step) / max(1.0, _FALL * self.steps)
        return self.lr * min(1.0, up, down)

    def penalty(self, step: int) -> float:
        """Return the penalty's weight of a step."""
        return (self.l1 or 0.0) * min(1.0, (step + 1) / max(1.0, _WARM * self.steps))


@dataclass
class Run:
    """A training run: weights, optimizer, and what was measured.

    Args:
        plan: What is asked for.
        states: What it trains on.
        device: Where.
        about: What the states depend on; see `attnwidgets.sae.dependencies`.
    """

    plan: Plan
    states: States
    device: torch.device
    about: Mapping[str, Any]
    step: int = 0
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        plan, states = self.plan, self.states
        self.scale = states.width**0.5 / states.norm
        generator = torch.Generator().manual_seed(plan.seed)
        directions = torch.randn(plan.d_sae, states.width, generator=generator)
        directions *= (1.0 if plan.k else _FIRST_NORM) / directions.norm(dim=-1, keepdim=True)
        self.weights = Weights(
            directions.clone().to(self.device),
            torch.zeros(plan.d_sae, device=self.device),
            directions.to(self.device),
            (states.mean * self.scale).float().to(self.device),
        )
        fused = self.device.type in ("cpu", "cuda")
        self.optimizer = torch.optim.Adam(self.weights.all, lr=plan.lr, betas=(0.9, 0.999), fused=fused)
        self.silent = torch.zeros(plan.d_sae, dtype=torch.int64, device=self.device)
        self.maxima = torch.zeros(plan.d_sae, device=self.device)
        self.history.options = vars(plan) | {
            "tokens": states.tokens,
            "held_out": len(states.held_out),
            "scale": self.scale,
        }
        self.good = [tensor.clone() for tensor in self.weights.all]
        self.good_step = 0

    def go(self, folder: Path | None) -> bool:
        """Train to the end, and return whether it was reached.

        Raises:
            TrainingDivergedError: Where the loss becomes NaN.
        """
        every = max(1, self.plan.steps // _MEASUREMENTS)
        live = Live(self.plan.steps)
        try:
            for _ in progress(range(self.step, self.plan.steps), "training the SAE"):
                loss = self._advance()
                if not loss.total < float("inf"):
                    self._diverged("the loss")
                if self.step % every == 0 or self.step == self.plan.steps:
                    if not self._finite():  # after a step from a loss that was finite still
                        self._diverged("a weight")
                    self._measured(loss, live)
                    self._save(folder)
        except (KeyboardInterrupt, Cancelled):
            if not self._finite():
                self._go_back()
            self.history.note = f"stopped at step {self.step} of {self.plan.steps}"
            warnings.warn(
                f"training was {self.history.note}; the SAE is what was reached by then.",
                UserWarning,
                stacklevel=4,
            )
            return False
        return True

    def _advance(self) -> Loss:
        """Take one step."""
        plan, weights = self.plan, self.weights
        x = self.states.batch(self.step, plan.batch_size, plan.seed).to(self.device).mul_(self.scale)
        with torch.no_grad():
            if plan.k is None:
                loss = lecture_loss(weights, x, plan.penalty(self.step))
            else:
                loss = topk_loss(weights, x, plan.k, self.silent >= _SILENT)
                self._keep_length()
            self.silent += plan.batch_size
            self.silent[loss.active] = 0
            if loss.total < float("inf"):
                torch.nn.utils.clip_grad_norm_(weights.all, _CLIP)
                for group in self.optimizer.param_groups:
                    group["lr"] = plan.rate(self.step)
                self.optimizer.step()
                if plan.k is not None:
                    weights.decoder.div_(weights.decoder.norm(dim=-1, keepdim=True))
        self.step += 1
        return loss

    def _keep_length(self) -> None:
        """Take from the decoder's gradient what would only make directions longer."""
        grad, decoder = self.weights.decoder.grad, self.weights.decoder
        if grad is not None:
            grad.sub_((grad * decoder).sum(-1, keepdim=True) * decoder)

    def _measured(self, loss: Loss, live: Live) -> None:
        found = measure(self.plain(), self.states.held_out[:_MEASURED].to(self.device) * self.scale)
        row = {"step": self.step, "loss": loss.total, "mse": loss.mse, "penalty": loss.penalty}
        self.history.rows.append(row | _measures(found, self.plan.d_sae))
        live.show(self.history)
        self.good = [tensor.clone() for tensor in self.weights.all]
        self.good_step = self.step

    def _finite(self) -> bool:
        return all(bool(torch.isfinite(tensor).all()) for tensor in self.weights.all)

    def _go_back(self) -> None:
        """Take the weights that were last known to be good."""
        for tensor, good in zip(self.weights.all, self.good, strict=True):
            tensor.copy_(good)

    def _diverged(self, what: str) -> None:
        self._go_back()
        self.history.note = f"{what} became NaN at step {self.step} of {self.plan.steps}"
        raise TrainingDivergedError(
            f"{self.history.note}; error.sae is the SAE of step {self.good_step}. Lower lr.",
            self.plain().fold_input_scale(self.scale),
            self.step,
        )

    def plain(self) -> SAE:
        """Return the SAE of scaled states, as it is now."""
        w = self.weights
        return SAE(
            w.encoder.T,
            w.decoder,
            w.b_dec,
            w.b_enc,
            architecture="standard" if self.plan.k is None else "topk",
            k=self.plan.k,
        )

    def sae(self) -> SAE:
        """Return the SAE of states as they are, measured on all that was held out."""
        made = self.plain().fold_input_scale(self.scale)
        held_out = self.states.held_out.to(self.device)
        self.history.rows.append({"step": self.step} | _measures(measure(made, held_out), self.plan.d_sae))
        made.history = self.history
        made.maxima = _maxima(made, held_out)
        return made

    # Checkpoints.

    @property
    def _about(self) -> dict[str, Any]:
        """What training depends on beside the texts."""
        return {**self.about, "options": {**self.about["options"], **vars(self.plan)}}

    def _save(self, folder: Path | None) -> None:
        if folder is None:
            return
        tensors = {f"weights.{i}": tensor for i, tensor in enumerate(self.weights.all)}
        for i, tensor in enumerate(self.weights.all):
            for name, value in self.optimizer.state[tensor].items():
                tensors[f"adam.{i}.{name}"] = value
        tensors["silent"] = self.silent
        described = {
            "about": self._about,
            "step": self.step,
            "history": self.history.to_dict(),
        }
        kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        try:
            write_bytes(folder / STATE, dump_tensors(kept, metadata={"attnwidgets": json.dumps(described)}))
        except OSError as error:
            warnings.warn(
                f"the checkpoint of step {self.step} could not be written to {str(folder)!r} ({error}); "
                "training goes on, and the one before it stays.",
                UserWarning,
                stacklevel=5,
            )

    def resume(self, folder: Path | None) -> None:
        """Go on from a checkpoint, where there is one.

        Raises:
            ValueError: Where it is of something else.
        """
        if folder is None or not (folder / STATE).is_file():
            return
        with safe_open(folder / STATE, framework="pt") as file:
            described = json.loads(file.metadata()["attnwidgets"])
        require_same(folder, described["about"], self._about)
        tensors = load_file(folder / STATE)
        for i, tensor in enumerate(self.weights.all):
            tensor.copy_(tensors[f"weights.{i}"])
            names = [name.rpartition(".")[2] for name in tensors if name.startswith(f"adam.{i}.")]
            self.optimizer.state[tensor] = {
                name: tensors[f"adam.{i}.{name}"].to(self.device) for name in names
            }
        self.silent.copy_(tensors["silent"])
        self.step = int(described["step"])
        self.history = History.from_dict(described["history"])
        self.good, self.good_step = [tensor.clone() for tensor in self.weights.all], self.step


def _measures(found: Measures, d_sae: int) -> dict[str, float]:
    return {
        "l0": found.l0,
        "explained_variance": found.explained_variance,
        "dead": found.dead / d_sae,
    }


@torch.no_grad()
def _maxima(sae: SAE, states: Tensor) -> Tensor:
    """Return the largest activation of every feature on states."""
    found = torch.zeros(sae.d_sae, device=states.device)
    for part in states.split(max(1, 2**24 // sae.d_sae)):
        found = torch.maximum(found, sae.encode(part).amax(0))
    return found
