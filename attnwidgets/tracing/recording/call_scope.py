"""Whose call it is: changes of a user's model act on calls from the thread and task that made them, only."""

from __future__ import annotations

import functools
import threading
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.recording.twin import COMPILED, IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

# What this thread and task is in the middle of. Tasks that it starts inherit it; threads do not, unless they
# are run in a copy of the context (`contextvars.copy_context().run`).
_current: ContextVar[frozenset[object]] = ContextVar("current", default=frozenset())
# Which changes answer for a config, by its id; the config lives at least as long.
_switched: dict[int, tuple[tuple[Callable[[], bool], str], ...]] = {}
# What wraps a method of a module, and what stood on the module before, by the module's id and the name.
_wrapped: dict[tuple[int, str], tuple[tuple[Callable[[], bool], Wrap], ...]] = {}
_before: dict[tuple[int, str], Any] = {}
_MISSING = object()
_guard = threading.Lock()


@contextmanager
def own_calls() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether it is called from this thread and task, until the block ends."""
    mark = object()
    _current.set(_current.get() | {mark})
    try:
        yield lambda: mark in _current.get()
    finally:
        _current.set(_current.get() - {mark})


@contextmanager
def own_implementation(configs: Sequence[Any], name: str, own: Callable[[], bool]) -> Iterator[None]:
    """Let configs name another attention implementation to whoever `own` is true for, and nobody else.

    A config's class is replaced meanwhile by one of the same name, which answers by who asks: there is no
    moment at which another thread's pass meets the other implementation.
    """
    entry = (own, name)
    with _guard:
        for config in configs:
            _switched[id(config)] = (*_switched.get(id(config), ()), entry)
            if not hasattr(type(config), _PLAIN):
                config.__class__ = _by_caller(type(config))
    try:
        yield
    finally:
        with _guard:
            for config in configs:
                _switched[id(config)] = tuple(one for one in _switched[id(config)] if one is not entry)
                if not _switched[id(config)]:
                    del _switched[id(config)]
                    config.__class__ = getattr(type(config), _PLAIN)


_PLAIN = "_attnwidgets_plain_class"
_CLASSES: dict[type[Any], type[Any]] = {}


class _ByCaller:
    """What a config's class is, and answers, while somebody has switched it for their own calls."""

    def __init_subclass__(cls) -> None:
        """Skip what transformers does to every class of configs: this is the same one."""

    def __reduce_ex__(self, _: Any) -> Any:
        # Copies and pickles are of the plain class.
        return _made, (getattr(type(self), _PLAIN), vars(self).copy())


def _made(kind: type[Any], state: dict[str, Any]) -> Any:
    config: Any = object.__new__(kind)
    vars(config).update(state)
    return config


def _by_caller(kind: type[Any]) -> type[Any]:
    """Return the class that stands in for a config's, made once."""
    if kind in _CLASSES:
        return _CLASSES[kind]

    def read(config: Any) -> Any:
        for own, name in reversed(_switched.get(id(config), ())):
            if own():
                return name
        return vars(config)[IMPLEMENTATION]

    def write(config: Any, name: Any) -> None:
        vars(config)[IMPLEMENTATION] = name

    names: dict[str, Any] = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    names |= {_PLAIN: kind, IMPLEMENTATION: property(read, write)}
    _CLASSES[kind] = type(kind.__name__, (_ByCaller, kind), names)
    return _CLASSES[kind]


@contextmanager
def own_method(module: nn.Module, name: str, wrap: Wrap, own: Callable[[], bool]) -> Iterator[None]:
    """Let a module's method be another one to whoever `own` is true for.

    Args:
        module: The module; on it alone the method is replaced, not on its class.
        name: The method's name.
        wrap: Given the method, with what others have made of it, returns what is called instead.
        own: Whose calls these are.
    """
    key, entry = (id(module), name), (own, wrap)
    with _guard:
        if key not in _wrapped:
            _before[key] = vars(module).get(name, _MISSING)
            vars(module)[name] = _dispatched(key, getattr(module, name))
        _wrapped[key] = (*_wrapped.get(key, ()), entry)
    try:
        yield
    finally:
        with _guard:
            _wrapped[key] = tuple(other for other in _wrapped[key] if other is not entry)
            if not _wrapped[key]:
                del _wrapped[key]
                del vars(module)[name]
                before = _before.pop(key)
                vars(module).update({} if before is _MISSING else {name: before})


def _dispatched(key: tuple[int, str], plain: Callable[..., Any]) -> Callable[..., Any]:
    # A twin's copy of this closes over the twin's own method.
    @functools.wraps(plain)
    def dispatched(*args: Any, **kwargs: Any) -> Any:
        found = plain
        for own, wrap in _wrapped.get(key, ()):
            found = wrap(found) if own() else found
        return found(*args, **kwargs)

    return dispatched


@contextmanager
def own_uncompiled(model: nn.Module, own: Callable[[], bool]) -> Iterator[None]:
    """Run a model's compiled modules uncompiled for whoever `own` is true for: graphs know no later hook."""
    with ExitStack() as exits:
        for module in model.modules():
            if getattr(module, COMPILED, None) is not None:
                plain = module._call_impl  # noqa: SLF001 - what torch calls where nothing was compiled
                exits.enter_context(own_method(module, COMPILED, functools.partial(_instead, plain), own))
        yield


def _instead(found: Callable[..., Any], _: Callable[..., Any]) -> Callable[..., Any]:
    return found
