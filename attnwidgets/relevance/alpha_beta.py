"""The propagation rules of Chefer et al. 2021: alpha-beta with alpha 1, as their code has them.

Unlike under `Rules`, relevance itself goes back through the graph, not relevance divided by the
number it belongs to: the gradient that arrives at a tensor is its relevance. Operations that only move
numbers need no rule, and branches add up.

Source: Chefer et al. 2021, Transformer Interpretability Beyond Attention Visualization, section 3.2; the
forms are those of the authors' modules/layers_ours.py (biases left out, norms and activations passed
through, each factor of a product with half, sums by their terms' shares).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from attnwidgets._gradients import enable_grad
from attnwidgets.relevance import attention, operations
from attnwidgets.relevance.affine import arguments
from attnwidgets.relevance.rules import Rules
from attnwidgets.relevance.settings import constant, live

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attnwidgets.relevance.rules import Handler
    from attnwidgets.relevance.settings import Settings

_SMALL = 1e-9  # of the authors, in denominators


def _share(relevance: Tensor, total: Tensor) -> Tensor:
    """Return relevance divided by its denominator; 0 where that is 0."""
    below = total + _SMALL
    below = torch.where(below == 0, torch.full_like(below, _SMALL), below)
    return relevance / below * (total != 0)


class _Passed(Function):
    """Any function of one tensor that keeps its shape: relevance passes through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        """Return f(x)."""
        del ctx
        return f(x).clone()

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor, None]:
        """Return the relevance."""
        del ctx
        return relevance[0], None


class _Linear(Function):
    """A matrix: relevance goes to inputs by the positive parts of their products with weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return x times the matrix, plus the bias."""
        ctx.save_for_backward(x, weight)
        return torch.nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor, None, None]:
        """Return the relevance of x."""
        x, weight = ctx.saved_tensors
        linear = torch.nn.functional.linear
        up, down = weight.clamp(min=0), weight.clamp(max=0)
        above, below = x.clamp(min=0), x.clamp(max=0)
        share = _share(relevance[0], linear(above, up) + linear(below, down))
        return above * linear(share, up.T) + below * linear(share, down.T), None, None


class _Sum(Function):
    """A sum of two tensors: each gets by its share in every number, scaled to its share in all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        """Return x + y."""
        ctx.save_for_backward(x, y)
        return x + y

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the relevance of both."""
        terms = ctx.saved_tensors
        total = terms[0] + terms[1]
        # Where the sum branches, relevance is divided by it and multiplied again.
        arrived = total * _share(relevance[0], total)
        share = _share(arrived, total)
        parts = [term * share for term in terms]
        sums = [part.sum() for part in parts]
        whole = sums[0].abs() + sums[1].abs()
        first, second = (
            part * _share(_share(item.abs(), whole) * arrived.sum(), item)
            for part, item in zip(parts, sums, strict=True)
        )
        return first, second


class _Shared(Function):
    """A function that is linear in each of its tensors: relevance goes by each one's share in the result."""

    @staticmethod
    def forward(ctx: Any, f: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """Return f(*tensors)."""
        ctx.f = f
        ctx.save_for_backward(*tensors)
        return f(*tensors).clone()

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Any, ...]:
        """Return the relevance of every tensor; of several, an equal part of it each."""
        tensors = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        with enable_grad():
            result = ctx.f(*tensors)
        share = _share(relevance[0], result.detach())
        slopes = torch.autograd.grad(result, tensors, share)
        return None, *(
            tensor.detach() * slope / len(tensors) for tensor, slope in zip(tensors, slopes, strict=True)
        )


