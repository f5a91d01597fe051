"""Rules for operations with a constant term: a bias absorbs relevance, is ignored, or is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnwidgets._gradients import no_grad
from attnwidgets.relevance.backward import divide_gradient, give_relevance_to
from attnwidgets.relevance.no_rule import run_without_rule
from attnwidgets.relevance.settings import live

if TYPE_CHECKING:
    from attnwidgets.relevance.settings import Settings

_PART = "_attnwidgets_parameter"
_EPSILON = 1e-3  # smaller numbers only keep a denominator from zero and are not biases
_NAMES = ("input", "weight", "bias")
"""The first arguments of linear and of convolution."""


def run_with_bias(
    settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], without: tuple[Any, ...]
) -> Any:
    """Run an operation with a bias; `without` are its arguments without the bias."""
    if settings.bias == "drop":
        return func(*without, **kwargs)
    output = func(*args, **kwargs)
    if settings.bias == "ignore" and live(output):
        with no_grad():
            rest = func(*without, **kwargs)
        return give_relevance_to(output, rest)
    return output


def add(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Add; a constant term is a bias. With "drop", parameters and numbers go, masks and positions stay."""
    first, second, *rest = args if len(args) > 1 else (*args, *kwargs.values())
    options = kwargs if len(args) > 1 else {}
    if live(first) == live(second):
        return func(*args, **kwargs)
    fixed = second if live(first) else first
    if settings.bias == "drop" and not _is_bias(fixed):
        return func(*args, **kwargs)
    zero = torch.zeros_like(fixed) if isinstance(fixed, Tensor) else 0.0
    without = (first, zero) if live(first) else (zero, second)
    return run_with_bias(settings, func, (first, second, *rest), options, (*without, *rest))


def _is_bias(fixed: Any) -> bool:
    if isinstance(fixed, Tensor):
        return isinstance(fixed, nn.Parameter) or hasattr(fixed, _PART)
    return bool(abs(fixed) > _EPSILON)


def getitem(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Index a tensor; part of a parameter (an expert's bias) still counts as a parameter."""
    output = func(*args, **kwargs)
    if args and isinstance(args[0], nn.Parameter):
        setattr(output, _PART, True)
    return output


def linear(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a matrix; its gradient is the epsilon rule with epsilon 0."""
    if settings.bias == "absorb" and not (len(args) > 1 and live(args[1])) and not live(kwargs.get("weight")):
        return func(*args, **kwargs)
    x, weight, bias = arguments(args, kwargs, _NAMES)
    if live(weight):
        output = divide_gradient(func(x, weight), 2) if live(x) else func(x, weight)
        return output if bias is None or settings.bias == "drop" else output + bias
    if bias is None:
        return func(x, weight)
    return run_with_bias(settings, func, (x, weight, bias), {}, (x, weight))


def convolution(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convolve; the rule is that of `linear`."""
    x, weight, bias = arguments(args, kwargs, _NAMES)
    if live(weight):
        return run_without_rule(settings, func, args, kwargs)
    rest, options = args[len(_NAMES) :], {name: kwargs[name] for name in kwargs if name not in _NAMES}
    if bias is None or settings.bias == "absorb":
        return func(x, weight, bias, *rest, **options)
    return run_with_bias(settings, func, (x, weight, bias, *rest), options, (x, weight, None, *rest))


def arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...], **defaults: Any
) -> tuple[Any, ...]:
    """Return positional and keyword arguments in the order of `names`; None where one is missing."""
    by_name = dict(zip(names, args, strict=False)) | kwargs
    return tuple(by_name.get(name, defaults.get(name)) for name in names)
