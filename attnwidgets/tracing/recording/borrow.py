"""Borrow a model: a twin over the same weights runs, so that other callers see the model unchanged.

A twin has separate modules over the same weights, so that changes to it never reach the model. Recording
switches a model's attention implementation, hooks its modules, puts it in evaluation mode and treats its
parameters as constants. On a twin all of that is invisible to other threads and tasks that call the model at
the same time, and nothing needs to be restored. `borrowed` yields a twin, and `_Copy` copies every value that
refers to a module of the model.
"""

from __future__ import annotations

import copy
import functools
import logging
import operator
import threading
import types
import weakref
from collections import OrderedDict
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.attention_sources import holds_attention
from attnwidgets.tracing.model_state import modules_of
from attnwidgets.tracing.recording.wrappers import inside, is_a

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# The twins that this thread and task has borrowed, by the ids of the modules they stand for.
_held: ContextVar[tuple[Mapping[int, nn.Module], ...]] = ContextVar("held", default=())

IMPLEMENTATION = "_attn_implementation_internal"
"""The attribute of transformers' configs that names the attention function a model calls."""

_ORIGIN = "_attnwidgets_origin"
_MADE_FROM = "_attnwidgets_made_from"
# Set on a module by `torch.compile`: a compiled graph calls no attention function that can be observed.
COMPILED = "_compiled_call_impl"
_CONTAINERS = (list, tuple, dict, set)
_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size})
_TABLE_KINDS = (dict, OrderedDict, set)
# The tables of every module that are never shared. A twin is neither saved nor loaded: hooks on that are.
_TABLES = frozenset(
    name
    for name, value in vars(nn.Module()).items()
    if type(value) in _TABLE_KINDS and "state_dict" not in name
)


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


def _instead(value: Any) -> str:
    """Return advice on a trace or on attention that is passed as a model; "" for other objects."""
    if hasattr(value, "attention_layer"):
        return ": it is a trace already; aw.Explorer(trace) shows it, trace.rerun() runs its model again"
    if holds_attention(value):
        return "; aw.from_attentions(attentions, tokens) takes outputs, caches and arrays"
    return ""


def configs_of(modules: Iterable[nn.Module]) -> list[Any]:
    """Return every config object that a model's modules read its attention implementation from, each once."""
    configs: dict[int, Any] = {}
    waiting = [vars(module).get("config") for module in modules][::-1]
    while waiting:
        config = waiting.pop()
        if config is not None and id(config) not in configs and hasattr(config, IMPLEMENTATION):
            configs[id(config)] = config
            waiting += [getattr(config, name, None) for name in getattr(config, "sub_configs", {})][::-1]
    return list(configs.values())


@contextmanager
def implementation(model: nn.Module, name: str, modules: Iterable[nn.Module] | None = None) -> Iterator[None]:
    """Switch every config of a model to an attention implementation, and back on exit.

    The attribute behind `set_attn_implementation` is set directly: that method warns, asks the hub for
    kernels and does not reach models that are only partly on the attention interface. `modules` are those of
    the model, if they are listed already.
    """
    configs = configs_of(modules_of(model) if modules is None else modules)
    before = [getattr(config, IMPLEMENTATION) for config in configs]
    try:
        for config in configs:
            setattr(config, IMPLEMENTATION, name)
        yield
    finally:
        for config, value in zip(configs, before, strict=True):
            setattr(config, IMPLEMENTATION, value)


def current_twin(module: nn.Module) -> nn.Module | None:
    """Return the twin of a module that is borrowed in this thread and task, or None."""
    return next((twins[id(module)] for twins in reversed(_held.get()) if id(module) in twins), None)


@contextmanager
def borrowed(model: nn.Module) -> Iterator[nn.Module]:
    """Yield a twin of a model, in evaluation mode, to be run without gradients; see `twin.twin_of`.

    Changes to the twin never reach the model. Borrowing the model or a part of it again inside the block, in
    the same thread and task, yields the same twin with its changes.
    """
    twin = current_twin(model)
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

    Generating warns of options that the `generate` of a model sets.
    """
    thread_id = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != thread_id or record.levelno >= logging.ERROR

    handlers = tuple(logging.getLogger("transformers").handlers)
    for handler in handlers:
        handler.addFilter(passes)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(passes)


def origin(module: nn.Module) -> nn.Module:
    """Return the user's module of which a module is the twin; for any other module, the module itself."""
    return vars(module).get(_ORIGIN, module)


def twin_of(model: nn.Module) -> nn.Module:
    """Return a twin of a model, in evaluation mode, whose parameters require no gradient.

    It shares parameters, buffers and other values that modules hold. Modules, tables of children, hooks and
    parameters, and configs are copied, and so is everything that binds a module in an attribute or a hook:
    methods, `functools.partial`s (such as accelerate's), objects with `__call__` (such as nnsight's),
    closures, containers and weak references. Compiled modules run uncompiled.
    """
    copies = _Copy(model)
    twin: nn.Module = copies.of(model)
    return twin.eval() if copies.trains else twin


def twins_in(twin: nn.Module) -> dict[int, nn.Module]:
    """Return the modules of a twin by their ids, and by the ids of the modules that they are twins of."""
    modules = modules_of(twin)
    return {id(module): module for module in modules} | {
        id(vars(module)[_MADE_FROM]): module for module in modules if _MADE_FROM in vars(module)
    }


