"""States in two parts, carried forward through the operations of any block: contextual decomposition.

The relevant part travels as the tangent of the state, in torch's forward mode, whose rule for everything that
is linear is that of the parts. The other operations get the rules of `algebra.two_parts`: the relevant part
of a function is f(whole) - f(irrelevant), half of a product follows the parts of each factor, and a bias is
shared. Constants are the factors that "frozen" holds; see `Settings`.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from attnwidgets.relevance import affine, operations
from attnwidgets.relevance.affine import arguments, split
from attnwidgets.relevance.backward import Activation, activation_modules, pass_relevance
from attnwidgets.relevance.products import first_input, gating, size
from attnwidgets.relevance.rules import Rules, table
from attnwidgets.relevance.settings import live, run_without_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import nn

    from attnwidgets.relevance.rules import Handler
    from attnwidgets.relevance.settings import Gate, Settings

_KINKED = frozenset("__abs__ abs absolute leaky_relu prelu relu relu6 threshold".split())  # noqa: SIM905
_PAIR = 2


class TwoPartRules(Rules):
    """A context in which states are carried in two parts, within a level of torch's forward mode.

    Args:
        gate: See `Settings`.

    Attributes:
        without_rule: Names of the operations without a rule. Their relevant part is NaN: it does no harm
            where the result is held as a constant, and shows where it is not.
    """

    def __init__(self, gate: Gate) -> None:
        super().__init__("frozen", "share", gate=gate)
        self._table = _table()
        self.without_rule: list[str] = []

    def unknown(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation that has no rule."""
        result = func(*map(_whole, args), **{name: _whole(value) for name, value in kwargs.items()})
        many = isinstance(result, (tuple, list))
        marked = [self._marked(each, func) for each in (result if many else (result,))]
        return type(result)(marked) if many else marked[0]

    def _marked(self, result: Any, func: Any) -> Any:
        """Return a result that depends on a state with a relevant part of NaN; all else as it is."""
        if not live(result):
            return result
        self.without_rule.append(getattr(func, "__name__", str(func)))
        return forward_ad.make_dual(result, torch.full_like(result, torch.nan))


def _whole(value: Any) -> Any:
    """Return a state in two parts as a whole; all else as it is."""
    return forward_ad.unpack_dual(value).primal if live(value) else value


def _table() -> Mapping[str, Handler | None]:
    functions = operations.ACTIVATIONS | operations.OFFSET_ACTIVATIONS | operations.CLAMPS | _KINKED
    groups: list[tuple[frozenset[str], Handler]] = [
        (functions, _function),
        (operations.PRODUCTS, _product),
        (operations.CONTRACTIONS, _contraction),
        (operations.ADDED_PRODUCTS, _added_product),
        (operations.POWERS, _power),
    ]
    handlers: dict[str, Handler | None] = {name: handler for names, handler in groups for name in names}
    handlers |= dict.fromkeys(("_make_dual", "_unpack_dual"))
    return {
        **table("share"),
        **handlers,
        "linear": _linear,
        "layer_norm": _layer_norm,
        "bilinear": run_without_rule,
    }


