"""Watch one pass of a model: which calls of modules each attention call lies in, and what they were given."""

from __future__ import annotations

import copy
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDDEN_DIMS = 3
"""Axes of hidden states: [batch, token, width]."""

_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


@dataclass
class Invocation:
    """A call of a module: its inputs, and the attention calls made in it so far."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any = None
    calls: list[int] = field(default_factory=list)


class Watch:
    """Which calls of modules each attention call lies in."""

    def __init__(self, model: nn.Module) -> None:
        lists = [module for module in model.modules() if isinstance(module, _LISTS)]
        self.elements = {id(child) for module in lists for child in module.children()}
        self.stack: list[Invocation] = []
        self.around: list[tuple[Invocation, ...]] = []
        self.norms: list[tuple[Tensor, nn.Module]] = []
        self.values: list[Tensor] = []

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Enter a module: a forward pre-hook."""
        self.stack.append(Invocation(module, _kept(args), _kept(kwargs)))

    def after(self, module: nn.Module, _: tuple[Any, ...], __: dict[str, Any], output: Any) -> None:
        """Leave a module: a forward hook."""
        # A call that was cut short by an exception which the model caught leaves its entry behind.
        while self.stack[-1].module is not module:
            self.stack.pop()
        done = self.stack.pop()
        if done.calls:
            done.output = output

    def norm(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Keep what a norm outside all blocks reads: a forward pre-hook."""
        inside = any(id(invocation.module) in self.elements for invocation in self.stack)
        if not inside and args and isinstance(args[0], Tensor):
            self.norms.append((args[0], module))

    def attention(self, index: int, values: Tensor) -> None:
        """Keep where an attention call was made, and its values."""
        for invocation in self.stack:
            invocation.calls.append(index)
        self.around.append(tuple(self.stack))
        self.values.append(values)

    def block_of(self, call: int, own: set[int], purpose: str) -> Invocation:
        """Return the block of an attention call, given all calls of its stack."""
        alone = [one for one in self.around[call] if len(own.intersection(one.calls)) == 1]
        elements = [one for one in alone if id(one.module) in self.elements]
        if elements:
            return elements[0]
        # No list of layers: the outermost module that is repeated, or what surrounds the one attention.
        if len(own) > 1 and alone:
            return alone[0]
        if len(alone) > 2:  # noqa: PLR2004 - a model, a block and its attention
            return alone[-2]
        raise UnsupportedModelError(
            f"{purpose} is not available: no part of the model calls attention {call} and no other of its "
            "stack, so that there is no block to look at"
        )

    def norm_after(self, output: Tensor) -> nn.Module | None:
        """Return the norm outside all blocks that read `output`, the same memory."""
        where = (output.data_ptr(), output.shape)
        return next((module for read, module in self.norms if (read.data_ptr(), read.shape) == where), None)


@contextmanager
def watching(model: nn.Module) -> Iterator[Watch]:
    """Watch a borrowed model; the hooks go when the block ends."""
    watch = Watch(model)
    with ExitStack() as exits:
        for module in model.modules():
            if next(module.children(), None) is not None:
                # Before the user's own hooks, which run again when the block is called again.
                handle = module.register_forward_pre_hook(watch.before, prepend=True, with_kwargs=True)
                exits.callback(handle.remove)
                exits.callback(module.register_forward_hook(watch.after, with_kwargs=True).remove)
            elif "norm" in type(module).__name__.lower():
                exits.callback(module.register_forward_pre_hook(watch.norm).remove)
        yield watch


def is_hidden(value: Any) -> bool:
    """Return whether a value has the form of hidden states [batch, token, width]."""
    return isinstance(value, Tensor) and value.dim() == HIDDEN_DIMS and value.is_floating_point()


def is_cache(value: Any) -> bool:
    """Return whether a value is one of transformers' caches of keys and values."""
    return hasattr(value, "batch_repeat_interleave")


def _kept(value: Any) -> Any:
    """Return inputs that later in-place operations of the model cannot change."""
    if is_hidden(value):
        return value.clone()
    if isinstance(value, dict):
        return {name: _kept(item) for name, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_kept(item) for item in value)
    return copy.deepcopy(value) if is_cache(value) else value
