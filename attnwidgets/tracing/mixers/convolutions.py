"""Short convolutions in front of kernels: how a token's states reach the positions after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.mixers.mix import Convolution, quotient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor


@dataclass
class Convolved:
    """A call of a short convolution: `Convolution` with its output [batch, position, channel]."""

    convolution: Convolution
    output: Tensor


def floating(inputs: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the floating tensors among the inputs of a module; the first are the states that it reads."""
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            yield value


def function_convolution(arguments: Mapping[str, Any], output: Tensor) -> list[Convolved]:
    """Return a convolution of each channel [batch, channel, position]; [] if its activation is unknown."""
    activation = arguments.get("activation")
    if activation not in (None, "silu", "swish"):
        return []
    states, output = (arguments["hidden_states"].transpose(1, 2), output.transpose(1, 2))
    called = Convolution(states, arguments["weight"], arguments.get("bias"), None, activation is not None)
    return [Convolved(called, output)]


def module_convolution(module: nn.Conv1d, args: tuple[Any, ...]) -> list[Convolved]:
    """Return the call of a convolution that is a module: causal, if it was padded on the left."""
    (width,), padding = module.kernel_size, module.padding
    if module.groups != module.in_channels or padding != (width - 1,) or not args:
        return []
    states = args[0]
    with no_grad():
        output = nn.functional.conv1d(
            states, module.weight, module.bias, padding=width - 1, groups=module.groups
        )[..., : states.shape[-1]]
    convolution = Convolution(states.transpose(1, 2), module.weight[:, 0], module.bias, None, is_gated=False)
    return [Convolved(convolution, output.transpose(1, 2))]


def last_positions(convolved: Convolved, count: int) -> Convolved:
    """Return the last positions of a convolution, in front of which a short text may be filled up."""
    if convolved.output.shape[1] <= count:
        return convolved
    states = convolved.convolution.states[:, -count:]
    return Convolved(replace(convolved.convolution, states=states), convolved.output[:, -count:])


def fitting(convolutions: Sequence[Convolved], values: Tensor) -> Convolution | None:
    """Return the convolution that made the kernel's values, which may be some of its channels, or None.

    Args:
        convolutions: Those of the same module.
        values: Values of the kernel [batch, position, channel].
    """
    width = values.shape[-1]
    for convolved in map(partial(last_positions, count=values.shape[1]), convolutions):
        output = convolved.output
        # Padding is zeroed after the convolution.
        is_kept = (values != 0).any(-1)
        starts = (output[is_kept] == values[is_kept][:, :1]).all(0).nonzero().flatten().tolist()
        for start in starts:
            chosen = slice(start, start + width)
            part = output[..., chosen]
            if part.shape == values.shape and torch.equal(part[is_kept], values[is_kept]):
                whole = convolved.convolution
                bias = None if whole.bias is None else whole.bias[chosen]
                return replace(
                    whole, states=whole.states[..., chosen], weight=whole.weight[chosen], bias=bias
                )
    if len(convolutions) == 1 and convolutions[0].output.shape == values.shape:
        convolved = convolutions[0]
        if not convolved.convolution.is_gated:
            return replace(convolved.convolution, act=quotient(values, convolved.output))
    return None


def shifted(module: nn.Module, states: Tensor) -> Tensor | None:
    """Return the parts of RWKV's tokens in their value and the next [2, batch, token, channel], or None."""
    share, project = (getattr(module, name, None) for name in ("time_mix_value", "value"))
    if share is None or project is None:
        return None
    with no_grad():
        return torch.stack([project(states * share), project(states * (1 - share))])
