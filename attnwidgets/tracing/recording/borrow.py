"""Borrow a model: work on a twin of it, so that other callers of the model see it unchanged."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.attention_sources import holds_attention
from attnwidgets.tracing.recording.twin import IMPLEMENTATION, twin_of, twins_in
from attnwidgets.tracing.recording.wrappers import inside, is_a

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The twins that this thread and task has borrowed, by the ids of the modules they stand for.
_held: ContextVar[tuple[Mapping[int, nn.Module], ...]] = ContextVar("held", default=())


def unwrap(model: Any) -> nn.Module:
    """Return the module inside `torch.compile`, DataParallel or another wrapper; see `wrappers`."""
    while (inner := inside(model)) is not model:
        model = inner
    if not isinstance(model, nn.Module):
        raise TypeError(
            "model must be a hub id, a folder, a transformers model or pipeline, or a model of nnsight, "
            f"nnterp or TransformerLens, not {type(model).__name__}{_instead(model)}"
        )
    return model


def lacks_padding(model: nn.Module) -> bool:
    """Return whether a model classifies by the last token before padding, and names no padding.

    transformers refuses batches of such a model, even of rows that need no padding.
    """
    config: Any = getattr(model, "config", None)
    is_classifier = type(model).__name__.endswith("ForSequenceClassification")
    return is_classifier and getattr(config, "pad_token_id", 0) is None


def _instead(given: Any) -> str:
    """Return what to do with something that is not a model, or "" if it is nothing known."""
    if hasattr(given, "attention_layer"):
        return ": it is a trace already; aw.Explorer(trace) shows it, trace.rerun() runs its model again"
    if holds_attention(given):
        return "; aw.from_attentions(attentions, tokens) takes outputs, caches and arrays"
    return ""


def configs_of(model: nn.Module) -> list[Any]:
    """Return every config object a model reads its attention implementation from, each once."""
    configs: dict[int, Any] = {}

    def add(config: object) -> None:
        if config is None or id(config) in configs or not hasattr(config, IMPLEMENTATION):
            return
        configs[id(config)] = config
        for name in getattr(config, "sub_configs", {}):
            add(getattr(config, name, None))

    for module in model.modules():
        add(vars(module).get("config"))
    return list(configs.values())


@contextmanager
def implementation(model: nn.Module, name: str) -> Iterator[None]:
    """Switch every config of a model to an attention implementation, and back on exit.

    The attribute behind `set_attn_implementation` is set directly: that method warns, asks the hub for
    kernels and does not reach models that are only partly on the attention interface.
    """
    configs = configs_of(model)
    before = [getattr(config, IMPLEMENTATION) for config in configs]
    try:
        for config in configs:
            setattr(config, IMPLEMENTATION, name)
        yield
    finally:
        for config, value in zip(configs, before, strict=True):
            setattr(config, IMPLEMENTATION, value)


def held(module: nn.Module) -> nn.Module | None:
    """Return the twin of a module that is borrowed in this thread and task, or None."""
    return next((twins[id(module)] for twins in reversed(_held.get()) if id(module) in twins), None)


@contextmanager
def borrowed(model: nn.Module) -> Iterator[nn.Module]:
    """Yield a twin of a model, in evaluation mode, to be run without gradients; see `twin.twin_of`.

    Changes to the twin never reach the model. Borrowing the model or a part of it again inside the block, in
    the same thread and task, yields the same twin with its changes.
    """
    twin = held(model)
    if twin is not None:
        with no_grad():
            yield twin
        return
    twin = twin_of(model)
    if lacks_padding(model):
        # Rows of one length end in no padding, which -1, the id of no token, says.
        config: Any = twin.config
        config.pad_token_id = -1
    if is_a(model, "ForMultipleChoice"):
        twin.register_forward_pre_hook(_of_single_choices, with_kwargs=True)
    twins = twins_in(twin)
    try:
        _held.set((*filter(None, _held.get()), twins))
        with no_grad():
            yield twin
    finally:
        # Cleared rather than removed: in one step, and from whatever context the generator is closed.
        twins.clear()


def _of_single_choices(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Give a model that compares choices inputs [batch, 1, token], where every row is the only choice."""
    return args, {
        name: value.unsqueeze(1) if isinstance(value, torch.Tensor) else value
        for name, value in kwargs.items()
    }


@contextmanager
def quietly() -> Iterator[None]:
    """Hide transformers' warnings in this thread, about options that the reader did not choose; show errors.

    Generating warns of options that a model's own `generate` sets.
    """
    here = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != here or record.levelno >= logging.ERROR

    handlers = tuple(logging.getLogger("transformers").handlers)
    for handler in handlers:
        handler.addFilter(passes)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(passes)
