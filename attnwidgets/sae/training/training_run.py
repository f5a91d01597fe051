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
from attnwidgets._gradients import no_grad
from attnwidgets._progress import Cancelled, progress
from attnwidgets.sae.check import Measures, measure
from attnwidgets.sae.dependencies import require_same
from attnwidgets.sae.sae import SAE
from attnwidgets.sae.training.history import History, Live
from attnwidgets.sae.training.objective import Loss, Weights, lecture_loss, topk_loss

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from attnwidgets.sae.training.harvest import States

_WARMUP, _DECAY = 0.1, 0.2  # shares of the steps
_CLIP = 1.0
_FIRST_NORM = 0.1  # initial norm of directions, for the lecture loss
_MEASURED = 1024  # held-out tokens used for measurements during training
_MEASUREMENTS = 20
_SILENT = 25_600  # tokens without firing after which the auxiliary loss trains a topk feature
STATE = "training.safetensors"
"""Name of the checkpoint file."""


class TrainingDivergedError(RuntimeError):
    """The loss became NaN or infinite.

    Attributes:
        sae: The SAE at the last measurement before.
        step: The step at which training diverged.
    """

    def __init__(self, message: str, sae: SAE, step: int) -> None:
        super().__init__(message)
        self.sae, self.step = sae, step


@dataclass(frozen=True)
class Plan:
    """Options of a training; see `train`."""

    d_sae: int
    l1: float | None
    k: int | None
    steps: int
    batch_size: int
    lr: float
    seed: int

    def check(self) -> None:
        """Raise ValueError for invalid options."""
        if self.l1 is not None and self.k is not None:
            raise ValueError("pass l1 (the lecture penalty) or k (topk), not both.")
        if self.k is not None and not 1 <= self.k <= self.d_sae:
            raise ValueError(f"k must be from 1 to d_sae={self.d_sae}, not {self.k}.")
        if self.l1 is not None and not self.l1 >= 0:
            raise ValueError(f"l1 must not be negative: {self.l1}.")
        for name in ("d_sae", "steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, not {self.lr}.")

    def rate(self, step: int) -> float:
        """Return the learning rate at a step."""
        up = (step + 1) / max(1.0, _WARMUP * self.steps)
        down = (self.steps - step) / max(1.0, _DECAY * self.steps)
        return self.lr * min(1.0, up, down)

    def penalty(self, step: int) -> float:
        """Return the weight of the penalty at a step."""
        return (self.l1 or 0.0) * min(1.0, (step + 1) / max(1.0, _WARMUP * self.steps))


