"""Rules of operations with a constant term: a bias absorbs relevance, is ignored, or is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnwidgets.relevance.backward import divided, given_to
from attnwidgets.relevance.no_rule import unknown
from attnwidgets.relevance.settings import live

if TYPE_CHECKING:
    from attnwidgets.relevance.settings import Settings

_PART = "_attnwidgets_parameter"
_EPSILON = 1e-3  # smaller numbers keep a denominator from zero, and are no bias
_BIAS = 2  # where linear and convolution take theirs


def biased(
    settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], without: tuple[Any, ...]
) -> Any:
    """Run an operation with a bias; `without` is its arguments without one."""
    if settings.bias == "drop":
        return func(*without, **kwargs)
    found = func(*args, **kwargs)
    if settings.bias == "ignore" and live(found):
        with torch.no_grad():
            rest = func(*without, **kwargs)
        return given_to(found, rest)
    return found


def total(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Add: a constant term is a bias. A parameter or a number is dropped; masks and positions stay."""
    first, second, *rest = args if len(args) > 1 else (*args, *kwargs.values())
    options = kwargs if len(args) > 1 else {}
    if live(first) == live(second):
        return func(*args, **kwargs)
    fixed = second if live(first) else first
    if settings.bias == "drop" and not _is_bias(fixed):
        return func(*args, **kwargs)
    nothing = torch.zeros_like(fixed) if isinstance(fixed, Tensor) else 0.0
    without = (first, nothing) if live(first) else (nothing, second)
    return biased(settings, func, (first, second, *rest), options, (*without, *rest))


def _is_bias(fixed: Any) -> bool:
    if isinstance(fixed, Tensor):
        return isinstance(fixed, nn.Parameter) or hasattr(fixed, _PART)
    return bool(abs(fixed) > _EPSILON)


def part(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take a part of something: of a parameter (an expert's bias) it is one still."""
    found = func(*args, **kwargs)
    if args and isinstance(args[0], nn.Parameter):
        setattr(found, _PART, True)
    return found


def linear(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a matrix: the epsilon rule with epsilon 0 is its gradient."""
    if settings.bias == "absorb" and not (len(args) > 1 and live(args[1])) and not live(kwargs.get("weight")):
        return func(*args, **kwargs)
    x, weight, bias = named(args, kwargs, ("input", "weight", "bias"))
    if live(weight):
        found = divided(func(x, weight), 2) if live(x) else func(x, weight)
        return found if bias is None or settings.bias == "drop" else found + bias
    return func(x, weight) if bias is None else biased(settings, func, (x, weight, bias), {}, (x, weight))


def convolution(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convolve, as `linear`."""
    if len(args) > 1 and live(args[1]):
        return unknown(settings, func, args, kwargs)
    if settings.bias == "absorb":
        return func(*args, **kwargs)
    if len(args) > _BIAS:
        return biased(settings, func, args, kwargs, (*args[:_BIAS], None, *args[_BIAS + 1 :]))
    options = {name: one for name, one in kwargs.items() if name != "bias"}
    bias = kwargs.get("bias")
    if bias is None:
        return func(*args, **kwargs)
    return biased(
        settings, lambda *given: func(*given[:2], given[2], **options), (*args, bias), {}, (*args, None)
    )


def named(
    args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...], **defaults: Any
) -> tuple[Any, ...]:
    """Return arguments in the order of `names`, wherever they were given; None where they were not."""
    given = dict(zip(names, args, strict=False)) | kwargs
    return tuple(given.get(name, defaults.get(name)) for name in names)
