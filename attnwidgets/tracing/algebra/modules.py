"""Norms and projections read from modules, by probing them where their attributes do not tell."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import torch
from torch import nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.offloaded_weights import loaded
from attnwidgets.tracing.recording.twin import origin, twin_of

if TYPE_CHECKING:
    from torch import Tensor

_SMALL = 1e-4  # scale of a probe at which the eps of a norm shows
# The kind of each norm: its class at that time, whether it is centred, and the offset added to its weight.
_kinds: weakref.WeakKeyDictionary[nn.Module, tuple[type, bool, int]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Norm:
    """LayerNorm or RMSNorm as gain * (x - mean) / deviation(x) + shift; RMSNorm has no mean.

    All but the deviation is linear: with the deviation of a real x held fixed, parts that sum to x are mapped
    to parts that sum to the normalised x less `shift`.

    Args:
        gain: Factor of each component [dim].
        shift: Bias [dim], or None.
        eps: Added to the variance.
        centred: Whether the mean is subtracted.
    """

    gain: Tensor
    shift: Tensor | None
    eps: float
    centred: bool

    def deviation(self, x: Tensor) -> Tensor:
        """Return sqrt(variance + eps) over the last axis [..., 1]; RMSNorm does not centre x."""
        centre = x - x.mean(-1, keepdim=True) if self.centred else x
        return torch.sqrt(centre.square().mean(-1, keepdim=True) + self.eps)

    def direct(self, parts: Tensor) -> Tensor:
        """Return gain * (parts - mean), the linear part of the norm, before the division."""
        return self.gain * (parts - parts.mean(-1, keepdim=True) if self.centred else parts)

    def __call__(self, x: Tensor) -> Tensor:
        """Return x [..., dim], normalised."""
        normed = self.direct(x) / self.deviation(x)
        return normed if self.shift is None else normed + self.shift


def is_norm(module: object) -> bool:
    """Return whether a module is a norm, judging by the name of its class or its attributes."""
    kept = ("eps", "variance_epsilon")
    named = isinstance(module, nn.Module) and "norm" in type(module).__name__.lower()
    return named or any(hasattr(module, name) for name in kept)


def read_norm(module: nn.Module, dim: int, like: Tensor) -> Norm | None:
    """Return a module's norm in the dtype and on the device of `like`; None if it does nothing.

    Whether it subtracts the mean, and whether its weight is the gain or the gain less one (Gemma, Nemotron),
    is determined by its output for one vector.
    """
    if isinstance(module, nn.Identity):
        return None
    weight, shift = loaded(module, "weight"), loaded(module, "bias")
    gain = like.new_ones(dim) if weight is None else weight.detach().to(like)
    shift = None if shift is None else shift.detach().to(like)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    kind = _kinds.get(origin(module))
    if eps is not None and kind is not None and kind[0] is type(module):
        return Norm(gain + kind[2], shift, float(eps), kind[1])
    probe = torch.linspace(-1, 2, dim, dtype=like.dtype if weight is None else weight.dtype)
    probe = probe.to(like.device)[None]
    with no_grad():
        output = module(probe).to(like)[0]
        small_output = module(_SMALL * probe).to(like)[0]
    probe = probe.to(like)[0]
    candidates = []
    for centred, offset in product((False, True), (0, 1) if weight is not None else (0,)):
        norm = Norm(gain + offset, shift, 0.0 if eps is None else float(eps), centred)
        if eps is None:
            norm = Norm(gain + offset, shift, _eps(norm, small_output, _SMALL * probe), centred)
        candidates.append((float((norm(probe) - output).norm()), norm, offset))
    _, best, offset = min(candidates, key=lambda item: item[0])
    _kinds[origin(module)] = type(module), best.centred, offset
    return best


def _eps(norm: Norm, output: Tensor, probe: Tensor) -> float:
    """Return the eps with which a norm maps `probe` to `output`, for norms without such an attribute."""
    normed = output if norm.shift is None else output - norm.shift
    deviation = (norm.direct(probe) * normed).sum() / normed.square().sum()
    return max(float(deviation.square() - norm.deviation(probe).square()[0]), 0.0)


def read_affine(module: nn.Module, inputs: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return a projection's matrix [input, output] and bias in the dtype and on the device of `like`.

    Plain layers are read; wrapped ones (adapters, quantised weights) are applied to unit vectors.
    """
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    plain = type(module) is nn.Linear or type(module).__name__ == "Conv1D"
    if plain and weight is not None and weight.device.type != "meta":
        matrix = weight.detach().to(like)
        matrix = matrix.T if type(module) is nn.Linear else matrix
        return matrix, None if bias is None else bias.detach().to(like)
    parameter = next(module.parameters(), None)
    dtype = like.dtype if parameter is None or not parameter.is_floating_point() else parameter.dtype
    with no_grad():
        shift = module(torch.zeros(1, inputs, dtype=dtype, device=like.device)).to(like)[0]
        matrix = module(torch.eye(inputs, dtype=dtype, device=like.device)).to(like) - shift
    return matrix, shift


def run(step: nn.Module | Tensor | float | None, x: Tensor) -> Tensor:
    """Return a module's output for x [token, dim], in the precision of x; a number or vector scales x.

    Weights of lower precision are widened for the call. Modules get a batch of one, as mixtures of experts
    require; of several outputs, the first counts as the states. None does nothing.
    """
    if step is None:
        return x
    if not isinstance(step, nn.Module):
        return x * (step.detach().to(x) if isinstance(step, torch.Tensor) else step)
    tensors = [*step.named_parameters(), *step.named_buffers()]
    wider = {
        name: tensor.to(x.dtype)
        for name, tensor in tensors
        if tensor.is_floating_point() and tensor.dtype != x.dtype
    }
    # On a twin, since other threads may call the step meanwhile.
    output = torch.func.functional_call(twin_of(step), wider, (x[None],)) if wider else step(x[None])
    if isinstance(output, tuple):
        output = output[0]
    return output.reshape(len(x), -1)
