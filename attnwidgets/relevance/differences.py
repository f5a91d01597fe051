"""Two passes under one function mode: the baseline's values are kept, the input's are compared with them."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from torch.autograd import Function

from attnwidgets.relevance.rules import Rules
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from attnwidgets.relevance.rules import Handler
    from attnwidgets.relevance.settings import Settings


class Differences(Rules):
    """A context in which operations get multipliers; entered for the baseline, then for the input.

    Args:
        table: Handlers by name of operation; None if an operation's own gradient is the rule.
        insist: Whether operations without a rule pass on their gradient instead of raising.
    """

    def __init__(self, table: Mapping[str, Handler | None], *, insist: bool = False) -> None:
        super().__init__("attnlrp", insist=insist)
        self._table = table
        self._kept: deque[tuple[str, tuple[Tensor, ...]]] = deque()
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
        """Keep an operation's values and return None; in the second pass return those of the baseline.

        Raises:
            UnsupportedModelError: If the model runs other operations, or other shapes, on the baseline.
        """
        if self._recording:
            # Copies: a model may write into its residual stream.
            self._kept.append((name, tuple(value.detach().clone() for value in values)))
            return None
        other, kept = self._kept.popleft() if self._kept else ("none", ())
        if other != name or [one.shape for one in kept] != [one.shape for one in values]:
            how = f"gives {name} numbers of another shape" if other == name else f"runs {other} for {name}"
            raise UnsupportedModelError(
                f"deeplift: on the baseline the model {how}: which operations it runs depends on the numbers "
                "that it reads (as the choice of experts does), so differences have nothing to go back "
                "through; aw.integrated_gradients needs no rules"
            )
        return kept


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
    """Return `value`; its gradient is that of `path`, which is linear in what depends on the input."""
    return cast("Tensor", _Valued.apply(path, value.detach()))  # type: ignore[no-untyped-call]  # torch's


def baseline_of(settings: Settings, func: Any, *values: Tensor) -> tuple[Tensor, ...] | None:
    """Return an operation's values on the baseline; None while that pass runs."""
    name = getattr(func, "__name__", str(func))
    return cast("Differences", settings.mode).baseline(name, *values)
