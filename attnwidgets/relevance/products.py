"""Rules of products and quotients: of two factors that depend on the input, each takes half."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.relevance.affine import biased
from attnwidgets.relevance.backward import divided
from attnwidgets.relevance.settings import constant, live

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.relevance.settings import Settings


_WALK = 8  # operations between an activation and the product it gates: casts, views, picks
_STOPS = frozenset(
    ("AddmmBackward0", "MmBackward0", "BmmBackward0", "ConvolutionBackward0", "LayerNormBackward")
)
_RELUS = frozenset(("ReluBackward0", "LeakyReluBackward0", "ThresholdBackward0"))
_FACTORS = ("beta", "alpha", "value")
_MATRICES = frozenset(("matmul", "bmm", "mm", "__matmul__"))


def product(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Halve the gradient of a product of two live factors; one that is a gate is a constant.

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
        size = first.shape[:-1].numel() * second.shape[-1]
        if size > first.numel() + second.numel():
            # The product is larger than its factors, as scores are: halving costs less on their side.
            first, second = divided(first.view_as(first), 2), divided(second.view_as(second), 2)
            return func(first, second, *rest, **options)
    return divided(func(first, second, *rest, **options), 2)


def gating(settings: Settings, factor: Tensor) -> int:
    """Return how much of a gate a factor is: 2 with values in [0, 1]; under CP-LRP 1 out of an activation."""
    node: Any = factor.grad_fn
    for _ in range(_WALK):
        name = type(node).__name__
        if name == "GateBackward":
            return 2
        if name == "ActivationBackward" or name in _RELUS:
            return int(settings.rule == "cp_lrp")
        before = [one for one, _ in getattr(node, "next_functions", ()) if one is not None]
        if len(before) != 1 or name in _STOPS:
            return 0
        node = before[0]
    return 0


def contraction(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Share the gradient of a product of several factors equally among those that are live."""
    factors = [one for group in args for one in (group if isinstance(group, (tuple, list)) else (group,))]
    count = sum(map(live, factors))
    found = func(*args, **kwargs)
    return divided(found, count) if count > 1 else found


def bilinear(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Halve the gradient of a bilinear form of two live inputs; its bias keeps its share."""
    both = live(args[0]) and live(args[1])
    found = func(*args, **kwargs)
    return divided(found, 2) if both else found


def added_product(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Treat a term and a product as their sum; a constant term is a bias."""
    options = {name: one for name, one in kwargs.items() if name in _FACTORS}
    named = sorted((name != "input", name) for name in kwargs if name not in _FACTORS)
    term, first, second = (*args, *(kwargs[name] for _, name in named))
    nothing = torch.zeros_like(term)
    if not (live(first) and live(second)):
        if live(term):
            return func(term, first, second, **options)
        return biased(settings, func, (term, first, second), options, (nothing, first, second))
    found = product(settings, lambda a, b: func(nothing, a, b, **options), (first, second), {})
    return found + term * options.get("beta", 1)


def quotient(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Divide by a constant."""
    place = 0 if getattr(func, "__name__", "") in ("__rdiv__", "__rtruediv__") else 1
    args = tuple(constant(one) if index == place else one for index, one in enumerate(args))
    kwargs = {name: constant(one) if name == "other" else one for name, one in kwargs.items()}
    return func(*args, **kwargs)


def size(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Measure a size, which is a constant.

    Source: Ali et al. 2022, section 4: the standard deviation of a norm.
    """
    return func(*map(constant, args), **{name: constant(one) for name, one in kwargs.items()})


def size_and_mean(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Measure a size, which is a constant, and a mean, which is linear."""
    spread, mean = func(*args, **kwargs)
    return spread.detach(), mean
