"""Rules for operations with a constant term, and for norms, which divide by a constant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from attnwidgets._gradients import no_grad
from attnwidgets.relevance.backward import constant_layer_norm, divide_gradient, give_relevance_to
from attnwidgets.relevance.settings import live, run_without_rule

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
    if settings.bias == "share" and live(output):
        return shared_bias(output, func(*without, **kwargs))
    if settings.bias == "ignore" and live(output):
        with no_grad():
            rest = func(*without, **kwargs)
        return give_relevance_to(output, rest)
    return output


def split(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a state that is carried in two parts, and its relevant part."""
    whole, relevant = forward_ad.unpack_dual(x)
    return whole, torch.zeros_like(whole) if relevant is None else relevant.detach()


def shared_bias(output: Tensor, without: Tensor) -> Tensor:
    """Return a sum with a bias, of which each of two parts gets a share: in proportion to their sizes.

    A bias where both parts are zero is irrelevant.
    """
    whole, relevant = split(output)
    before = split(without)[0].detach()
    size, rest = relevant.abs(), (before - relevant).abs()
    total = size + rest
    share = torch.where(total > 0, size / torch.where(total > 0, total, 1.0), 0.0)
    return forward_ad.make_dual(whole, relevant + share * (whole.detach() - before))


def add(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Add; a constant term is a bias. With "drop", parameters and numbers go, masks and positions stay."""
    first, second, *rest = args if len(args) > 1 else (*args, *kwargs.values())
    options = kwargs if len(args) > 1 else {}
    if live(first) == live(second):
        return func(*args, **kwargs)
    fixed = second if live(first) else first
    if settings.bias in ("drop", "share") and not _is_bias(fixed):
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
