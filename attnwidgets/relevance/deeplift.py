"""DeepLIFT operation by operation: each passes on the change of its output, exactly, to its inputs.

The model runs twice, on the baseline and on the input. In the first pass every nonlinear operation stores
its values; in the second its gradient becomes the *multiplier* between the two: a number times the
change of every input, which sum to the change of the output. Multipliers chain like gradients (Shrikumar et
al. 2017, equation 3), so the contributions of the embeddings sum to the change of the target.

Source: Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences,
section 3.5.2 (the rescale rule). Products, norms and the softmax have no rule there; theirs are derived here
from the same condition.
"""

# ruff: noqa: SIM905 - long lists of names read best as prose

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from attnwidgets.relevance import affine, attention, operations
from attnwidgets.relevance.affine import arguments
from attnwidgets.relevance.backward import activation_modules
from attnwidgets.relevance.rescale import (
    INVERSE,
    Differences,
    baseline_of,
    kinked,
    power,
    reciprocal,
    root,
    slopes,
    smooth,
    valued,
)
from attnwidgets.relevance.settings import live, run_without_rule
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import nn

    from attnwidgets.relevance.rules import Handler
    from attnwidgets.relevance.settings import Settings

_PAIR = 2
_SOFTMAX_DIM = 1  # position of the axis in the arguments of a softmax


