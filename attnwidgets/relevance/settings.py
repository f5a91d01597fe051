"""The settings of a run under the rules, and tests of the values in it."""

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
    """The settings of a run.

    Args:
        rule: "attnlrp" (the softmax as it is, products halved) or "cp_lrp" (attention weights and gates are
            constants).
        bias: "absorb" (a bias keeps its share of the relevance), "ignore" (denominators exclude it, so the
            inputs get all relevance), or "drop" (operations run without their biases; parameters stay).
        insist: Whether operations without a rule pass on their gradient instead of raising.
        mode: The rules themselves, for the operations inside a rule: active within `with mode:`.

    Source: Achtibat et al. 2024, section 3; Ali et al. 2022, section 4.
    """

    rule: Rule
    bias: Bias
    insist: bool
    mode: AbstractContextManager[Any]


def live(value: Any) -> bool:
    """Return whether a value depends on the input (no parameter requires a gradient in a run)."""
    return isinstance(value, Tensor) and value.requires_grad


def constant(value: Any) -> Any:
    """Return a value, detached from the graph."""
    return value.detach() if isinstance(value, Tensor) else value
