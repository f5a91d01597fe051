"""The steps of feed-forward layers and output heads, as read from modules, or by probing them.

`read_steps` turns modules into `Affine`, `Scale`, `Pointwise`, `Gated` and `Norm`. Weights of plain layers
are read, wrapped layers are applied to unit vectors, and norms to a probe that shows their kind. Callers
verify the steps on recorded numbers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.recording.borrow import origin, twin_of
from attnwidgets.tracing.unsupported import UnsupportedModelError

_SMALL = 1e-4  # scale of a probe at which the eps of a norm shows
# The kind of each norm: its class at that time, whether it is centred, and the offset added to its weight.
_kinds: weakref.WeakKeyDictionary[nn.Module, tuple[type, bool, int]] = weakref.WeakKeyDictionary()

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Norm:
    """LayerNorm or RMSNorm as gain * (x - mean) / deviation(x) + shift; RMSNorm has no mean.

    All but the deviation is linear: with the deviation of a real x fixed, parts that sum to x are mapped
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

    def before(self, matrix: Tensor) -> Tensor:
        """Return the matrix [dim, n] of `direct` followed by `matrix`; many parts need not be copied."""
        scaled = self.gain[:, None] * matrix
        return scaled - scaled.mean(0) if self.centred else scaled

    def __call__(self, x: Tensor) -> Tensor:
        """Return x [..., dim], normalised."""
        normed = self.direct(x) / self.deviation(x)
        return normed if self.shift is None else normed + self.shift


def is_norm(module: object) -> bool:
    """Return whether a module is a norm, judging by the name of its class or its attributes."""
    eps_names = ("eps", "variance_epsilon")
    named = isinstance(module, nn.Module) and "norm" in type(module).__name__.lower()
    return named or any(hasattr(module, name) for name in eps_names)


def read_norm(module: nn.Module, dim: int, like: Tensor) -> Norm | None:
    """Return a module's norm in the dtype and on the device of `like`; None if it does nothing.

    Whether it subtracts the mean, and whether its weight is the gain or the gain less 1 (Gemma, Nemotron),
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

    Plain layers are read; wrapped layers (adapters, quantised weights) are applied to unit vectors.
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

    Weights of lower precision are widened for the call. Modules get a batch of 1, as mixtures of experts
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


@dataclass(frozen=True)
class Affine:
    """x matrix + bias.

    Args:
        matrix: [input, output].
        bias: [output], or None.
    """

    matrix: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """Return x matrix + bias [..., output] for x [..., input]."""
        return x @ self.matrix if self.bias is None else torch.addmm(self.bias, x, self.matrix)


@dataclass(frozen=True)
class Scale:
    """x * factor, with a number or a vector as the factor."""

    factor: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Return x [..., dim], scaled."""
        return x * self.factor


@dataclass(frozen=True)
class Pointwise:
    """An elementwise function."""

    function: Function

    def __call__(self, x: Tensor) -> Tensor:
        """Return the function of x."""
        return self.function(x)


@dataclass(frozen=True)
class Gated:
    """function(gate(x)) * up(x)."""

    gate: Affine
    function: Function
    up: Affine

    def __call__(self, x: Tensor) -> Tensor:
        """Return the product for x [..., input]."""
        return self.function(self.gate(x)) * self.up(x)


Step = Affine | Scale | Pointwise | Gated | Norm

# A step before it is read: a module, an elementwise function, a vector or number that scales.
Part = nn.Module | Tensor | float | Function | None


@dataclass(frozen=True)
class Feed:
    """The parts of a feed-forward module: down(act(up(x))), or down(act(gate(x)) * up(x)).

    Args:
        family: Readable name.
        up: Projection to the hidden layer.
        act: The activation; "=" and a name for a function without a module.
        down: Projection back; "" if the module has none.
        gate: Projection before the activation of a gated layer; equal to `up` if one projection computes
            both, the activated half first.
    """

    family: str
    up: str
    act: str
    down: str
    gate: str = ""


# Tried from the top: an entry that names more modules comes before those that name fewer of the same.
FEEDS: tuple[Feed, ...] = (
    Feed("Llama, Mistral, Qwen, Gemma, OLMo, Cohere", "up_proj", "act_fn", "down_proj", gate="gate_proj"),
    Feed("Phi-3", "gate_up_proj", "activation_fn", "down_proj", gate="gate_up_proj"),
    Feed("ModernBERT", "Wi", "act", "Wo", gate="Wi"),
    Feed("Nemotron, Apertus", "up_proj", "act_fn", "down_proj"),
    Feed("T5 1.1, Flan-T5", "wi_1", "act", "wo", gate="wi_0"),
    Feed("T5", "wi", "act", "wo"),
    Feed("GPT-2, StarCoder 2", "c_fc", "act", "c_proj"),
    Feed("GPT-NeoX", "dense_h_to_4h", "act", "dense_4h_to_h"),
    Feed("Phi, ViT, DINOv2, CLIP, SigLIP", "fc1", "activation_fn", "fc2"),
    Feed("ViT, DINOv2", "fc1", "activation", "fc2"),
    Feed("DistilBERT", "lin1", "activation", "lin2"),
    Feed("wav2vec 2.0", "intermediate_dense", "intermediate_act_fn", "output_dense"),
    Feed("ESM", "dense", "=gelu", ""),
)