@dataclass
class Run:
    """A training run: weights, optimizer and measurements.

    Args:
        plan: The options.
        states: The states to train on.
        device: Device of the training.
        about: Everything the states depend on; see `attnwidgets.sae.dependencies`.
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

    def train(self, folder: Path | None) -> bool:
        """Train to the end; return False if interrupted before.

        Args:
            folder: Folder for checkpoints, or None.

        Raises:
            TrainingDivergedError: If the loss becomes NaN.
        """
        every = max(1, self.plan.steps // _MEASUREMENTS)
        live = Live(self.plan.steps)
        try:
            for _ in progress(range(self.step, self.plan.steps), "training the SAE"):
                loss = self._advance()
                if not loss.total < float("inf"):
                    self._diverged("the loss")
                if self.step % every == 0 or self.step == self.plan.steps:
                    if not self._finite():  # the loss was finite, the step after it was not
                        self._diverged("a weight")
                    self._measure(loss, live)
                    self._save(folder)
        except (KeyboardInterrupt, Cancelled):
            if not self._finite():
                self._restore_good()
            self.history.note = f"stopped at step {self.step} of {self.plan.steps}"
            warnings.warn(
                f"training was {self.history.note}; the SAE is the one trained so far.",
                UserWarning,
                stacklevel=4,
            )
            return False
        return True

    def _advance(self) -> Loss:
        """Run a training step."""
        plan, weights = self.plan, self.weights
        x = self.states.batch(self.step, plan.batch_size, plan.seed).to(self.device).mul_(self.scale)
        with no_grad():
            if plan.k is None:
                loss = lecture_loss(weights, x, plan.penalty(self.step))
            else:
                loss = topk_loss(weights, x, plan.k, self.silent >= _SILENT)
                self._project_gradient()
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

    def _project_gradient(self) -> None:
        """Remove the part of the decoder's gradient that only changes the length of directions."""
        grad, decoder = self.weights.decoder.grad, self.weights.decoder
        if grad is not None:
            grad.sub_((grad * decoder).sum(-1, keepdim=True) * decoder)

    def _measure(self, loss: Loss, live: Live) -> None:
        measures = measure(self.plain(), self.states.held_out[:_MEASURED].to(self.device) * self.scale)
        row = {"step": self.step, "loss": loss.total, "mse": loss.mse, "penalty": loss.penalty}
        self.history.rows.append(row | _measures(measures, self.plan.d_sae))
        live.show(self.history)
        self.good = [tensor.clone() for tensor in self.weights.all]
        self.good_step = self.step

    def _finite(self) -> bool:
        return all(bool(torch.isfinite(tensor).all()) for tensor in self.weights.all)

    def _restore_good(self) -> None:
        """Restore the last weights whose loss was finite."""
        for tensor, good in zip(self.weights.all, self.good, strict=True):
            tensor.copy_(good)

    def _diverged(self, quantity: str) -> None:
        self._restore_good()
        self.history.note = f"{quantity} became NaN at step {self.step} of {self.plan.steps}"
        raise TrainingDivergedError(
            f"{self.history.note}; error.sae is the SAE of step {self.good_step}. Lower lr.",
            self.plain().fold_input_scale(self.scale),
            self.step,
        )

    def plain(self) -> SAE:
        """Return the current SAE of scaled states."""
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
        """Return the current SAE of unscaled states, measured on all held-out states."""
        sae = self.plain().fold_input_scale(self.scale)
        held_out = self.states.held_out.to(self.device)
        self.history.rows.append({"step": self.step} | _measures(measure(sae, held_out), self.plan.d_sae))
        sae.history = self.history
        sae.maxima = _maxima(sae, held_out)
        return sae

    # Checkpoints.

    @property
    def _about(self) -> dict[str, Any]:
        """Everything the training depends on except the texts."""
        return {**self.about, "options": {**self.about["options"], **vars(self.plan)}}

    def _save(self, folder: Path | None) -> None:
        if folder is None:
            return
        tensors = {f"weights.{i}": tensor for i, tensor in enumerate(self.weights.all)}
        for i, tensor in enumerate(self.weights.all):
            for name, value in self.optimizer.state[tensor].items():
                tensors[f"adam.{i}.{name}"] = value
        tensors["silent"] = self.silent
        described = {"about": self._about, "step": self.step, "history": self.history.to_dict()}
        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        try:
            write_bytes(folder / STATE, dump_tensors(stored, metadata={"attnwidgets": json.dumps(described)}))
        except OSError as error:
            warnings.warn(
                f"the checkpoint of step {self.step} could not be written to {str(folder)!r} ({error}); "
                "training continues, and the previous checkpoint is kept.",
                UserWarning,
                stacklevel=5,
            )

    def resume(self, folder: Path | None) -> None:
        """Resume from the checkpoint in a folder, if it has any.

        Raises:
            ValueError: If it belongs to something else.
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


def _measures(measures: Measures, d_sae: int) -> dict[str, float]:
    dead = measures.dead / d_sae
    return {"l0": measures.l0, "explained_variance": measures.explained_variance, "dead": dead}


@no_grad()
def _maxima(sae: SAE, states: Tensor) -> Tensor:
    """Return the largest activation of every feature on states [d_sae]."""
    maxima = torch.zeros(sae.d_sae, device=states.device)
    for part in states.split(max(1, 2**24 // sae.d_sae)):
        maxima = torch.maximum(maxima, sae.encode(part).amax(0))
    return maxima
