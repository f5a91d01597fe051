"""The module calls of a pass that contain each attention call, with their inputs.

`Watch` stores them. A trace of a short text is recorded with its blocks watched (`WatchedPass`), so that
methods that call blocks again need no pass of their own; only the passes of the last few traces are kept.
"""

from __future__ import annotations

import copy
import weakref
from collections import UserDict, deque
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from attnwidgets.tracing.anatomy.block_log import LISTS
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from attnwidgets.tracing.recording.calls import Call, FollowedCall
    from attnwidgets.tracing.trace import Trace

HIDDEN_DIMS = 3
"""Axes of hidden states: [batch, token, width]."""

ROOM = 4 * 2**20
"""Bytes of hidden states that the watched pass of a trace may keep."""

_KEPT_PASSES = 4


@dataclass
class Invocation:
    """A call of a module: its inputs, its output, and the attention calls made in it so far."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any = None
    calls: list[int] = field(default_factory=list)


class Watch:
    """Stores the module calls that contain each attention call, and all calls of some other modules.

    Args:
        modules: Those of the model that is about to run.
        others: Modules all of whose calls are stored.
        room: Bytes of hidden states to store at most; None for no limit.
    """

    def __init__(
        self, modules: Iterable[nn.Module], others: Collection[nn.Module] = (), room: int | None = None
    ) -> None:
        self.room = room
        self.others: dict[nn.Module, list[Invocation]] = {module: [] for module in others}
        lists = [module for module in modules if isinstance(module, LISTS)]
        self.elements = {id(child) for module in lists for child in module.children()}
        self.stack: list[Invocation] = []
        self.around: list[tuple[Invocation, ...]] = []
        self.norms: list[tuple[Tensor, nn.Module]] = []
        self.values: list[Tensor] = []

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Enter a module: a forward pre-hook."""
        if self.room is not None:
            self.room -= sum(value.nbytes for value in (*args, *kwargs.values()) if is_hidden(value))
        if not self.is_whole:
            args, kwargs = (), {}
        self.stack.append(Invocation(module, _stable(args), _stable(kwargs)))

    @property
    def is_whole(self) -> bool:
        """Whether the inputs of all calls had room."""
        return self.room is None or self.room >= 0

    def after(self, module: nn.Module, _: tuple[Any, ...], __: dict[str, Any], output: Any) -> None:
        """Leave a module: a forward hook."""
        # A call that ended with an exception, which the model caught, leaves its entry behind.
        while self.stack[-1].module is not module:
            self.stack.pop()
        done = self.stack.pop()
        if module in self.others:
            self.others[module].append(done)
        if done.calls or module in self.others:
            done.output = output

    def norm(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Store the input of a norm outside all blocks: a forward pre-hook."""
        inside = any(id(invocation.module) in self.elements for invocation in self.stack)
        if not inside and args and isinstance(args[0], Tensor):
            self.norms.append((args[0], module))

    def attention(self, index: int, values: Tensor) -> None:
        """Store the module calls around an attention call, and its values."""
        for invocation in self.stack:
            invocation.calls.append(index)
        self.around.append(tuple(self.stack))
        self.values.append(values)

    def block_of(self, call: int, stack_calls: set[int], purpose: str) -> Invocation:
        """Return the block of an attention call, given all calls of its stack."""
        candidates = [outer for outer in self.around[call] if len(stack_calls.intersection(outer.calls)) == 1]
        elements = [outer for outer in candidates if id(outer.module) in self.elements]
        if elements:
            return elements[0]
        # No module list: the outermost module that is repeated, or the module around a single attention.
        if len(stack_calls) > 1 and candidates:
            return candidates[0]
        if len(candidates) > 2:  # noqa: PLR2004 - a model, a block and its attention
            return candidates[-2]
        raise UnsupportedModelError(
            f"{purpose} is not available: no module of the model calls attention {call} and no other of its "
            "stack, so it has no block"
        )

    def norm_after(self, output: Tensor) -> nn.Module | None:
        """Return the norm outside all blocks that read `output`, recognised by its memory."""
        key = (output.data_ptr(), output.shape)
        return next((module for read, module in self.norms if (read.data_ptr(), read.shape) == key), None)


@contextmanager
def watching(
    modules: Collection[nn.Module], others: Collection[nn.Module] = (), *, room: int | None = None
) -> Iterator[Watch]:
    """Watch the modules of a borrowed model, and `others` of them; hooks are removed on exit.

    With `room` (bytes of hidden states to store at most), only elements of module lists are watched.
    """
    watch = Watch(modules, others, room)
    outside: set[nn.Module] = set()
    waiting = [*modules][:1]  # the model
    while waiting:
        module = waiting.pop()
        if module not in outside and id(module) not in watch.elements:
            outside.add(module)
            waiting += [part for part in module._modules.values() if part is not None]  # noqa: SLF001
    with ExitStack() as exits:
        for module in modules:
            if any(part is not None for part in module._modules.values()):  # noqa: SLF001 - `children()` makes a set
                if room is not None and id(module) not in watch.elements:
                    continue
                # Before the user's hooks, which run again when the block is called again.
                handle = module.register_forward_pre_hook(watch.before, prepend=True, with_kwargs=True)
                exits.callback(handle.remove)
                exits.callback(module.register_forward_hook(watch.after, with_kwargs=True).remove)
            elif module in outside and "norm" in type(module).__name__.lower():
                exits.callback(module.register_forward_pre_hook(watch.norm).remove)
        yield watch


class WatchedPass(NamedTuple):
    """A pass whose blocks were watched: the twin that ran, its attention calls and its module calls."""

    model: nn.Module
    calls: Sequence[Call | FollowedCall]
    watch: Watch


_watched: weakref.WeakKeyDictionary[Trace, WatchedPass] = weakref.WeakKeyDictionary()
_latest: deque[weakref.ref[Trace]] = deque()


def keep_pass(trace: Trace, watched: WatchedPass) -> None:
    """Keep the watched pass of a trace until some others are kept: a thousand would take gigabytes."""
    _watched[trace] = watched
    _latest.append(weakref.ref(trace))
    while len(_latest) > _KEPT_PASSES:
        oldest = _latest.popleft()()
        if oldest is not None:
            _watched.pop(oldest, None)


def kept_pass(trace: Trace) -> WatchedPass | None:
    """Return the watched pass in which a trace was recorded, if it is kept."""
    return _watched.get(trace)


def is_hidden(value: Any) -> bool:
    """Return whether a value has the shape of hidden states [batch, token, width]."""
    return isinstance(value, Tensor) and value.dim() == HIDDEN_DIMS and value.is_floating_point()


def is_cache(value: Any) -> bool:
    """Return whether a value is a key-value cache of transformers."""
    return hasattr(value, "batch_repeat_interleave")


def _stable(value: Any) -> Any:
    """Return inputs safe from later in-place operations of the model."""
    if is_hidden(value):
        return value.clone()
    if isinstance(value, (dict, UserDict)):  # a UserDict holds keys and values that blocks share
        items = {name: _stable(item) for name, item in value.items()}
        return type(value)(items) if isinstance(value, UserDict) else items
    if type(value) in (tuple, list):
        return type(value)(_stable(item) for item in value)
    return copy.deepcopy(value) if is_cache(value) else value
