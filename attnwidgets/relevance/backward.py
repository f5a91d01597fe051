"""The rules of relevance propagation as gradients: a tensor times its gradient is its relevance.

The forward numbers stay as they are.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.model_state import modules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STABILISER = 1e-6
"""Added to a denominator, away from zero, if nothing else bounds a ratio."""

_NAMED = re.compile("gelu|silu|swish|mish|activation", re.IGNORECASE)


class Activation(Function):
    """An elementwise function that passes relevance on: its gradient is f(x) / x, and 0 where x is 0.

    Source: Achtibat et al. 2024 (AttnLRP), the identity rule; Ali et al. 2022.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, f: Callable[[Tensor], Tensor], bounded: bool) -> Tensor:
        """Return f(x); `bounded` says that f(0) is 0."""
        y = f(x)
        if bounded:
            # 0 / 0 is the one undefined case.
            factor = torch.div(y, x).nan_to_num_(nan=0.0)
        else:
            away = torch.full_like(x, STABILISER)
            factor = y / (x + torch.where(x < 0, -away, away))
        ctx.save_for_backward(factor)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient by x."""
        (factor,) = ctx.saved_tensors
        return gradients[0] * factor, None, None


class Gate(Activation):
    """An elementwise function with values in [0, 1], which is a constant when it is a factor."""


class LayerNorm(Function):
    """Layer normalisation with a constant standard deviation; the mean is not constant.

    Source: Ali et al. 2022, section 4.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shape: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        """Return x normalised over its last axes, whose sizes are `shape`."""
        y, _, scale = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.axes = tuple(range(-len(shape), 0))
        ctx.save_for_backward(scale.to(x.dtype) if weight is None else scale.to(x.dtype) * weight)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Return the gradient by x."""
        (factor,) = ctx.saved_tensors
        scaled = gradients[0] * factor
        return scaled - scaled.mean(ctx.axes, keepdim=True), None, None, None, None


def pass_relevance(
    kind: type[Activation], x: Tensor, f: Callable[[Tensor], Tensor], *, bounded: bool
) -> Tensor:
    """Return f(x), with relevance passed through; `bounded` says that f(0) is 0."""
    return cast("Tensor", kind.apply(x, f, bounded))  # type: ignore[no-untyped-call]  # torch leaves it untyped


def constant_layer_norm(
    x: Tensor, shape: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Return a layer norm with a constant standard deviation."""
    return cast("Tensor", LayerNorm.apply(x, shape, weight, bias, eps))  # type: ignore[no-untyped-call]


def divide_gradient(output: Tensor, by: float) -> Tensor:
    """Return a tensor whose gradient is divided by a number in the backward pass (the uniform rule)."""
    if output.requires_grad:
        output.register_hook(lambda gradient: gradient / by)
    return output


def give_relevance_to(output: Tensor, part: Tensor) -> Tensor:
    """Return a sum whose relevance all goes to its term `part`; the rest (a bias) gets none.

    The gradient is multiplied by output / part, and is 0 where `part` is 0 or a mask is added to it.
    """
    if output.requires_grad:
        factor = (output.detach() / part).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        output.register_hook(lambda gradient: gradient * factor)
    return output


def activation_modules(model: nn.Module) -> list[nn.Module]:
    """Return the modules that compute one activation with f(0) = 0 in several operations.

    These are the activations of transformers, and modules without children or parameters whose class is named
    like one. Those of torch are single operations anyway.
    """
    from transformers.activations import ACT2CLS

    classes: tuple[Any, ...] = tuple(
        {kind[0] if isinstance(kind, tuple) else kind for kind in ACT2CLS.values()}
    )

    def looks_like_activation(module: nn.Module) -> bool:
        simple = next(module.children(), None) is None and next(module.parameters(), None) is None
        return simple and _NAMED.search(type(module).__name__) is not None

    return [
        module
        for module in modules_of(model)
        if not type(module).__module__.startswith("torch.")
        and (isinstance(module, classes) or looks_like_activation(module))
        and _zero_at_zero(module)
    ]


def _zero_at_zero(module: nn.Module) -> bool:
    like = next((tensor for tensor in (*module.parameters(), *module.buffers())), torch.zeros(()))
    zero = torch.zeros(1, 1, device=like.device, dtype=like.dtype)
    try:
        with no_grad():
            # `forward` instead of a call, which would run the user's hooks.
            output = module.forward(zero)
    except (TypeError, ValueError, RuntimeError):
        return False
    return isinstance(output, Tensor) and output.shape == zero.shape and not bool(output.any())


@contextmanager
def single_activations(model: nn.Module) -> Iterator[None]:
    """Make each activation module of a borrowed model pass relevance on as one function."""
    with ExitStack() as stack:
        for module in activation_modules(model):
            unit = _Unit()
            stack.callback(module.register_forward_pre_hook(unit.before).remove)
            stack.callback(module.register_forward_hook(unit.after, prepend=True).remove)
        yield


class _Unit:
    """Hooks of one activation module that hide its operations and make it one function."""

    def __init__(self) -> None:
        self._given: list[Tensor] = []

    def before(self, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Pass the module a constant: a forward pre-hook."""
        if len(args) != 1 or not isinstance(args[0], Tensor) or not args[0].requires_grad:
            return None
        self._given.append(args[0])
        return (args[0].detach(),)

    def after(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        """Make the module's output a function of its input: a forward hook."""
        if not self._given:
            return None
        x = self._given.pop()
        if not isinstance(output, Tensor) or output.shape != x.shape:
            return None
        y = output.clone() if output.data_ptr() == x.data_ptr() else output
        return pass_relevance(Activation, x, lambda _: y, bounded=True)