def _passed(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pass relevance through a function of one tensor, or of a tensor and constants."""
    number = next((index for index, value in enumerate(args) if live(value)), None)
    if number is None:
        return func(*args, **kwargs)
    rest = [constant(value) for value in args]

    def of_one(x: Tensor) -> Tensor:
        output: Tensor = func(*rest[:number], x, *rest[number + 1 :], **kwargs)
        return output

    return _Passed.apply(args[number], of_one)  # type: ignore[no-untyped-call]  # torch leaves it untyped


def _linear(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, weight, bias = arguments(args, kwargs, ("input", "weight", "bias"))
    if not live(x) or live(weight):
        return _product(settings, func, args, kwargs)
    return _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]


def _sum(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    both = args if len(args) > 1 else (*args, *kwargs.values())
    alike = live(both[0]) and live(both[1]) and both[0].shape == both[1].shape
    if alike and "sub" not in getattr(func, "__name__", ""):
        return _Sum.apply(both[0], both[1])  # type: ignore[no-untyped-call]
    return _passed(settings, func, args, kwargs)


def _scaled(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Multiply element by element: relevance passes a constant factor, and is shared by two that are not."""
    both = all(map(live, args)) and len(args) > 1
    return (_product if both else _passed)(settings, func, args, kwargs)


def _product(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Distribute relevance in proportion to each element's contribution to the result."""
    indices = [index for index, value in enumerate(args) if live(value)]
    if not indices:
        return func(*args, **kwargs)

    def of_live(*tensors: Tensor) -> Tensor:
        operands = list(args)
        for position, tensor in zip(indices, tensors, strict=True):
            operands[position] = tensor
        output: Tensor = func(*operands, **kwargs)
        return output

    return _Shared.apply(of_live, *(args[index] for index in indices))  # type: ignore[no-untyped-call]


def _chosen(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Choose part of a tensor: one token's states as by a product with 1, anything else as it is."""
    where = args[1] if isinstance(args[1], tuple) else (args[1],)
    single = live(args[0]) and any(isinstance(item, int) for item in where)
    return _product(settings, func, args, kwargs) if single else func(*args, **kwargs)


def _quotient(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pass relevance to the dividend; the divisor counts as a constant."""
    divisor = 0 if getattr(func, "__name__", "") in ("__rdiv__", "__rtruediv__") else 1
    fixed = tuple(constant(value) if index == divisor else value for index, value in enumerate(args))
    return _passed(settings, func, fixed, {name: constant(value) for name, value in kwargs.items()})


_MOVES = """
    __get__ __len__ adjoint bfloat16 broadcast_to cat chunk clone concat contiguous cpu cuda detach
    double dropout expand expand_as flatten float gather half index_select masked_fill movedim narrow pad
    permute repeat repeat_interleave requires_grad reshape reshape_as roll select split squeeze stack
    swapaxes t to transpose type type_as unbind unflatten unsqueeze view view_as
"""
_SHARED = "mean sum avg_pool2d adaptive_avg_pool2d adaptive_avg_pool1d"
_PASSED = "softmax layer_norm rms_norm group_norm batch_norm relu leaky_relu gelu silu"
# Sizes that are only divided by: no relevance comes back from them.
_RUN = "norm vector_norm rsqrt sqrt pow square __pow__"


def _table() -> Mapping[str, Handler | None]:
    groups: list[tuple[Any, Handler | None]] = [
        (_MOVES.split(), None),
        (_RUN.split(), None),
        (operations.SUMS, _sum),
        (operations.PRODUCTS, _product),
        (operations.CONTRACTIONS, _product),
        (("mul", "__mul__", "__rmul__", "multiply"), _scaled),
        (operations.QUOTIENTS, _quotient),
        (operations.ACTIVATIONS, _passed),
        (operations.GATES, _passed),
        (_PASSED.split(), _passed),
        (_SHARED.split(), _product),
    ]
    return {name: handler for names, handler in groups for name in names} | {
        "__getitem__": _chosen,
        "linear": _linear,
        "scaled_dot_product_attention": attention.scaled_dot_product_attention,
        "multi_head_attention_forward": attention.multi_head_attention,
    }


class AlphaBetaRules(Rules):
    """A context in which the rules of Chefer et al. 2021 apply to this thread: gradients are relevance."""

    def __init__(self) -> None:
        super().__init__("attnlrp")
        self._table = _table()


def passing_activations(model: torch.nn.Module) -> Any:
    """Return a context in which activations written in several operations pass relevance through."""
    from contextlib import ExitStack, contextmanager

    from attnwidgets.relevance.backward import activation_modules

    @contextmanager
    def hooked() -> Any:
        with ExitStack() as undo:
            for module in activation_modules(model):
                inputs: list[Tensor] = []

                def before(_: Any, args: tuple[Any, ...], inputs: list[Tensor] = inputs) -> Any:
                    if len(args) != 1 or not live(args[0]):
                        return None
                    inputs.append(args[0])
                    return (args[0].detach(),)

                def after(_: Any, __: Any, output: Any, inputs: list[Tensor] = inputs) -> Any:
                    return _Passed.apply(inputs.pop(), lambda _: output) if inputs else None  # type: ignore[no-untyped-call]

                undo.callback(module.register_forward_pre_hook(before).remove)
                undo.callback(module.register_forward_hook(after, prepend=True).remove)
            yield

    return hooked()