class _Uncompiled(nn.Module):
    """A compiled part of a model, run uncompiled."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._inner(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def _inner(self) -> Any:
        return vars(self)["_modules"]["_orig_mod"]


class _Copy:
    """Copies the values of a model for its twin, each once."""

    def __init__(self, model: nn.Module) -> None:
        modules = modules_of(model)
        self._inside = set(map(id, modules))
        self.trains = any(module.training for module in modules)
        self._copies: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Return a value as the twin holds it: the same object if nothing in it had to be copied."""
        if type(value) in _PLAIN or (isinstance(value, _CONTAINERS) and not value):
            return value
        copied = self._copies.get(id(value))
        if copied is not None:
            return copied
        for kinds, make in self._MAKERS:
            if isinstance(value, kinds):
                return make(self, value)
        attributes = getattr(value, "__dict__", ())
        if IMPLEMENTATION in attributes:
            return self._config(value)
        is_instance = attributes and not isinstance(value, type)
        return self._callable(value) if is_instance and callable(value) else value

    def _module(self, module: nn.Module) -> nn.Module:
        if id(module) not in self._inside:
            return module
        if isinstance(module, torch.jit.ScriptModule):
            # Not made of Python modules: a deep copy, which calls no attention function anyway.
            self._copies[id(module)] = copy.deepcopy(module)
            return cast("nn.Module", self._copies[id(module)])
        compiled = "_orig_mod" in vars(module)["_modules"]
        twin: nn.Module = object.__new__(_Uncompiled if compiled else type(module))
        self._copies[id(module)] = twin
        attributes = vars(twin)
        attributes.update(vars(module))  # at once, since another thread may add a name
        attributes.pop(COMPILED, None)
        if compiled:
            attributes.pop("forward", None)
        for name, value in attributes.items():
            kind = type(value)
            if kind in _TABLE_KINDS and name in _TABLES:
                # Most are empty: a module has eight tables of hooks.
                attributes[name] = table = value.copy() if value else kind()
                if value and isinstance(table, dict):
                    for key, item in value.items():
                        table[key] = self.of(item)
            elif kind not in _PLAIN and (kind not in _TABLE_KINDS or value):
                attributes[name] = self.of(value)
        attributes.setdefault("training", False)
        attributes[_ORIGIN] = origin(module)
        attributes[_MADE_FROM] = module
        return twin

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor over the same memory that requires no gradient."""
        if not (tensor.requires_grad and tensor.is_leaf):
            return tensor
        constant = tensor.detach()
        if isinstance(tensor, nn.Parameter):
            constant = nn.Parameter(constant, requires_grad=False)
            vars(constant).update(vars(tensor))
        self._copies[id(tensor)] = constant
        return constant

    def _method(self, value: Any) -> Any:
        owner = self.of(value.__self__)
        return value if owner is value.__self__ else types.MethodType(value.__func__, owner)

    def _reference(self, value: Any) -> Any:
        target = value()
        copied = self.of(target) if isinstance(target, nn.Module) else target
        return value if copied is target else weakref.ref(copied)

    def _partial(self, value: Any) -> Any:
        parts = (value.func, value.args, value.keywords)
        copied = tuple(map(self.of, parts))
        attributes = self.of(vars(value))
        if attributes is vars(value) and all(map(operator.is_, copied, parts)):
            return value
        func, args, keywords = copied
        partial = functools.partial(func, *args, **keywords)
        vars(partial).update(attributes)
        return partial

    def _function(self, value: Any) -> Any:
        cells = value.__closure__ or ()
        # A function may close over itself.
        self._copies[id(value)] = value
        copied = tuple(self._cell(cell) for cell in cells)
        if all(map(operator.is_, copied, cells)):
            return value
        function = types.FunctionType(
            value.__code__, value.__globals__, value.__name__, value.__defaults__, copied
        )
        function.__kwdefaults__ = value.__kwdefaults__
        vars(function).update(vars(value))
        self._copies[id(value)] = function
        return function

    def _callable(self, value: Any) -> Any:
        """Return an object that is called like a function, and may replace a module (nnsight's)."""
        self._copies[id(value)] = value
        attributes = self.of(vars(value))
        if attributes is vars(value):
            return value
        try:
            copied = object.__new__(type(value))
        except TypeError:  # not made in Python
            return value
        vars(copied).update(attributes)
        self._copies[id(value)] = copied
        return copied

    def _cell(self, cell: Any) -> Any:
        try:
            content = cell.cell_contents
        except ValueError:  # not filled yet
            return cell
        copied = self.of(content)
        return cell if copied is content else types.CellType(copied)

    def _container(self, value: Any) -> Any:
        if not isinstance(value, dict) and type(value) not in _CONTAINERS:  # a named tuple, say
            return value
        # A container that holds itself is left as it is.
        self._copies[id(value)] = result = value
        if isinstance(value, dict):
            copied = {key: self.of(item) for key, item in value.items()}
            if not all(copied[key] is item for key, item in value.items()):
                result = value.copy()
                result.update(copied)
        else:
            items = [self.of(item) for item in value]
            if not all(map(operator.is_, items, value)):
                result = type(value)(items)
        self._copies[id(value)] = result
        return result

    def _config(self, config: Any) -> Any:
        copied = object.__new__(type(config))
        self._copies[id(config)] = copied
        # Its current answer: with an intervention in force, that depends on the caller.
        vars(copied).update(vars(config), **{IMPLEMENTATION: getattr(config, IMPLEMENTATION)})
        for name in getattr(config, "sub_configs", {}):
            part = vars(config).get(name)
            if part is not None:
                vars(copied)[name] = self.of(part)
        return copied

    # Bound methods would keep the twin in a cycle, until the garbage collector runs.
    _MAKERS: tuple[tuple[Any, Callable[[_Copy, Any], Any]], ...] = (
        (nn.Module, _module),
        (torch.Tensor, _tensor),
        (_CONTAINERS, _container),
        (types.MethodType, _method),
        (functools.partial, _partial),
        (types.FunctionType, _function),
        (weakref.ref, _reference),
    )
