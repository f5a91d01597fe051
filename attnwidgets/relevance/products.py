"""Rules for products and quotients, whose factors get half each, and for elementwise functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnwidgets.relevance.affine import arguments, run_with_bias
from attnwidgets.relevance.backward import Activation, Gate, divide_gradient, pass_relevance
from attnwidgets.relevance.settings import constant, live, run_without_rule

if TYPE_CHECKING:
    from attnwidgets.relevance.settings import Settings

_WALK = 8  # most operations between an activation and the product it gates: casts, views, indexing
_STOPS = frozenset(
    ("AddmmBackward0", "MmBackward0", "BmmBackward0", "ConvolutionBackward0", "LayerNormBackward")
)
_RELUS = frozenset(("ReluBackward0", "LeakyReluBackward0", "ThresholdBackward0"))
_FACTORS = ("beta", "alpha", "value")
_MATRICES = frozenset(("matmul", "bmm", "mm", "__matmul__"))


def product(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Halve the gradient of a product of two live factors; a factor that is a gate is a constant.

    Source: Achtibat et al. 2024, equation 13 (the uniform rule); Ali et al. 2022, section 4.
    """
    first, second, *rest = args if len(args) > 1 else (*args, *kwargs.values())
    if not (live(first) and live(second)):
        return func(*args, **kwargs)
    options = kwargs if len(args) > 1 else {}
    gates = gating(settings, first), gating(settings, second)
    if gates[0] > gates[1]:
        return func(first.detach(), second, *rest, **options)
    if gates[1] > gates[0]:
        return func(first, second.detach(), *rest, **options)
    if getattr(func, "__name__", "") in _MATRICES and first.dim() > 1 and second.dim() > 1:
        product_size = first.shape[:-1].numel() * second.shape[-1]
        if product_size > first.numel() + second.numel():
            # The product is larger than its factors, as attention scores are: halving theirs costs less.
            first, second = (divide_gradient(factor.view_as(factor), 2) for factor in (first, second))
            return func(first, second, *rest, **options)
    return divide_gradient(func(first, second, *rest, **options), 2)


def gating(settings: Settings, factor: Tensor) -> int:
    """Return 2 for a factor with values in [0, 1], 1 for an activation that is held, otherwise 0.

    Where gates are held, it is -1 for the output of a convolution: another factor of it is its gate.
    """
    node: Any = factor.grad_fn
    for _ in range(_WALK):
        name = type(node).__name__
        if name == "ConvolutionBackward0" and settings.rule == "frozen" and settings.gate == "fixed":
            return -1
        if name == "GateBackward":
            return 2
        if name == "ActivationBackward" or name in _RELUS:
            return int(settings.fixes_activations)
        inputs = [function for function, _ in getattr(node, "next_functions", ()) if function is not None]
        if len(inputs) != 1 or name in _STOPS:
            return 0
        node = inputs[0]
    return 0


def contraction(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Divide the gradient of a product of several factors by the number of live factors."""
    factors = [value for group in args for value in (group if isinstance(group, (tuple, list)) else (group,))]
    count = sum(map(live, factors))
    output = func(*args, **kwargs)
    return divide_gradient(output, count) if count > 1 else output


def bilinear(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Halve the gradient of a bilinear form of two live inputs; the bias keeps its share."""
    output = func(*args, **kwargs)
    return divide_gradient(output, 2) if live(args[0]) and live(args[1]) else output


def added_product(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Treat a term and a product as their sum; a constant term is a bias."""
    options = {name: value for name, value in kwargs.items() if name in _FACTORS}
    named = sorted((name != "input", name) for name in kwargs if name not in _FACTORS)
    term, first, second = (*args, *(kwargs[name] for _, name in named))
    zero = torch.zeros_like(term)
    if not (live(first) and live(second)):
        if live(term):
            return func(term, first, second, **options)
        return run_with_bias(settings, func, (term, first, second), options, (zero, first, second))
    output = product(settings, lambda a, b: func(zero, a, b, **options), (first, second), {})
    return output + term * options.get("beta", 1)


def quotient(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Divide by a constant."""
    divisor = 0 if getattr(func, "__name__", "") in ("__rdiv__", "__rtruediv__") else 1
    args = tuple(constant(value) if index == divisor else value for index, value in enumerate(args))
    kwargs = {name: constant(value) if name == "other" else value for name, value in kwargs.items()}
    return func(*args, **kwargs)


def size(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a size, which is a constant.

    Source: Ali et al. 2022, section 4: the standard deviation of a norm.
    """
    return func(*map(constant, args), **{name: constant(value) for name, value in kwargs.items()})


def size_and_mean(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a size, which is a constant, and a mean, which is linear."""
    spread, mean = func(*args, **kwargs)
    return spread.detach(), mean


def activation(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pass relevance through a function that is 0 at 0."""
    return _pass_relevance(Activation, func, args, kwargs, bounded=True)


def offset_activation(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pass relevance through a function that is not 0 at 0."""
    return _pass_relevance(Activation, func, args, kwargs, bounded=False)


def gate(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pass relevance through a function with values in [0, 1]; as a factor, it gets none."""
    if settings.rule == "frozen":
        return size(settings, func, args, kwargs)
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
    x, rest, options = first_input(args, kwargs)
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


def first_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the first argument, the other ones, and the other keywords."""
    if args:
        return args[0], args[1:], dict(kwargs)
    return kwargs["input"], (), {name: value for name, value in kwargs.items() if name != "input"}


def _pass_relevance(
    kind: type[Activation], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, bounded: bool
) -> Any:
    x, rest, options = first_input(args, kwargs)
    if not live(x):
        return func(*args, **kwargs)
    # F.silu(x, True) and the like write into x.
    in_place = options.pop("inplace", False) or any(value is True for value in rest)
    rest = tuple(value for value in rest if not isinstance(value, bool))
    output = pass_relevance(kind, x, lambda states: func(states, *rest, **options), bounded=bounded)
    return x.copy_(output) if in_place else output
