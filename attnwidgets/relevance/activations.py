"""Activation modules treated as one function, for those that are written in several operations."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnwidgets._gradients import no_grad
from attnwidgets.relevance.backward import Activation, pass_relevance

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMED = re.compile("gelu|silu|swish|mish|activation", re.IGNORECASE)


def activation_modules(model: nn.Module) -> list[nn.Module]:
    """Return the modules that compute one activation with f(0) = 0 in several operations.

    These are the activations of transformers, and modules without children or parameters whose class is named
    like one. Those of torch are single operations anyway.
    """
    from transformers.activations import ACT2CLS

    classes: tuple[Any, ...] = tuple(
        {kind[0] if isinstance(kind, tuple) else kind for kind in ACT2CLS.values()}
    )

    def looks_like_activation(module: nn.Module) -> bool:
        simple = next(module.children(), None) is None and next(module.parameters(), None) is None
        return simple and _NAMED.search(type(module).__name__) is not None

    return [
        module
        for module in model.modules()
        if not type(module).__module__.startswith("torch.")
        and (isinstance(module, classes) or looks_like_activation(module))
        and _zero_at_zero(module)
    ]


def _zero_at_zero(module: nn.Module) -> bool:
    like = next((tensor for tensor in (*module.parameters(), *module.buffers())), torch.zeros(()))
    zero = torch.zeros(1, 1, device=like.device, dtype=like.dtype)
    try:
        with no_grad():
            # `forward` instead of a call, which would run the user's hooks.
            output = module.forward(zero)
    except (TypeError, ValueError, RuntimeError):
        return False
    return isinstance(output, Tensor) and output.shape == zero.shape and not bool(output.any())


@contextmanager
def single_activations(model: nn.Module) -> Iterator[None]:
    """Make each activation module of a borrowed model pass relevance on as one function."""
    with ExitStack() as stack:
        for module in activation_modules(model):
            unit = _Unit()
            stack.callback(module.register_forward_pre_hook(unit.before).remove)
            stack.callback(module.register_forward_hook(unit.after, prepend=True).remove)
        yield


class _Unit:
    """Hooks of one activation module that hide its operations and make it one function."""

    def __init__(self) -> None:
        self._given: list[Tensor] = []

    def before(self, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Pass the module a constant: a forward pre-hook."""
        if len(args) != 1 or not isinstance(args[0], Tensor) or not args[0].requires_grad:
            return None
        self._given.append(args[0])
        return (args[0].detach(),)

    def after(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        """Make the module's output a function of its input: a forward hook."""
        if not self._given:
            return None
        x = self._given.pop()
        if not isinstance(output, Tensor) or output.shape != x.shape:
            return None
        y = output.clone() if output.data_ptr() == x.data_ptr() else output
        return pass_relevance(Activation, x, lambda _: y, bounded=True)
