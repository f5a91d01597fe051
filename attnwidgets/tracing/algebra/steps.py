"""The steps of feed-forward layers and output heads: affine maps, scales, activations, gates and norms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.algebra.modules import Norm, is_norm, read_affine, read_norm
from attnwidgets.tracing.unsupported import UnsupportedModelError

Function = Callable[[Tensor], Tensor]


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
# What a step may be given as: a module, an elementwise function, a vector or number that scales.
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


# Tried from the top: one that names more modules stands before one that names fewer of the same.
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
    function = FUNCTIONS[feed.act[1:]] if feed.act.startswith("=") else _held(getattr(module, feed.act))
    if not feed.gate:
        yield from (up, Pointwise(function))
    elif feed.gate == feed.up:
        gate, up = _halves(up)
        yield Gated(gate, function, up)
    else:
        yield Gated(Affine(*read_affine(getattr(module, feed.gate), width, like)), function, up)
    if feed.down:
        yield Affine(*read_affine(getattr(module, feed.down), up.matrix.shape[1], like))


def _held(function: Function) -> Function:
    """Return an activation whose own parameters (xIELU) do not require gradients."""
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
