"""A twin of a model: modules of its own over the same weights, so that nothing done to it reaches the model.

Recording switches how a model attends, hooks its modules, puts it in evaluation mode and takes its parameters
as constants. On a twin all of that is invisible to whoever else calls the model at the same time, another
thread or task, and there is nothing to put back.
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

IMPLEMENTATION = "_attn_implementation_internal"
"""Where transformers' configs keep which attention function a model calls."""

_ORIGIN = "_attnwidgets_origin"
_MADE_FROM = "_attnwidgets_made_from"
# What `torch.compile` leaves on a module: a compiled graph calls no attention function that could be seen.
COMPILED = "_compiled_call_impl"
_CONTAINERS = (list, tuple, dict, set)
_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size})
# The tables of every module, which are never shared.
_TABLES = frozenset(name for name, value in vars(nn.Module()).items() if isinstance(value, (dict, set)))


def origin(module: nn.Module) -> nn.Module:
    """Return the user's own module that a twin stands for; a module that is no twin is its own."""
    return vars(module).get(_ORIGIN, module)


def twin_of(model: nn.Module) -> nn.Module:
    """Return a twin of a model, in evaluation mode, whose parameters require no gradient.

    Shared are parameters, buffers and whatever else modules hold. The twin's own are the modules, their
    tables of children, hooks and parameters, their configs, and whatever binds a module in an attribute or a
    hook: methods, `functools.partial`s (as accelerate's), closures, containers and weak references. What was
    compiled is run as it was before that.
    """
    twin: nn.Module = _Copy(model).of(model)
    return twin.eval() if any(module.training for module in twin.modules()) else twin


def twins_in(twin: nn.Module) -> Mapping[int, nn.Module]:
    """Return the modules of a twin by the ids of those they are twins of, and by their own."""
    modules = list(twin.modules())
    return {id(module): module for module in modules} | {
        id(vars(module)[_MADE_FROM]): module for module in modules if _MADE_FROM in vars(module)
    }


class _Uncompiled(nn.Module):
    """What `torch.compile` made of a part of a model, run as it was before that."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._inner(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def _inner(self) -> Any:
        return vars(self)["_modules"]["_orig_mod"]


class _Copy:
    """What is copied when a model is twinned, and what it becomes, each once."""

    def __init__(self, model: nn.Module) -> None:
        self._inside = {id(module) for module in model.modules()}
        self._made: dict[int, Any] = {}
        self._makers: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
            (nn.Module, self._module),
            (torch.Tensor, self._tensor),
            (_CONTAINERS, self._container),
            (types.MethodType, self._method),
            (functools.partial, self._partial),
            (types.FunctionType, self._function),
            (weakref.ref, self._reference),
        )

    def of(self, value: Any) -> Any:
        """Return a value as the twin holds it: the very same where nothing in it is the twin's own."""
        if type(value) in _PLAIN or (isinstance(value, _CONTAINERS) and not value):
            return value
        known = self._made.get(id(value))
        if known is not None:
            return known
        for kinds, make in self._makers:
            if isinstance(value, kinds):
                return make(value)
        return self._config(value) if IMPLEMENTATION in getattr(value, "__dict__", ()) else value

    def _module(self, module: nn.Module) -> nn.Module:
        if id(module) not in self._inside:
            return module
        if isinstance(module, torch.jit.ScriptModule):
            # Not made of Python's own modules: a whole copy, which calls no attention function anyway.
            self._made[id(module)] = copy.deepcopy(module)
            return cast("nn.Module", self._made[id(module)])
        compiled = "_orig_mod" in vars(module)["_modules"]
        made: nn.Module = object.__new__(_Uncompiled if compiled else type(module))
        self._made[id(module)] = made
        held = vars(made)
        for name, value in vars(module).items():
            if type(value) in _PLAIN:
                held[name] = value
            elif name != COMPILED and not (compiled and name == "forward"):
                found = self.of(value)
                held[name] = found.copy() if name in _TABLES and found is value else found
        held.setdefault("training", False)
        held[_ORIGIN] = origin(module)
        held[_MADE_FROM] = module
        return made

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor over the same memory that requires no gradient."""
        if not (tensor.requires_grad and tensor.is_leaf):
            return tensor
        made = tensor.detach()
        if isinstance(tensor, nn.Parameter):
            made = nn.Parameter(made, requires_grad=False)
            vars(made).update(vars(tensor))
        self._made[id(tensor)] = made
        return made

    def _method(self, value: Any) -> Any:
        owner = self.of(value.__self__)
        return value if owner is value.__self__ else types.MethodType(value.__func__, owner)

    def _reference(self, value: Any) -> Any:
        target = value()
        made = self.of(target) if isinstance(target, nn.Module) else target
        return value if made is target else weakref.ref(made)

    def _partial(self, value: Any) -> Any:
        parts = (value.func, value.args, value.keywords)
        made = tuple(map(self.of, parts))
        held = self.of(vars(value))
        if held is vars(value) and all(one is other for one, other in zip(made, parts, strict=True)):
            return value
        func, args, keywords = made
        found = functools.partial(func, *args, **keywords)
        vars(found).update(held)
        return found

    def _function(self, value: Any) -> Any:
        cells = value.__closure__ or ()
        # A function may close over itself.
        self._made[id(value)] = value
        made = tuple(self._cell(cell) for cell in cells)
        if all(one is other for one, other in zip(made, cells, strict=True)):
            return value
        found = types.FunctionType(
            value.__code__, value.__globals__, value.__name__, value.__defaults__, made
        )
        found.__kwdefaults__ = value.__kwdefaults__
        vars(found).update(vars(value))
        self._made[id(value)] = found
        return found

    def _cell(self, cell: Any) -> Any:
        try:
            content = cell.cell_contents
        except ValueError:  # not filled yet
            return cell
        made = self.of(content)
        return cell if made is content else types.CellType(made)

    def _container(self, value: Any) -> Any:
        if not isinstance(value, dict) and type(value) not in _CONTAINERS:  # a named tuple, say
            return value
        # What holds itself is left as it is.
        self._made[id(value)] = value
        if isinstance(value, dict):
            made = {key: self.of(item) for key, item in value.items()}
            same = all(made[key] is item for key, item in value.items())
            found = value if same else value.copy()
            if not same:
                found.update(made)
        else:
            items = [self.of(item) for item in value]
            same = all(one is other for one, other in zip(items, value, strict=True))
            found = value if same else type(value)(items)
        self._made[id(value)] = found
        return found

    def _config(self, config: Any) -> Any:
        made = object.__new__(type(config))
        self._made[id(config)] = made
        # What it answers here and now: an intervention in force makes that depend on the caller.
        vars(made).update(vars(config), **{IMPLEMENTATION: getattr(config, IMPLEMENTATION)})
        for name in getattr(config, "sub_configs", {}):
            part = vars(config).get(name)
            if part is not None:
                vars(made)[name] = self.of(part)
        return made
