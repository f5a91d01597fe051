"""Records the modules that mix tokens while a model runs, with what they read, and the blocks around them.

A mixing module is the innermost one that calls a kernel (or convolution) and returns the output of a linear
projection; what lies between kernel and projection is read off as a factor (`Mix`).
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.mixers.calls import (
    CONVOLUTION,
    KernelCall,
    handling,
    matrix_memory,
    read_call,
    watch_kernels,
)
from attnwidgets.tracing.mixers.kernels import Identity, Joined, LightningAttention, TimeMix
from attnwidgets.tracing.mixers.mix import Convolution, Mix, quotient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor


@dataclass
class _Convolved:
    """A call of a short convolution: `Convolution` with its output [batch, position, channel]."""

    convolution: Convolution
    output: Tensor


@dataclass
class _Part:
    """A finished call of a module: what it was given, the first states among that, and what it returned."""

    module: nn.Module
    inputs: tuple[Any, ...]
    states: Tensor
    output: Tensor


@dataclass
class _Frame:
    """A running module: what it read, and the calls of parts in it that no module has claimed yet."""

    module: nn.Module
    path: str
    inputs: tuple[Any, ...]
    kernels: list[KernelCall] = field(default_factory=list)
    convolutions: list[_Convolved] = field(default_factory=list)
    # What its own parts read and returned, by their names.
    parts: dict[str, _Part] = field(default_factory=dict)


class MixerLog:
    """Logs the calls of mixing modules in a pass.

    Attributes:
        mixes: By path of the module, its calls in order.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.has_kernels = watch_kernels(model) or any(_module_kernel(part) for part in model.modules())
        self.mixes: dict[str, list[Mix]] = {}
        self._frames: list[_Frame] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Log the mixing modules that run until the `with` block ends; costs nothing where there are none."""
        if not self.has_kernels:
            yield
            return
        paths = {id(module): name for name, module in self._model.named_modules()}
        with ExitStack() as exits:
            for module in self._model.modules():
                path = paths[id(module)]
                enter = module.register_forward_pre_hook(
                    _entering(self, path), prepend=True, with_kwargs=True
                )
                exits.callback(enter.remove)
                exits.callback(module.register_forward_hook(self._leave, with_kwargs=True).remove)
            exits.enter_context(handling(self._handle))
            yield

    def enter(self, module: nn.Module, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note that a module begins to run."""
        self._frames.append(_Frame(module, path, (*args, *kwargs.values())))

    def _leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        # A call that ended with an exception, which the model caught, leaves its frame behind.
        while self._frames and self._frames[-1].module is not module:
            self._frames.pop()
        if not self._frames:
            return
        frame = self._frames.pop()
        output = output[0] if isinstance(output, (tuple, list)) and output else output
        if not isinstance(output, torch.Tensor):
            return
        if isinstance(module, nn.Conv1d):
            frame.convolutions += _module_convolution(module, args)
        elif read_module := _module_kernel(module):
            frame.kernels.append(read_module(frame, kwargs, output))
        outer = self._frames[-1] if self._frames else None
        mix = _mix_of(frame, output)
        if mix is not None:
            self.mixes.setdefault(frame.path, []).append(mix)
        elif outer is not None:
            outer.kernels += frame.kernels
            outer.convolutions += frame.convolutions
        states = next(filter(_is_floating, frame.inputs), None)
        if outer is not None and states is not None:
            outer.parts[path_end(frame.path)] = _Part(module, frame.inputs, states, output)

    def _handle(self, name: str, go_on: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """See a watched call: a handler."""
        output = go_on(**arguments)
        if self._frames:
            frame = self._frames[-1]
            if name == CONVOLUTION:
                frame.convolutions += _convolution(arguments, output)
            else:
                frame.kernels.append(read_call(name, arguments, output))
        return output


def _entering(log: MixerLog, path: str) -> Callable[..., None]:
    return lambda module, args, kwargs: log.enter(module, path, args, kwargs)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def path_end(path: str) -> str:
    """Return the last name of a module's path."""
    return path.rpartition(".")[2]


def _convolution(arguments: Mapping[str, Any], output: Tensor) -> list[_Convolved]:
    """Return a convolution of each channel [batch, channel, position]; [] if its activation is unknown."""
    activation = arguments.get("activation")
    if activation not in (None, "silu", "swish"):
        return []
    states, output = (arguments["hidden_states"].transpose(1, 2), output.transpose(1, 2))
    made = Convolution(states, arguments["weight"], arguments.get("bias"), None, activation is not None)
    return [_Convolved(made, output)]


def _module_convolution(module: nn.Conv1d, args: tuple[Any, ...]) -> list[_Convolved]:
    """Return the call of a convolution that is a module: causal, if it was padded on the left."""
    (width,), padding = module.kernel_size, module.padding
    if module.groups != module.in_channels or padding != (width - 1,) or not args:
        return []
    states = args[0]
    with no_grad():
        output = nn.functional.conv1d(
            states, module.weight, module.bias, padding=width - 1, groups=module.groups
        )[..., : states.shape[-1]]
    made = Convolution(states.transpose(1, 2), module.weight[:, 0], module.bias, None, is_gated=False)
    return [_Convolved(made, output.transpose(1, 2))]


def _lightning(frame: _Frame, _: Mapping[str, Any], __: Tensor) -> KernelCall:
    """Return the kernel of lightning attention, which is no function: from its projection and its norm."""
    module: Any = frame.module
    heads = module.num_attention_heads
    states = module.act_fn(frame.parts["qkv_proj"].output).unflatten(-1, (heads, -1))
    query, key, value = states.chunk(3, -1)
    mixed = frame.parts["norm"].states
    # Padding is masked after the activation.
    kept = (mixed != 0).any(-1, keepdim=True)[..., None]
    kernel = LightningAttention(query, key * kept, module.slope_rate.flatten())
    return KernelCall(kernel, (value * kept).flatten(2), mixed)


def _memory(frame: _Frame, kwargs: Mapping[str, Any], output: Tensor) -> KernelCall:
    module: Any = frame.module
    return matrix_memory(kwargs, output, module.config.eps)


_MODULES = {"LightningAttention": _lightning, "xLSTMBackend": _memory}


def _module_kernel(module: nn.Module) -> Callable[[_Frame, Mapping[str, Any], Tensor], KernelCall] | None:
    """Return what reads the kernel of a module whose own code is the kernel; None for any other."""
    name = type(module).__name__
    return next((read for end, read in _MODULES.items() if name.endswith(end)), None)


def _mix_of(frame: _Frame, output: Tensor) -> Mix | None:
    """Return the call of a mixing module; None if it calls no kernel, or returns no projection's output."""
    if not (frame.kernels or frame.convolutions):
        return None
    projection = next(
        (
            part
            for part in frame.parts.values()
            if part.output.data_ptr() == output.data_ptr()
            and part.output.shape == output.shape
            and _is_linear(part.module)
        ),
        None,
    )
    if projection is None:
        return None
    call = _joined(frame)
    if call.values.shape != projection.states.shape:
        return None
    convolution = _fitting(frame, call) if frame.kernels else frame.convolutions[-1].convolution
    shifted = _shifted(frame) if isinstance(call.kernel, TimeMix) else None
    return Mix(
        frame.path,
        call.kernel,
        call.values,
        call.output,
        call.gate,
        convolution,
        shifted,
        projection.states,
        projection.module,
        output,
        is_centred=any(_is_centring(part, call.output) for part in frame.parts.values()),
    )


def _is_centring(part: _Part, mixed: Tensor) -> bool:
    """Return whether a part reads what a kernel mixed, and subtracts its mean: a constant changes nothing."""
    if len(part.inputs) > 1 or not part.states.numel() == part.output.numel() == mixed.numel():
        return False
    if not torch.equal(part.states.flatten(), mixed.flatten()):
        return False
    with no_grad():
        # Without the hooks of the pass.
        shifted = part.module.forward(part.states + part.states.abs().max())
    return bool(torch.allclose(shifted, part.output, rtol=1e-3, atol=1e-3 * float(part.output.abs().max())))


def _is_linear(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == len(("output", "input"))


def _joined(frame: _Frame) -> KernelCall:
    """Return the kernels of a module as one: those of heads side by side, or none but a convolution."""
    if not frame.kernels:
        states = frame.convolutions[-1].output
        return KernelCall(Identity(states), states, states)
    if len(frame.kernels) == 1:
        return frame.kernels[0]
    calls = frame.kernels
    gates = [call.gate for call in calls if call.gate is not None]
    gate = torch.cat(gates, -1) if len(gates) == len(calls) else None
    values, outputs = (
        torch.cat([getattr(call, name) for call in calls], -1) for name in ("values", "output")
    )
    return KernelCall(Joined(tuple(call.kernel for call in calls)), values, outputs, gate)


def _fitting(frame: _Frame, call: KernelCall) -> Convolution | None:
    """Return the convolution that made the kernel's values, which may be some of its channels, or None."""
    values = call.values
    width = values.shape[-1]
    for convolved in frame.convolutions:
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
    if len(frame.convolutions) == 1 and frame.convolutions[0].output.shape == values.shape:
        convolved = frame.convolutions[0]
        if not convolved.convolution.is_gated:
            return replace(convolved.convolution, act=quotient(values, convolved.output))
    return None


def _shifted(frame: _Frame) -> Tensor | None:
    """Return what RWKV's tokens hand to their own and the next value [2, batch, token, channel], or None."""
    share, project = (getattr(frame.module, name, None) for name in ("time_mix_value", "value"))
    if share is None or project is None:
        return None
    states = next(filter(_is_floating, frame.inputs))
    with no_grad():
        return torch.stack([project(states * share), project(states * (1 - share))])
