"""What all rules of one run go by, and what they ask of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

Rule = Literal["attnlrp", "cp_lrp"]
Bias = Literal["absorb", "ignore", "drop"]


@dataclass(frozen=True)
class Settings:
    """What a run was asked for.

    Args:
        rule: "attnlrp" (the softmax as it is, products halved) or "cp_lrp" (attention weights and gates are
            constants).
        bias: "absorb" (a bias keeps its share of the relevance), "ignore" (denominators are without it: the
            inputs take all), or "drop" (operations run without their biases; no parameter is written).
        insist: Whether what has no rule passes its own gradient on instead of being refused.
        mode: The rules themselves, for the operations that a rule is made of: on within `with mode:`.

    Source: Achtibat et al. 2024, section 3; Ali et al. 2022, section 4.
    """

    rule: Rule
    bias: Bias
    insist: bool
    mode: AbstractContextManager[Any]


def live(value: Any) -> bool:
    """Return whether a value depends on the input (meanwhile no parameter requires a gradient)."""
    return isinstance(value, Tensor) and value.requires_grad


def constant(value: Any) -> Any:
    """Return a value as a constant of the graph."""
    return value.detach() if isinstance(value, Tensor) else value
