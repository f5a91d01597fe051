"""Operations without a rule: they run, and raise if relevance reaches them in the backward pass."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.overrides import resolve_name

from attnwidgets.relevance.settings import live
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnwidgets.relevance.settings import Settings


def run_without_rule(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation that has no rule; raise, naming it, if relevance reaches it."""
    result = func(*args, **kwargs)
    if not settings.insist:
        for output in result if isinstance(result, (tuple, list)) else (result,):
            if live(output):
                output.register_hook(_refusal(func))
    return result


def _refusal(func: Any) -> Callable[[Tensor], None]:
    name = resolve_name(func) or getattr(func, "__name__", str(func))
    where = _calling_module()

    def refuse(_: Tensor) -> None:
        raise UnsupportedModelError(
            f"there is no relevance rule for {name}{f', called in {where}' if where else ''}; with "
            "force=True its gradient is used, and relevance is not conserved there"
        )

    return refuse


def _calling_module() -> str:
    """Return the class of the module whose code is running."""
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to find the caller
    while frame.f_back is not None:
        frame = frame.f_back
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            return type(owner).__name__
    return ""
