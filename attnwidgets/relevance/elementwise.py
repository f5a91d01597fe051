"""Rules for elementwise functions, which pass relevance through unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnwidgets.relevance.affine import arguments
from attnwidgets.relevance.backward import Activation, Gate, divide_gradient, pass_relevance
from attnwidgets.relevance.no_rule import run_without_rule
from attnwidgets.relevance.products import size
from attnwidgets.relevance.settings import live

if TYPE_CHECKING:
    from attnwidgets.relevance.settings import Settings


def activation(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pass relevance through a function that is 0 at 0."""
    return _pass_relevance(Activation, func, args, kwargs, bounded=True)


def offset_activation(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pass relevance through a function that is not 0 at 0."""
    return _pass_relevance(Activation, func, args, kwargs, bounded=False)


def gate(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pass relevance through a function with values in [0, 1]; as a factor, it gets none."""
    return _pass_relevance(Gate, func, args, kwargs, bounded=False)


def glu(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Multiply the first half by the gate of the second, a constant."""
    if not any(map(live, (*args, *kwargs.values()))):
        return func(*args, **kwargs)

    x, dim = arguments(args, kwargs, ("input", "dim"), dim=-1)
    first, second = x.chunk(2, dim)
    return first * torch.sigmoid(second.detach())


def clamp(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pass relevance through a clamp between constants."""
    x, rest, options = _input(args, kwargs)
    if not live(x):
        return func(*args, **kwargs)
    if any(map(live, (*rest, *options.values()))):
        return run_without_rule(settings, func, args, kwargs)
    options.pop("inplace", None)
    bounded = not bool(func(x.detach().new_zeros(()), *rest, **options).any())
    return _pass_relevance(Activation, func, args, kwargs, bounded=bounded)


def power(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pass relevance through a power, dividing the gradient by the exponent; a root is a size."""
    exponent: Any = 2.0
    if getattr(func, "__name__", "") != "square":
        exponent = args[1] if len(args) > 1 else kwargs.get("exponent")
    if isinstance(exponent, Tensor) and exponent.numel() == 1 and not live(exponent):
        exponent = exponent.item()
    if not isinstance(exponent, (int, float)):
        return run_without_rule(settings, func, args, kwargs)
    if exponent < 1:
        return size(settings, func, args, kwargs)
    return divide_gradient(func(*args, **kwargs), float(exponent))


def _input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the first argument, the other ones, and the other keywords."""
    if args:
        return args[0], args[1:], dict(kwargs)
    return kwargs["input"], (), {name: value for name, value in kwargs.items() if name != "input"}


def _pass_relevance(
    kind: type[Activation], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, bounded: bool
) -> Any:
    x, rest, options = _input(args, kwargs)
    if not live(x):
        return func(*args, **kwargs)
    # F.silu(x, True) and the like write into x.
    in_place = options.pop("inplace", False) or any(value is True for value in rest)
    rest = tuple(value for value in rest if not isinstance(value, bool))
    output = pass_relevance(kind, x, lambda states: func(states, *rest, **options), bounded=bounded)
    return x.copy_(output) if in_place else output
