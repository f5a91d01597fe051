"""Heads of kernels that mix tokens without a softmax: their outputs set to zero."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.mixers.calls import HEAD_AXES, MODULE_HEAD_AXES, handling, watch_kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor, nn


@contextmanager
def silenced(
    model: nn.Module,
    modules: Mapping[str, Sequence[int]],
    own: Callable[[], bool],
    applied: Callable[[], None],
) -> Iterator[None]:
    """Set the outputs of heads to zero before what follows the kernel (a gate, a norm over heads).

    Args:
        model: The model.
        modules: By names of mixing modules, their heads.
        own: Whether the call that a hook sees is to be changed.
        applied: Called at every change.
    """
    watch_kernels(model)
    with ExitStack() as exits:
        for name, heads in modules.items():
            silence = _Silence(list(heads), own, applied)
            module = model.get_submodule(name)
            exits.callback(module.register_forward_pre_hook(silence.begin).remove)
            # What begins last ends first.
            end = module.register_forward_hook(silence.end, prepend=True, always_call=True)
            exits.callback(end.remove)
            for part in module.modules():
                ends = [end for end in MODULE_HEAD_AXES if type(part).__name__.endswith(end)]
                if ends:
                    child, axis = MODULE_HEAD_AXES[ends[0]]
                    _attach(exits, part, child, silence, axis)
        yield


def _attach(exits: ExitStack, part: nn.Module, child: str, silence: _Silence, axis: int) -> None:
    """Silence what a module returns, or what its child reads."""
    if not child:
        exits.callback(part.register_forward_hook(lambda *call: silence.changed(call[-1], axis)).remove)
        return
    count = part.num_attention_heads

    def enter(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        by_head = args[0].unflatten(axis, (count, -1))
        return (silence.changed(by_head, axis).flatten(axis, axis + 1), *args[1:])

    exits.callback(part.get_submodule(child).register_forward_pre_hook(enter).remove)


class _Silence(threading.local):
    """Sets heads to zero in the calls of kernels that one module makes, in each thread that runs it."""

    def __init__(self, heads: list[int], own: Callable[[], bool], applied: Callable[[], None]) -> None:
        super().__init__()
        self._heads, self._own, self._applied = heads, own, applied
        self._calls: list[ExitStack] = []

    def begin(self, *_: Any) -> None:
        """Watch the kernels that a module calls: a forward pre-hook."""
        call = ExitStack()
        if self._own():
            call.enter_context(handling(self._handle, steps=True))
        self._calls.append(call)

    def end(self, *_: Any) -> None:
        """Stop watching: a forward hook."""
        if self._calls:
            self._calls.pop().close()

    def _handle(self, name: str, go_on: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        output = go_on(**arguments)
        return self.changed(output, HEAD_AXES[name]) if name in HEAD_AXES else output

    def changed(self, output: Any, axis: int) -> Any:
        """Return a kernel's output with its heads, along an axis, set to zero."""
        if not self._own():
            return output
        self._applied()
        if isinstance(output, tuple):
            return (self._zeroed(output[0], axis), *output[1:])
        return self._zeroed(output, axis)

    def _zeroed(self, states: Tensor, axis: int) -> Tensor:
        return states.index_fill(axis, states.new_tensor(self._heads).long(), 0)
