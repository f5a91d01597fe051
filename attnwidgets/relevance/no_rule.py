"""Operations without a rule: let through, and refused by name if relevance comes back to them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.overrides import resolve_name

from attnwidgets.relevance.settings import live
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnwidgets.relevance.settings import Settings


def unknown(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let an operation through; relevance that comes back to it is refused by name."""
    found = func(*args, **kwargs)
    if not settings.insist:
        for output in found if isinstance(found, (tuple, list)) else (found,):
            if live(output):
                output.register_hook(_refusal(func))
    return found


def _refusal(func: Any) -> Callable[[Tensor], None]:
    name = resolve_name(func) or getattr(func, "__name__", str(func))
    where = _calling_module()

    def refuse(_: Tensor) -> None:
        raise UnsupportedModelError(
            f"there is no relevance rule for {name}{f', called in {where}' if where else ''}; force=True "
            "lets its gradient pass, and relevance is then no longer conserved there"
        )

    return refuse


def _calling_module() -> str:
    """Return the class of the module whose code is running."""
    frame = sys._getframe(1)  # noqa: SLF001 - the one way to say whose code called
    while frame.f_back is not None:
        frame = frame.f_back
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            return type(owner).__name__
    return ""
