"""The rescale rule of DeepLIFT: two passes under one mode, and the quotient of their differences.

Source: Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences,
section 3.5.2.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from attnwidgets._gradients import enable_grad
from attnwidgets.relevance.rules import Rules
from attnwidgets.relevance.settings import live, run_without_rule
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from attnwidgets.relevance.rules import Handler
    from attnwidgets.relevance.settings import Settings

INVERSE = "_attnwidgets_inverse"
"""Name of the mark on the result of a root's inverse, which is positive."""


def slopes(f: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, x0: Tensor, y0: Tensor) -> Tensor:
    """Return (y - y0) / (x - x0); where that is 0 / 0 or nearly so, the derivative half-way.

    Source: Shrikumar et al. 2017, equation 15.
    """
    change = x - x0
    # At this size the rounding of the quotient equals the error of the derivative half-way.
    tolerance = torch.finfo(x.dtype).eps ** (1 / 3)
    size = torch.maximum(x.abs(), x0.abs()).clamp(max=1)
    near = change.abs() <= tolerance * size
    with enable_grad():
        middle = ((x + x0) / 2).requires_grad_()
        between = torch.autograd.grad(f(middle).sum(), middle)[0]
    return torch.where(near, between, (y - y0) / torch.where(near, torch.ones_like(change), change))


def _one_live(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], int]:
    """Return arguments with `input` first, the other keywords, and the index of the only live one, or -1."""
    options = dict(kwargs)
    if "input" in options:
        args = (options.pop("input"), *args)
    indices = [index for index, value in enumerate(args) if live(value)]
    is_only = len(indices) == 1 and not any(map(live, options.values()))
    return args, options, indices[0] if is_only else -1


def smooth(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rescale a smooth function of one number."""
    return _rescaled(settings, func, args, kwargs, slopes)


def kinked(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rescale a function made of straight pieces: its quotients are exact however small the change."""

    def exact(f: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, x0: Tensor, y0: Tensor) -> Tensor:
        same = x == x0
        quotients = (y - y0) / torch.where(same, torch.ones_like(x), x - x0)
        with enable_grad():
            at = x.clone().requires_grad_()
            here = torch.autograd.grad(f(at).sum(), at)[0]
        return torch.where(same, here, quotients)

    return _rescaled(settings, func, args, kwargs, exact)


def _rescaled(
    settings: Settings,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    multipliers: Callable[..., Tensor],
) -> Any:
    if not any(map(live, (*args, *kwargs.values()))):
        return func(*args, **kwargs)
    args, options, index = _one_live(args, kwargs)
    if index < 0:
        return run_without_rule(settings, func, args, options)
    # F.silu(x, True) and the like write into x.
    flags = [value for value in args if value is True or value is False]
    in_place = bool(options.pop("inplace", False)) or any(flags)
    rest = [value for value in args if value is not True and value is not False]
    x = rest[index]

    def f(states: Tensor) -> Tensor:
        output: Tensor = func(*rest[:index], states, *rest[index + 1 :], **options)
        return output

    at = x.detach()
    y = f(at)
    baseline = baseline_of(settings, func, at, y) if y.shape == at.shape else ()
    if baseline is None:
        output = f(x)
    elif not baseline:
        return run_without_rule(settings, func, args, options)
    else:
        output = valued(x * multipliers(f, at, y, *baseline), y)
    return x.copy_(output) if in_place else output


def root(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rescale a root or its inverse, by the quotient's closed form."""
    name = func.__name__.strip("_")
    output = _rescaled(settings, func, args, kwargs, _POWERS[name])
    if name != "sqrt" and live(output):
        setattr(output, INVERSE, True)
    return output


def reciprocal(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rescale an inverse."""
    return _rescaled(settings, func, args, kwargs, _POWERS["reciprocal"])


def power(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rescale a power; those of norms by the quotient's closed form."""
    exponent = 2.0 if func.__name__ == "square" else (args[1] if len(args) > 1 else kwargs.get("exponent"))
    if isinstance(exponent, Tensor) and exponent.numel() == 1 and not live(exponent):
        exponent = exponent.item()
    if not isinstance(exponent, (int, float)):
        return run_without_rule(settings, func, args, kwargs)
    names = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
    multipliers = _POWERS.get(names.get(float(exponent), ""), slopes)
    return _rescaled(settings, func, args, kwargs, multipliers)


_POWERS: dict[str, Callable[..., Tensor]] = {
    "square": lambda _f, x, _y, x0, _y0: x + x0,
    "sqrt": lambda _f, _x, y, _x0, y0: 1 / (y + y0),
    "rsqrt": lambda _f, _x, y, _x0, y0: -y * y0 * (y * y0 / (y + y0)),
    "reciprocal": lambda _f, _x, y, _x0, y0: -y * y0,
}


class Differences(Rules):
    """A context in which operations get multipliers; entered for the baseline, then for the input.

    Args:
        table: Handlers by name of operation; None if an operation's own gradient is the rule.
        insist: Whether operations without a rule pass on their gradient instead of raising.
    """

    def __init__(self, table: Mapping[str, Handler | None], *, insist: bool = False) -> None:
        super().__init__("attnlrp", insist=insist)
        self._table = table
        self._baseline: deque[tuple[str, tuple[Tensor, ...]]] = deque()
        self._recording, self._paused = True, False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation under its rule."""
        if self._paused:
            return func(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run operations as they are."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def compare(self) -> None:
        """Begin the second pass: the baseline has run."""
        self._recording = False

    def baseline(self, name: str, *values: Tensor) -> tuple[Tensor, ...] | None:
        """Store an operation's values and return None; in the second pass return those of the baseline.

        Raises:
            UnsupportedModelError: If the model runs other operations, or other shapes, on the baseline.
        """
        if self._recording:
            # Copies: a model may write into its residual stream.
            self._baseline.append((name, tuple(value.detach().clone() for value in values)))
            return None
        operation, stored = self._baseline.popleft() if self._baseline else ("none", ())
        if operation != name or [item.shape for item in stored] != [entry.shape for entry in values]:
            is_same = operation == name
            how = f"gives {name} numbers of another shape" if is_same else f"runs {operation} for {name}"
            raise UnsupportedModelError(
                f"deeplift: on the baseline the model {how}: which operations it runs depends on the numbers "
                "that it reads (as the choice of experts does), so differences have nothing to go back "
                "through; aw.integrated_gradients needs no rules"
            )
        return stored


class _Valued(Function):
    """A value whose gradient goes to another tensor, of which only the gradient counts."""

    @staticmethod
    def forward(ctx: Any, path: Tensor, value: Tensor) -> Tensor:
        """Return the value."""
        del ctx, path
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the path."""
        del ctx
        return gradients[0], None


def valued(path: Tensor, value: Tensor) -> Tensor:
    """Return `value`; its gradient is that of `path`, which is linear in all that depends on the input."""
    return cast("Tensor", _Valued.apply(path, value.detach()))  # type: ignore[no-untyped-call]  # torch's


def baseline_of(settings: Settings, func: Any, *values: Tensor) -> tuple[Tensor, ...] | None:
    """Return an operation's values on the baseline; None while that pass runs."""
    name = getattr(func, "__name__", str(func))
    return cast("Differences", settings.mode).baseline(name, *values)
