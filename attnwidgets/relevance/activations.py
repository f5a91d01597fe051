"""Activation modules as single functions: some are written in operations that are not to be taken apart."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnwidgets.relevance.backward import Activation, passed

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMED = re.compile("gelu|silu|swish|mish|activation", re.IGNORECASE)


def activation_modules(model: nn.Module) -> list[nn.Module]:
    """Return the modules that are one activation written in several operations, f(0) = 0.

    Those that transformers offers by name, and modules without parts whose class is named like one. The ones
    of torch are single operations anyway.
    """
    from transformers.activations import ACT2CLS

    classes: tuple[Any, ...] = tuple(
        {kind[0] if isinstance(kind, tuple) else kind for kind in ACT2CLS.values()}
    )
    found = []
    for module in model.modules():
        if type(module).__module__.startswith("torch."):
            continue
        alone = next(module.children(), None) is None and next(module.parameters(), None) is None
        if isinstance(module, classes) or (alone and _NAMED.search(type(module).__name__)):
            found.append(module)
    return [module for module in found if _zero_at_zero(module)]


def _zero_at_zero(module: nn.Module) -> bool:
    like = next((tensor for tensor in (*module.parameters(), *module.buffers())), torch.zeros(()))
    nothing = torch.zeros(1, 1, device=like.device, dtype=like.dtype)
    try:
        with torch.no_grad():
            # Not called: its hooks are the user's.
            found = module.forward(nothing)
    except (TypeError, ValueError, RuntimeError):
        return False
    return isinstance(found, Tensor) and found.shape == nothing.shape and not bool(found.any())


@contextmanager
def single_activations(model: nn.Module) -> Iterator[None]:
    """Let every activation module of a borrowed model pass relevance on as one function."""
    with ExitStack() as stack:
        for module in activation_modules(model):
            unit = _Unit()
            stack.callback(module.register_forward_pre_hook(unit.before).remove)
            stack.callback(module.register_forward_hook(unit.after, prepend=True).remove)
        yield


class _Unit:
    """One activation module: inside it nothing is live, behind it the whole is one function."""

    def __init__(self) -> None:
        self._given: list[Tensor] = []

    def before(self, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Hand the module a constant: a forward pre-hook."""
        if len(args) != 1 or not isinstance(args[0], Tensor) or not args[0].requires_grad:
            return None
        self._given.append(args[0])
        return (args[0].detach(),)

    def after(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        """Make what the module returned a function of what it was given: a forward hook."""
        if not self._given:
            return None
        x = self._given.pop()
        if not isinstance(output, Tensor) or output.shape != x.shape:
            return None
        y = output.clone() if output.data_ptr() == x.data_ptr() else output
        return passed(Activation, x, lambda _: y, bounded=True)