def _function(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a function to both parts: its value at the irrelevant part alone is irrelevant."""
    x, rest, options = first_input(args, kwargs)
    if not live(x):
        return func(*args, **kwargs)
    if any(map(live, (*rest, *options.values()))):
        return run_without_rule(settings, func, args, kwargs)
    in_place = options.pop("inplace", False) or any(value is True for value in rest)
    rest = tuple(value for value in rest if not isinstance(value, bool))
    output = parts_of_function(x, lambda states: func(states, *rest, **options))
    return x.copy_(output) if in_place else output


def parts_of_function(x: Tensor, function: Callable[[Tensor], Tensor], value: Tensor | None = None) -> Tensor:
    """Return a function of a state in two parts; its value there may be known."""
    whole, relevant = split(x)
    alone = function(whole.detach() - relevant)
    y = pass_relevance(Activation, whole, function if value is None else lambda _: value, bounded=False)
    return forward_ad.make_dual(y, y.detach() - alone)


def _product(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let half of a product follow the parts of each factor; a factor that is a gate is a constant."""
    first, second, *rest = args if len(args) > 1 else (*args, *kwargs.values())
    if not (live(first) and live(second)):
        return func(*args, **kwargs)
    options = kwargs if len(args) > 1 else {}
    gates = gating(settings, first), gating(settings, second)
    if gates[0] != gates[1]:
        factors = (first.detach(), second) if gates[0] > gates[1] else (first, second.detach())
        return func(*factors, *rest, **options)
    return _halves(first, second, lambda a, b: func(a, b, *rest, **options))


def _halves(first: Tensor, second: Tensor, multiply: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    (a, of_a), (b, of_b) = split(first), split(second)
    relevant = (multiply(of_a, b.detach()) + multiply(a.detach(), of_b)) / 2
    return forward_ad.make_dual(multiply(a, b), relevant)


def _contraction(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Contract two factors as a product; more have no rule."""
    flat = [value for group in args for value in (group if isinstance(group, (tuple, list)) else (group,))]
    factors = [index for index, value in enumerate(flat) if live(value)]
    if len(factors) < _PAIR:
        return func(*args, **kwargs)
    if len(factors) > _PAIR:
        return run_without_rule(settings, func, (tuple(flat),), kwargs)

    def multiply(a: Tensor, b: Tensor) -> Tensor:
        operands = list(flat)
        operands[factors[0]], operands[factors[1]] = a, b
        return cast("Tensor", func(*operands, **kwargs))

    return _halves(flat[factors[0]], flat[factors[1]], multiply)


def _added_product(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Treat a term and a product as their sum; a constant term is a bias."""
    options = {name: value for name, value in kwargs.items() if name in ("beta", "alpha", "value")}
    named = sorted((name != "input", name) for name in kwargs if name not in options)
    term, first, second = (*args, *(kwargs[name] for _, name in named))
    zero = torch.zeros_like(term)
    if live(first) and live(second):
        product = _product(settings, lambda a, b: func(zero, a, b, **options), (first, second), {})
        return product + term * options.get("beta", 1)
    if live(term):
        return func(term, first, second, **options)
    return affine.run_with_bias(settings, func, (term, first, second), options, (zero, first, second))


def _power(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take a power, a function of its base; a root is a size, which is a constant."""
    exponent: Any = 2.0
    if getattr(func, "__name__", "") != "square":
        exponent = args[1] if len(args) > 1 else kwargs.get("exponent")
    if isinstance(exponent, (int, float)) and exponent < 1:
        return size(settings, func, args, kwargs)
    return _function(settings, func, args, kwargs)


def _linear(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a matrix and share its bias."""
    x, weight, bias = arguments(args, kwargs, ("input", "weight", "bias"))
    if live(weight):
        return run_without_rule(settings, func, args, kwargs)
    if bias is None:
        return func(x, weight)
    return affine.run_with_bias(settings, func, (x, weight, bias), {}, (x, weight))


def _layer_norm(_: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Divide both parts by the deviation of their sum, and share the shift."""
    names = ("input", "normalized_shape", "weight", "bias", "eps")
    x, shape, weight, bias, eps = arguments(args, kwargs, names, eps=1e-5)
    if not live(x):
        return func(*args, **kwargs)
    axes = tuple(range(-len(tuple(shape)), 0))
    centred = x - x.mean(axes, keepdim=True)
    deviation = (centred.detach().square().mean(axes, keepdim=True) + eps).sqrt()
    output = centred / deviation if weight is None else centred / deviation * weight
    return output if bias is None else affine.shared_bias(output + bias, output)


@contextmanager
def activations_in_two_parts(model: nn.Module) -> Iterator[None]:
    """Make each activation module of a borrowed model one function of both parts."""
    with ExitStack() as stack:
        for module in activation_modules(model):
            unit = _Unit()
            stack.callback(module.register_forward_pre_hook(unit.before).remove)
            stack.callback(module.register_forward_hook(unit.after, prepend=True).remove)
        yield


class _Unit:
    """Hooks of one activation module that hide its operations and make it one function."""

    def __init__(self) -> None:
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
            return None
        return parts_of_function(x, module.forward, output.clone())
