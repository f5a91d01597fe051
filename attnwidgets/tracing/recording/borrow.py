"""Borrow a model: use it for a while and hand it back exactly as it was."""

from __future__ import annotations

import logging
import threading
import weakref
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

_IMPLEMENTATION = "_attn_implementation_internal"
# Set by transformers on models whose output-capturing hooks it has installed for good.
_CAPTURING = "_output_capturing_hooks_installed"
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
)

# Configs cannot be hashed nor carry foreign attributes (they are saved as JSON), so locks are kept by
# identity.
_locks: dict[int, tuple[weakref.ref[object], threading.RLock]] = {}
_locks_guard = threading.Lock()


def unwrap(model: Any) -> nn.Module:
    """Return the module inside `torch.compile`, DataParallel and DistributedDataParallel wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if inner is None:
            break
        model = inner
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a transformers model, a hub id or a folder, not {type(model).__name__}"
        )
    return model


def configs_of(model: nn.Module) -> list[Any]:
    """Return every config object a model reads its attention implementation from, each once."""
    found: dict[int, Any] = {}

    def add(config: object) -> None:
        if config is None or id(config) in found or not hasattr(config, _IMPLEMENTATION):
            return
        found[id(config)] = config
        for name in getattr(config, "sub_configs", {}):
            add(getattr(config, name, None))

    for module in model.modules():
        add(getattr(module, "config", None))
    return list(found.values())


def _lock_of(config: object) -> threading.RLock:
    with _locks_guard:
        for key in [key for key, (ref, _) in _locks.items() if ref() is None]:
            del _locks[key]
        if id(config) not in _locks:
            _locks[id(config)] = (weakref.ref(config), threading.RLock())
        return _locks[id(config)][1]


@contextmanager
def implementation(model: nn.Module, name: str) -> Iterator[None]:
    """Switch every config of a model to an attention implementation, and back afterwards whatever happens.

    The attribute behind `set_attn_implementation` is set directly: that method warns, asks the hub for
    kernels and does not reach models that are only partly on the attention interface.
    """
    configs = configs_of(model)
    before = [getattr(config, _IMPLEMENTATION) for config in configs]
    try:
        for config in configs:
            setattr(config, _IMPLEMENTATION, name)
        yield
    finally:
        for config, value in zip(configs, before, strict=True):
            setattr(config, _IMPLEMENTATION, value)


@contextmanager
def borrowed(model: nn.Module) -> Iterator[nn.Module]:
    """Hold a model alone, in evaluation mode and without gradients, then restore it.

    Restored, also after an exception or an interrupt: each module's training flag and hooks, and
    transformers' note that it installed output-capturing hooks. Compiled parts run uncompiled meanwhile,
    since a compiled graph calls no attention function that could be recorded. Nothing here touches dtype,
    device, `requires_grad` or the cache setting.
    """
    modules = list(model.modules())
    with ExitStack() as stack:
        for lock in (_lock_of(config) for config in sorted(configs_of(model) or [model], key=id)):
            stack.enter_context(lock)
        training = [module.training for module in modules]
        hooks = [dict(table) if table else None for table in _hook_tables(modules)]
        capturing = [_CAPTURING in vars(module) for module in modules]
        stack.enter_context(torch.no_grad())
        if any(getattr(module, "_compiled_call_impl", None) is not None for module in modules):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            if any(training):
                model.eval()
            yield model
        finally:
            for module, mode, captured in zip(modules, training, capturing, strict=True):
                if module.training != mode:
                    module.training = mode
                if not captured and _CAPTURING in vars(module):
                    delattr(module, _CAPTURING)
            for now, entries in zip(_hook_tables(modules), hooks, strict=True):
                if len(now) != len(entries or ()):
                    now.clear()
                    now.update(entries or {})


def _hook_tables(modules: list[nn.Module]) -> list[dict[int, Any]]:
    """Return the tables of hooks of some modules, one for each kind."""
    return [getattr(module, kind) for module in modules for kind in _HOOKS]


@contextmanager
def quietly() -> Iterator[None]:
    """Keep what transformers warns of in this thread from a reader who chose none of it; errors are said.

    Generating warns of options that a model's own `generate` sets.
    """
    here = threading.get_ident()

    def said(record: logging.LogRecord) -> bool:
        return record.thread != here or record.levelno >= logging.ERROR

    handlers = tuple(logging.getLogger("transformers").handlers)
    for handler in handlers:
        handler.addFilter(said)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(said)


@contextmanager
def borrowed_tokenizer(tokenizer: Any) -> Iterator[None]:
    """Restore a fast tokenizer's truncation and padding, which every call with other options rewrites."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        yield
        return
    truncation, padding = backend.truncation, backend.padding
    try:
        yield
    finally:
        if truncation is None:
            backend.no_truncation()
        else:
            backend.enable_truncation(**truncation)
        if padding is None:
            backend.no_padding()
        else:
            backend.enable_padding(**padding)
