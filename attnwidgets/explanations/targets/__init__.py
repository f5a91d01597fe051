"""Targets: the numbers that explanations are about, named by class, token, span, ... (`aw.targets`)."""

from __future__ import annotations

from attnwidgets.explanations.targets.named import (
    answer,
    attention,
    embedding_dot,
    embedding_norm,
    function,
    generated,
    label,
    span,
    token,
)
from attnwidgets.explanations.targets.resolve import Target

__all__ = [
    "Target",
    "answer",
    "attention",
    "embedding_dot",
    "embedding_norm",
    "function",
    "generated",
    "label",
    "span",
    "token",
]


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