# Activations that models call as functions.
FUNCTIONS: dict[str, Function] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
}


def apply_steps(steps: Iterable[Step], state: Tensor) -> Tensor:
    """Return a state [..., dim] after some steps."""
    for step in steps:
        state = step(state)
    return state


def read_steps(parts: Iterable[Part], width: int, like: Tensor) -> tuple[Step, ...]:
    """Return the steps that a sequence of modules computes.

    The caller has to verify on numbers that they compute nothing else.

    Args:
        parts: Modules, elementwise functions, vectors or numbers that scale; None does nothing.
        width: Size of the first input.
        like: A tensor whose dtype and device the parameters are converted to.

    Raises:
        UnsupportedModelError: If a composite module is unknown, or does something between its linear layers;
            the message names its class.
    """
    steps: list[Step] = []
    for part in parts:
        for step in _read(part, width, like):
            steps.append(step)
            if isinstance(step, (Affine, Gated)):
                matrix = step.matrix if isinstance(step, Affine) else step.up.matrix
                if matrix.shape[0] != width:
                    raise UnsupportedModelError(
                        f"{type(part).__name__} is not described: {width} numbers come to a linear layer "
                        f"that reads {matrix.shape[0]}."
                    )
                width = matrix.shape[1]
    return tuple(steps)


def _read(module: Part, width: int, like: Tensor) -> Iterator[Step]:
    if module is None or isinstance(module, (nn.Identity, nn.Dropout)):
        return
    if isinstance(module, (Tensor, float, int)):
        yield Scale(torch.as_tensor(module, dtype=like.dtype, device=like.device).detach())
    elif not isinstance(module, nn.Module):
        yield Pointwise(module)
    elif is_norm(module):
        norm = read_norm(module, width, like)
        if norm is not None:
            yield norm
    elif next(module.parameters(), None) is None:
        yield Pointwise(module)
    elif all(parameter.dim() <= 1 for parameter in module.parameters()):
        with no_grad():
            yield Scale(module(like.new_ones(1, width)).to(like)[0])
    else:
        feed = next((feed for feed in FEEDS if _fits(module, feed)), None)
        if feed is not None:
            yield from _open(module, feed, width, like)
        elif getattr(module, "weight", None) is None:
            raise UnsupportedModelError(
                f"{type(module).__name__} is not described: it is neither a linear layer, norm or activation "
                "nor a known feed-forward layer."
            )
        else:
            yield Affine(*read_affine(module, width, like))


def _fits(module: nn.Module, feed: Feed) -> bool:
    names = (feed.up, feed.act, feed.down, feed.gate)
    return all(hasattr(module, name) for name in names if name and not name.startswith("="))


def _open(module: nn.Module, feed: Feed, width: int, like: Tensor) -> Iterator[Step]:
    up = Affine(*read_affine(getattr(module, feed.up), width, like))
    function = FUNCTIONS[feed.act[1:]] if feed.act.startswith("=") else _detached(getattr(module, feed.act))
    if not feed.gate:
        yield from (up, Pointwise(function))
    elif feed.gate == feed.up:
        gate, up = _halves(up)
        yield Gated(gate, function, up)
    else:
        yield Gated(Affine(*read_affine(getattr(module, feed.gate), width, like)), function, up)
    if feed.down:
        yield Affine(*read_affine(getattr(module, feed.down), up.matrix.shape[1], like))


def _detached(function: Function) -> Function:
    """Return an activation whose parameters (xIELU) do not require gradients."""
    if not isinstance(function, nn.Module) or next(function.parameters(), None) is None:
        return function
    parameters = {name: parameter.detach() for name, parameter in function.named_parameters()}

    def without_gradient(x: Tensor) -> Tensor:
        return torch.func.functional_call(function, parameters, (x,))

    return without_gradient


def _halves(both: Affine) -> tuple[Affine, Affine]:
    half = both.matrix.shape[1] // 2
    biases = (None, None) if both.bias is None else (both.bias[:half], both.bias[half:])
    return Affine(both.matrix[:, :half], biases[0]), Affine(both.matrix[:, half:], biases[1])


def loaded(module: nn.Module, name: str) -> Any:
    """Return a module's attribute, None if it has none; an offloaded weight is read.

    Raises:
        ValueError: If a weight is on the meta device, without numbers, and is not offloaded.
    """
    value = getattr(module, name, None)
    if not isinstance(value, torch.Tensor) or not value.is_meta:
        return value
    if hasattr(module, "_hf_hook"):
        from accelerate.utils import align_module_device

        # On a twin, since others may run the module meanwhile.
        twin = twin_of(module)
        with align_module_device(twin):
            value = getattr(twin, name)
    if value.is_meta:
        raise ValueError(
            f"{type(module).__name__}.{name} is on the meta device and has no numbers: load the model's "
            "weights."
        )
    return value
