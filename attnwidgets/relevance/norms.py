"""Rules for norms, which divide by a constant (Ali et al. 2022, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnwidgets.relevance.affine import arguments, run_with_bias
from attnwidgets.relevance.backward import constant_layer_norm
from attnwidgets.relevance.no_rule import run_without_rule
from attnwidgets.relevance.settings import live

if TYPE_CHECKING:
    from attnwidgets.relevance.settings import Settings


def layer_norm(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Normalise a layer with a constant standard deviation; the mean depends on the input."""
    names = ("input", "normalized_shape", "weight", "bias", "eps")
    x, shape, weight, bias, eps = arguments(args, kwargs, names, eps=1e-5)
    if not live(x):
        return func(*args, **kwargs)
    sizes = tuple(shape)
    without = (x, sizes, weight, None, eps)
    if bias is None:
        return constant_layer_norm(*without)
    return run_with_bias(settings, constant_layer_norm, (x, sizes, weight, bias, eps), {}, without)


def rms_norm(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Divide by the root of the mean square."""
    x, shape, weight, eps = arguments(args, kwargs, ("input", "normalized_shape", "weight", "eps"))
    if not live(x):
        return func(*args, **kwargs)
    wide = _wide(x.detach())
    tiny = torch.finfo(x.dtype).eps if eps is None else eps
    axes = tuple(range(-len(tuple(shape)), 0))
    output = x * (wide.square().mean(axes, keepdim=True) + tiny).rsqrt().to(x.dtype)
    return output if weight is None else output * weight


def group_norm(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Normalise groups of channels by constant standard deviations."""
    names = ("input", "num_groups", "weight", "bias", "eps")
    x, groups, weight, bias, eps = arguments(args, kwargs, names, eps=1e-5)
    if not live(x):
        return func(*args, **kwargs)
    parts = x.reshape(len(x), groups, -1)
    centred = parts - parts.mean(-1, keepdim=True)
    scale = (_wide(centred.detach()).square().mean(-1, keepdim=True) + eps).rsqrt().to(x.dtype)
    output = (centred * scale).view_as(x)
    if weight is not None:
        output = output * _by_channel(weight, x)
    if bias is None:
        return output
    return run_with_bias(settings, _plus, (output, _by_channel(bias, x)), {}, (output, 0.0))


def instance_norm(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Normalise every channel by its own constant standard deviation."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps")
    x, _, _, weight, bias, use_input, _, eps = arguments(args, kwargs, names, use_input_stats=True, eps=1e-5)
    if not use_input:
        return run_without_rule(settings, func, args, kwargs)
    return group_norm(settings, torch.group_norm, (x, x.shape[1], weight, bias, eps), {})


def batch_norm(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Normalise with the learnt statistics: a linear map and a bias."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    x, mean, variance, weight, bias, training, momentum, eps = arguments(
        args, kwargs, names, training=False, momentum=0.1, eps=1e-5
    )
    if training:
        return run_without_rule(settings, func, args, kwargs)
    if not live(x) or settings.bias == "absorb":
        return func(*args, **kwargs)
    with_bias = (x, mean, variance, weight, bias, False, momentum, eps)
    without = (x, torch.zeros_like(mean), variance, weight, None, False, momentum, eps)
    return run_with_bias(settings, func, with_bias, {}, without)


def normalize(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Divide by the length, a constant."""
    x, p, dim, eps = arguments(args, kwargs, ("input", "p", "dim", "eps"), p=2.0, dim=1, eps=1e-12)
    if not live(x):
        return func(*args, **kwargs)
    return x / x.detach().norm(p, dim, keepdim=True).clamp_min(eps)


def _plus(a: Tensor, b: Tensor | float) -> Tensor:
    return a + b


def _by_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.view(1, -1, *(1,) * (x.dim() - 2))


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
