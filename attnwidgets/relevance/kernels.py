"""Kernels that mix tokens without a softmax, as wholes: relevance passes their values alone.

A kernel is linear in its values. Everything else that it reads (decays, gates, queries and keys) counts as
a constant, as attention weights do under CP-LRP; the kernel's own gradient by its values is then its matrix,
transposed, whatever it consists of and whether torch or a fused implementation computes it. An activation or
a gate that a kernel applies as well is applied outside of it, under the rules of such products.

Source: Rezaei Jafari et al. 2024, MambaLRP, section 4; Ali et al. 2022, section 4, for attention.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnwidgets.relevance.affine import run_with_bias
from attnwidgets.relevance.settings import constant
from attnwidgets.tracing.mixers.calls import (
    CONVOLUTION,
    METHODS,
    MODULE_VALUES,
    SPLIT_VALUES,
    VALUES,
    handling,
    watch_kernels,
)
from attnwidgets.tracing.mixers.mix import quotient
from attnwidgets.tracing.model_state import modules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from attnwidgets.relevance.settings import Settings

_SILU = ("silu", "swish")


@contextmanager
def whole_kernels(model: nn.Module, settings: Settings) -> Iterator[None]:
    """Let relevance pass the kernels of a borrowed model as wholes.

    Args:
        model: A borrowed model: methods of its modules are replaced until the `with` block ends.
        settings: The settings of the rules, which have to be in force while the model runs.
    """
    watch_kernels(modules_of(model))
    wholes = _Wholes(settings)
    with ExitStack() as exits:
        for module in modules_of(model):
            name = type(module).__name__
            if name.endswith(SPLIT_VALUES):
                _replace_forward(exits, module, _with_split_values)
            elif name.endswith(tuple(MODULE_VALUES)):
                _replace_forward(exits, module, _of_values)
            elif any(hasattr(module, method) for method in METHODS):
                _replace_forward(exits, module, wholes.gated)
        exits.enter_context(handling(wholes.handle))
        yield


class _Wholes:
    """The handler of kernels' calls in one run under the rules."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # The inputs of the running modules with a recurrence of their own.
        self._inputs: dict[nn.Module, Tensor] = {}

    def handle(self, name: str, go_on: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Run a watched call: a handler."""
        if name == CONVOLUTION:
            return self._convolved(go_on, dict(arguments))
        values = VALUES[name]
        fixed = {key: value if key == values else constant(value) for key, value in arguments.items()}
        if name in METHODS and (states := self._inputs.get(arguments["self"])) is not None:
            # The gates in front of the recurrence multiply the input of its module, channel by channel.
            fixed[values] = states * quotient(fixed[values], states.detach())
        if self._settings.bias == "drop" and "g" in fixed:
            # log(1 + exp(x)) without its constant may be negative: states that should decay would grow
            # beyond float32 (Kimi's). However they decay, sums of relevances are the same.
            fixed["g"] = fixed["g"].clamp(max=0)
        gate = arguments.get("z")
        if gate is not None:
            fixed["z"] = None
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - has no public name
            output = go_on(**fixed)
        if gate is None:
            return output
        mixed, *rest = output if isinstance(output, tuple) else (output,)
        gated = mixed * nn.functional.silu(gate)
        return (gated, *rest) if isinstance(output, tuple) else gated

    def _convolved(self, go_on: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Convolve, which is linear; the activation is a constant factor of its input, and no gate."""
        activation, bias = arguments.get("activation"), arguments.get("bias")
        if activation is not None and activation not in _SILU:
            # Step by step, each under its rule.
            return go_on(**arguments)

        def convolve(bias: Tensor | None) -> Tensor:
            output: Tensor = go_on(**(arguments | {"bias": bias, "activation": None}))
            return output

        with torch._C.DisableTorchFunction():  # noqa: SLF001
            if bias is None:
                output = convolve(None)
            else:
                output = run_with_bias(self._settings, convolve, (bias,), {}, (None,))
            return output if activation is None else output * torch.sigmoid(output.detach())

    def gated(self, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return the forward method of a module that gates its input and hands it to a recurrence."""

        def run(states: Tensor, *args: Any, **kwargs: Any) -> Any:
            self._inputs[module] = states
            try:
                return forward(states.detach(), *args, **kwargs)
            finally:
                del self._inputs[module]

        return run


def _of_values(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward method of a module that is a kernel, with all but its values constant."""
    values = next(values for end, values in MODULE_VALUES.items() if type(module).__name__.endswith(end))
    signature = inspect.signature(forward)

    def run(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        fixed = {name: value if name == values else constant(value) for name, value in arguments.items()}
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            return forward(**fixed)

    return run


def _with_split_values(_: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward method of a module that splits its values off, with the other parts constant."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with _LastOfSplit():
            return forward(*args, **kwargs)

    return run


class _LastOfSplit(TorchFunctionMode):
    """A context in which relevance passes the last part of a split tensor alone.

    Parts detached before they are joined with others would count as live again.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation."""
        output = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") != "split":
            return output
        *others, values = output
        return (*map(constant, others), values)


def _replace_forward(
    exits: ExitStack,
    module: nn.Module,
    changed: Callable[[nn.Module, Callable[..., Any]], Callable[..., Any]],
) -> None:
    """Replace the forward method of a borrowed module until `exits` closes."""
    before = vars(module).get("forward")
    module.forward = changed(module, module.forward)  # its twin's
    if before is None:
        exits.callback(delattr, module, "forward")
    else:
        exits.callback(setattr, module, "forward", before)