def _product(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the change of each factor, times the mean of the other over the two passes.

    With d for changes, d(ab) = da (b + b0) / 2 + (a + a0) / 2 db, exactly; neither factor goes first. A
    factor that is an inverse divides.
    """
    first, second, *rest = args if len(args) > 1 else (*args, *kwargs.values())
    options = kwargs if len(args) > 1 else {}
    if not (live(first) and live(second)):
        return func(*args, **kwargs)
    for factor, inverse in ((first, second), (second, first)):
        if hasattr(inverse, INVERSE) and func.__name__.strip("_") in ("mul", "rmul", "multiply"):
            return _times_inverse(settings, func, factor, inverse)
    return _two_factors(settings, func, lambda a, b: func(a, b, *rest, **options), first, second)


def _times_inverse(settings: Settings, func: Any, factor: Tensor, inverse: Tensor) -> Tensor:
    """Return a factor times an inverse r, with the multipliers of `_divided` written in r = 1 / b."""
    a, r = factor.detach(), inverse.detach()
    baseline = baseline_of(settings, func, a, r)
    if baseline is None:
        return factor * inverse
    a0, r0 = baseline
    path = 2 * r * r0 * factor + (r * a + r0 * a0) * inverse
    return valued(path / (r + r0), a * r)


def _two_factors(
    settings: Settings, func: Any, f: Callable[[Any, Any], Tensor], first: Tensor, second: Tensor
) -> Tensor:
    """Return f of two live factors, in each of which it is linear, with their multipliers."""
    a, b = first.detach(), second.detach()
    baseline = baseline_of(settings, func, a, b)
    if baseline is None:
        return f(first, second)
    path = f(first, (b + baseline[1]) / 2) + f((a + baseline[0]) / 2, second)
    return valued(path, f(a, b))


def _contraction(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Contract two factors that depend on the input as their product; more have no rule."""
    flat = [value for group in args for value in (group if isinstance(group, (tuple, list)) else (group,))]
    factors = [index for index, value in enumerate(flat) if live(value)]
    if len(factors) < _PAIR:
        return func(*args, **kwargs)
    if len(factors) > _PAIR or func.__name__ != "einsum":
        return run_without_rule(settings, func, args, kwargs)

    def f(a: Tensor, b: Tensor) -> Tensor:
        operands = list(flat)
        operands[factors[0]], operands[factors[1]] = a, b
        return cast("Tensor", func(*operands, **kwargs))

    return _two_factors(settings, func, f, flat[factors[0]], flat[factors[1]])


def _added_product(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Treat a term and a product as their sum."""
    options = {name: value for name, value in kwargs.items() if name in ("beta", "alpha", "value")}
    named = sorted((name != "input", name) for name in kwargs if name not in options)
    term, first, second = (*args, *(kwargs[name] for _, name in named))
    if not (live(first) and live(second)):
        return func(*args, **kwargs)
    zero = torch.zeros_like(term)
    product = _two_factors(settings, func, lambda a, b: func(zero, a, b, **options), first, second)
    return product + term * options.get("beta", 1)


def _quotient(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Divide; see `_divided`."""
    first, second = args if len(args) > 1 else (*args, kwargs["other"])
    turned = func.__name__ in ("__rdiv__", "__rtruediv__")
    above, below = (second, first) if turned else (first, second)
    if not live(below):
        return func(*args, **kwargs)
    if kwargs.get("rounding_mode") is not None:
        return run_without_rule(settings, func, args, kwargs)
    result, divisor = above / below, below.detach()
    baseline = baseline_of(settings, func, result, divisor)
    if baseline is None:
        return result
    # The constant terms of a difference drop out of the gradient.
    return valued(_divided(above, below, (result.detach(), baseline[0]), (divisor, baseline[1])), result)


def _linear(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a matrix, which has its own gradient; one that depends on the input is a factor."""
    x, weight, bias = arguments(args, kwargs, ("input", "weight", "bias"))
    if not (live(x) and live(weight)):
        return func(*args, **kwargs)
    output = _two_factors(settings, func, func, x, weight)
    return output if bias is None else output + bias


def _length(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take a Euclidean length, the root of a sum of squares; other lengths have no rule."""
    x, order, dim, keep = arguments(args, kwargs, ("input", "p", "dim", "keepdim"), keepdim=False)
    order = kwargs.get("ord", order)
    if not live(x):
        return func(*args, **kwargs)
    if order not in (None, 2, "fro"):
        return run_without_rule(settings, func, args, kwargs)
    length = func(*args, **kwargs)
    baseline = baseline_of(settings, func, x, length)
    if baseline is None:
        return length
    axes = tuple(range(x.dim())) if dim is None else dim
    path = ((x.detach() + baseline[0]) * x).sum(axes, keepdim=keep)
    return valued(path / (length.detach() + baseline[1]), length)


def _glu(settings: Settings, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, dim = arguments(args, kwargs, ("input", "dim"), dim=-1)
    with settings.mode:
        first, second = x.chunk(2, dim)
        return first * torch.sigmoid(second)


def _solve_triangular(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Solve AX = B for X: the rule of the product B = AX, solved for X, as that of a quotient."""
    matrix, right = args if len(args) > 1 else (*args, kwargs["B"])
    options = {name: value for name, value in kwargs.items() if name != "B"}
    if not live(matrix):
        return func(*args, **kwargs)
    if not options.get("left", True) or options.get("out") is not None:
        return run_without_rule(settings, func, args, kwargs)
    result, constant = func(matrix, right, **options), matrix.detach()
    baseline = baseline_of(settings, func, result, constant)
    if baseline is None:
        return result
    # The solver reads one triangle only, without its diagonal if that counts as ones.
    diagonal = int(options.get("unitriangular", False))
    triangle = matrix.triu(diagonal) if options["upper"] else matrix.tril(-diagonal)
    path = right - triangle @ ((result.detach() + baseline[0]) / 2)
    return valued(func((constant + baseline[1]) / 2, path, **options), result)


def _larger(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take the larger or smaller of two numbers: half their sum and, more or less, their distance."""
    first, second = args if len(args) > 1 else (*args, kwargs["other"])
    if not (live(first) and live(second)):
        return kinked(settings, func, args, kwargs)
    with settings.mode:
        distance = (first - second).abs()
        both = first + second
    path = both + distance if "max" in func.__name__ else both - distance
    return valued(path / 2, func(first.detach(), second.detach()))


def _variance(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take a variance along axes: the sum of centred squares by their number, less a correction."""
    x, axes = arguments(args, kwargs, ("input", "dim"))
    if not live(x):
        return func(*args, **kwargs)
    if len(args) > _PAIR or not isinstance(axes, (int, tuple, list)) or isinstance(axes, bool):
        return run_without_rule(settings, func, args, kwargs)
    variance = func(*args, **kwargs)
    correction = kwargs.get("correction", int(kwargs.get("unbiased", True)))
    count = x.detach().mean(axes).numel()
    with settings.mode:
        squares = (x - x.mean(axes, keepdim=True)).square().sum(axes, keepdim=kwargs.get("keepdim", False))
    return valued(squares / (x.numel() // count - correction), variance)


def _largest(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take the larger of two numbers; the largest along an axis has no rule."""
    pair = len(args) == _PAIR and isinstance(args[1], Tensor)
    return (_larger if pair else run_without_rule)(settings, func, args, kwargs)


def _softmax(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rescale the exponentials and their sum.

    With p the weights and m the logarithmic mean (p - p0) / (log p - log p0), the changes are
    dp = m (dx - sum(m dx) / sum(m)), exactly: as under the softmax's own gradient, with m for p.
    """
    return _soft(settings, func, args, kwargs, logs=False)


def _log_softmax(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take the logarithms of a softmax, which change by dx - sum(m dx) / sum(m)."""
    return _soft(settings, func, args, kwargs, logs=True)


def _soft(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, logs: bool) -> Any:
    x = args[0] if args else kwargs["input"]
    if not live(x):
        return func(*args, **kwargs)
    dim = kwargs.get("dim", args[_SOFTMAX_DIM] if len(args) > _SOFTMAX_DIM else None)
    at = x.detach()
    baseline = baseline_of(settings, func, at)
    if baseline is None:
        return func(*args, **kwargs)
    axis = -1 if dim is None else dim
    log_p, log_p0 = (_wide(item).log_softmax(axis) for item in (at, baseline[0]))
    apart = (log_p - log_p0).abs()
    ratio = torch.where(apart == 0, torch.ones_like(apart), -torch.expm1(-apart) / apart)
    # Scores that a mask hides in both passes give infinity less infinity, and have no weight.
    mean = (torch.maximum(log_p, log_p0).exp() * ratio).nan_to_num(nan=0.0)
    y = func(*((at, *args[1:]) if args else ()), **(kwargs | ({} if args else {"input": at})))
    shift = (mean * x).sum(axis, keepdim=True) / mean.sum(axis, keepdim=True)
    path = x - shift if logs else mean * (x - shift)
    return valued(path.to(y.dtype), y)


def _layer_norm(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("input", "normalized_shape", "weight", "bias", "eps")
    x, shape, weight, _, eps = arguments(args, kwargs, names, eps=1e-5)
    return _norm(settings, func, args, kwargs, (x, shape, weight, eps), centred=True)


def _rms_norm(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, shape, weight, eps = arguments(args, kwargs, ("input", "normalized_shape", "weight", "eps"))
    tiny = torch.finfo(x.dtype).eps if eps is None else eps
    return _norm(settings, func, args, kwargs, (x, shape, weight, tiny), centred=False)


def _norm(
    settings: Settings,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    parts: tuple[Tensor, Any, Tensor | None, float],
    *,
    centred: bool,
) -> Any:
    """Normalise: for each number, a product with the inverse root of the mean square."""
    x, shape, weight, eps = parts
    if not live(x):
        return func(*args, **kwargs)
    baseline = baseline_of(settings, func, x)
    y = func(*args, **kwargs)
    if baseline is None:
        return y
    axes = tuple(range(-len(tuple(shape)), 0))
    inputs, inputs0 = _wide(x), _wide(baseline[0])
    if centred:
        inputs, inputs0 = (item - item.mean(axes, keepdim=True) for item in (inputs, inputs0))
    at = inputs.detach()
    size, size0 = ((item.square().mean(axes, keepdim=True) + eps).sqrt() for item in (at, inputs0))
    grown = ((at + inputs0) * inputs).mean(axes, keepdim=True) / (size + size0)
    path = _divided(inputs, grown, (at / size, inputs0 / size0), (size, size0))
    return valued((path if weight is None else path * weight).to(y.dtype), y)


def _divided(
    above: Any, below: Tensor, results: tuple[Tensor, Tensor], divisors: tuple[Tensor, Tensor]
) -> Tensor:
    """Return the path of a quotient q = a / b, given its values and divisors in both passes.

    It is the rule of the product a = q b, solved for q: dq = (da - (q + q0) / 2 db) / ((b + b0) / 2). Unlike
    a product with 1 / b it stays bounded where b0 is almost nothing, as a norm's is on zero embeddings.
    """
    return (2 * above - sum(results) * below) / sum(divisors)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


@contextmanager
def rescaled_activations(model: nn.Module, rules: Differences) -> Iterator[None]:
    """Rescale each activation module of a borrowed model as one function, however many operations it runs."""
    with ExitStack() as stack:
        for module in activation_modules(model):
            unit = _Unit(rules)
            stack.callback(module.register_forward_pre_hook(unit.before).remove)
            stack.callback(module.register_forward_hook(unit.after, prepend=True).remove)
        yield


class _Unit:
    """Hooks of one activation module that hide its operations and make it one function."""

    def __init__(self, rules: Differences) -> None:
        self._rules = rules
        self._inputs: list[Tensor] = []

    def before(self, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Pass the module a constant: a forward pre-hook."""
        if len(args) != 1 or not live(args[0]):
            return None
        self._inputs.append(args[0])
        return (args[0].detach(),)

    def after(self, module: nn.Module, _: tuple[Any, ...], output: Any) -> Any:
        """Make the module's output a function of its input: a forward hook."""
        if not self._inputs:
            return None
        x = self._inputs.pop()
        if not isinstance(output, Tensor) or output.shape != x.shape:
            raise UnsupportedModelError(
                f"deeplift: {type(module).__name__} looks like an activation and changes the shape"
            )
        with self._rules.paused():
            at, y = x.detach(), output.detach()
            baseline = self._rules.baseline(type(module).__name__, at, y)
            # The baseline's pass takes no gradients, but later operations must still depend on the input.
            factor = torch.ones_like(at) if baseline is None else slopes(module.forward, at, y, *baseline)
            return valued(x * factor, y)


_KINKED = frozenset(
    """
    __abs__ abs absolute clamp clamp_max clamp_min clip fmax fmin hardshrink hardtanh leaky_relu maximum
    minimum prelu relu relu6 softshrink threshold
    """.split()
)
_SMOOTH = frozenset("cos exp exp2 log log10 log2 log_sigmoid sin".split()) | (
    (operations.ACTIVATIONS | operations.OFFSET_ACTIVATIONS | operations.GATES) - _KINKED
)
_CHOOSING = frozenset(
    """
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d amax amin aminmax cummax cummin kthvalue
    max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices
    median mode msort quantile rrelu sort topk
    """.split()
)
"""Operations that choose by size: on the baseline they may choose another number."""


def differences(*, insist: bool = False) -> Differences:
    """Return the context of both passes; see `Differences`."""
    return Differences(_table(), insist=insist)


def _table() -> Mapping[str, Handler | None]:
    groups: list[tuple[frozenset[str], Handler | None]] = [
        (operations.LINEAR - _KINKED - _CHOOSING, None),
        (operations.SUMS, None),
        (operations.PRODUCTS, _product),
        (operations.CONTRACTIONS, _contraction),
        (operations.ADDED_PRODUCTS, _added_product),
        (operations.QUOTIENTS, _quotient),
        (_SMOOTH, smooth),
        (_KINKED, kinked),
        (operations.POWERS, power),
        (frozenset(("reciprocal",)), reciprocal),
        (operations.CONVOLUTIONS, affine.convolution),
        (frozenset(("sqrt", "rsqrt")), root),
        (frozenset(("norm", "vector_norm")), _length),
        (frozenset(("max", "min")), _largest),
    ]
    single: dict[str, Handler | None] = {
        "linear": _linear,
        "glu": _glu,
        "layer_norm": _layer_norm,
        "rms_norm": _rms_norm,
        "batch_norm": None,
        **dict.fromkeys(("solve_triangular", "linalg_solve_triangular"), _solve_triangular),
        **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), _larger),
        "var": _variance,
        "softmax": _softmax,
        "log_softmax": _log_softmax,
        "scaled_dot_product_attention": attention.scaled_dot_product_attention,
        "multi_head_attention_forward": attention.multi_head_attention,
    }
    return {name: handler for names, handler in groups for name in names} | single
