"""Changes of a user's model that act only on calls from the thread and task that made them."""

from __future__ import annotations

import functools
import threading
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.model_state import modules_of
from attnwidgets.tracing.recording.borrow import COMPILED, IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

# The open blocks of this thread and task. Tasks that it starts inherit them; threads do not, unless they run
# in a copy of the context (`contextvars.copy_context().run`).
_current: ContextVar[frozenset[object]] = ContextVar("current", default=frozenset())
# The implementations that a config answers with, by its id; the config lives at least as long.
_switched: dict[int, tuple[tuple[Callable[[], bool], str], ...]] = {}
# The wrappers of a module's method, and the attribute they replace, by the module's id and the method's name.
_wrapped: dict[tuple[int, str], tuple[tuple[Callable[[], bool], Wrap], ...]] = {}
_before: dict[tuple[int, str], Any] = {}
_MISSING = object()
# On a method that `own_method` replaced: whether nothing had replaced it before.
_SCOPED = "_attnwidgets_scoped"
_guard = threading.Lock()


@contextmanager
def own_calls() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether it is called from this thread and task, until the block ends."""
    mark = object()
    _current.set(_current.get() | {mark})
    try:
        yield lambda: mark in _current.get()
    finally:
        _current.set(_current.get() - {mark})


@contextmanager
def own_implementation(configs: Sequence[Any], name: str, is_own: Callable[[], bool]) -> Iterator[None]:
    """Let configs name another attention implementation only to callers for whom `is_own` is true.

    Until the block ends, a config's class is replaced by a class of the same name, which answers by caller:
    at no moment does another thread's pass see the changed implementation.
    """
    entry = (is_own, name)
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
                _switched[id(config)] = tuple(
                    active for active in _switched[id(config)] if active is not entry
                )
                if not _switched[id(config)]:
                    del _switched[id(config)]
                    config.__class__ = getattr(type(config), _PLAIN)


_PLAIN = "_attnwidgets_plain_class"
_CLASSES: dict[type[Any], type[Any]] = {}


class _ByCaller:
    """Base of a config's class while its implementation is switched for some callers."""

    def __init_subclass__(cls) -> None:
        """Skip the steps that transformers takes for new classes of configs: this class is not new."""

    def __reduce_ex__(self, _: Any) -> Any:
        # Copies and pickles are of the plain class.
        return _made, (getattr(type(self), _PLAIN), vars(self).copy())


def _made(kind: type[Any], state: dict[str, Any]) -> Any:
    config: Any = object.__new__(kind)
    vars(config).update(state)
    return config


def _by_caller(kind: type[Any]) -> type[Any]:
    """Return the class that replaces a config's class; every call returns the same."""
    if kind in _CLASSES:
        return _CLASSES[kind]

    def read(config: Any) -> Any:
        for is_own, name in reversed(_switched.get(id(config), ())):
            if is_own():
                return name
        if IMPLEMENTATION not in vars(config):  # while transformers makes another config of the class
            raise AttributeError(IMPLEMENTATION)
        return vars(config)[IMPLEMENTATION]

    def write(config: Any, name: Any) -> None:
        vars(config)[IMPLEMENTATION] = name

    names: dict[str, Any] = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    names |= {_PLAIN: kind, IMPLEMENTATION: property(read, write)}
    _CLASSES[kind] = type(kind.__name__, (_ByCaller, kind), names)
    return _CLASSES[kind]


@contextmanager
def own_method(module: nn.Module, name: str, wrap: Wrap, is_own: Callable[[], bool]) -> Iterator[None]:
    """Replace a module's method for callers for whom `is_own` is true.

    Args:
        module: The module; the method is replaced on it alone, not on its class.
        name: The method's name.
        wrap: Takes the method, as other wrappers have left it, and returns its replacement.
        is_own: Returns whether the current call is by such a caller.
    """
    key, entry = (id(module), name), (is_own, wrap)
    with _guard:
        if key not in _wrapped:
            _before[key] = vars(module).get(name, _MISSING)
            vars(module)[name] = _dispatched(key, getattr(module, name))
        _wrapped[key] = (*_wrapped.get(key, ()), entry)
    try:
        yield
    finally:
        with _guard:
            _wrapped[key] = tuple(active for active in _wrapped[key] if active is not entry)
            if not _wrapped[key]:
                del _wrapped[key]
                del vars(module)[name]
                before = _before.pop(key)
                vars(module).update({} if before is _MISSING else {name: before})


def _dispatched(key: tuple[int, str], plain: Callable[..., Any]) -> Callable[..., Any]:
    # A twin's copy of this function closes over the twin's method.
    @functools.wraps(plain)
    def dispatched(*args: Any, **kwargs: Any) -> Any:
        method = plain
        for is_own, wrap in _wrapped.get(key, ()):
            method = wrap(method) if is_own() else method
        return method(*args, **kwargs)

    vars(dispatched)[_SCOPED] = _before[key] is _MISSING
    return dispatched


def is_replaced(module: nn.Module) -> bool:
    """Return whether a module's `forward` was replaced on the module itself.

    A replacement by `own_method` does not count: this package only adds noise to embeddings with it, which
    changes no operation.
    """
    forward = vars(module).get("forward")
    return forward is not None and not getattr(forward, _SCOPED, False)


@contextmanager
def own_uncompiled(model: nn.Module, is_own: Callable[[], bool]) -> Iterator[None]:
    """Run modules uncompiled for callers for whom `is_own` is true: graphs ignore hooks added later."""
    with ExitStack() as exits:
        for module in modules_of(model):
            if getattr(module, COMPILED, None) is not None:
                plain = module._call_impl  # noqa: SLF001 - torch calls it for modules that are not compiled
                exits.enter_context(own_method(module, COMPILED, functools.partial(_instead, plain), is_own))
        yield


def _instead(plain: Callable[..., Any], _: Callable[..., Any]) -> Callable[..., Any]:
    return plain
