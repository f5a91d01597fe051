"""The settings of a run under the rules, and operations without a rule, which raise."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn
from torch.overrides import resolve_name

from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

Rule = Literal["attnlrp", "cp_lrp", "frozen"]
Gate = Literal["half", "fixed"]
Bias = Literal["absorb", "ignore", "drop", "share"]


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Args:
        rule: "attnlrp" (the softmax as it is, products halved), "cp_lrp" (attention weights and gates are
            constants) or "frozen" (everything in [0, 1] is a constant: weights of attention and of experts,
            sigmoids; other gates as `gate` says).
        bias: "absorb" (a bias keeps its share of the relevance), "ignore" (denominators exclude it, so the
            inputs get all relevance), "drop" (operations run without their biases; parameters stay), or
            "share" (of two parts, forwards: each in proportion to its size; see `two_parts.py`).
        insist: Whether operations without a rule pass on their gradient instead of raising.
        mode: The rules themselves, for the operations inside a rule: active within `with mode:`.
        gate: Under "frozen", whether an activation that is a factor gets half of the product, or is a
            constant ("fixed").

    Source: Achtibat et al. 2024, section 3; Ali et al. 2022, section 4.
    """

    rule: Rule
    bias: Bias
    insist: bool
    mode: AbstractContextManager[Any]
    gate: Gate = "fixed"

    @property
    def fixes_activations(self) -> bool:
        """Whether an activation is a constant where it is a factor."""
        return self.rule == "cp_lrp" or (self.rule == "frozen" and self.gate == "fixed")


def live(value: Any) -> bool:
    """Return whether a value depends on the input (no parameter requires a gradient in a run)."""
    return isinstance(value, Tensor) and value.requires_grad


def constant(value: Any) -> Any:
    """Return a value, detached from the graph."""
    return value.detach() if isinstance(value, Tensor) else value


def run_without_rule(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation that has no rule; raise, naming it, if relevance reaches it."""
    if settings.bias == "share":
        two_parts: Any = settings.mode
        return two_parts.unknown(func, args, kwargs)
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
