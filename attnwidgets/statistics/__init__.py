"""Statistics of attention heads (`aw.statistics`): each is a function of a trace or a map.

In: a trace or a map. Out: numbers [layer, head], collected in a `HeadStatistics` table. Begin with
`rows.py`, then `statistic.py` for how a statistic registers itself. A statistic reads long maps in blocks
of rows and runs no model; `head_importance.py` is the exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnwidgets._facade import complete
from attnwidgets.statistics.free_attention import effective_attention, free_attention
from attnwidgets.statistics.head_importance import head_importance
from attnwidgets.statistics.head_statistics import averaged, head_statistics, similar_heads
from attnwidgets.statistics.induction import induction_score, prefix_matching, repeated_tokens
from attnwidgets.statistics.norm_weights import norm_weights
from attnwidgets.statistics.patterns import head_patterns
from attnwidgets.statistics.retrieval import copied_share, retrieval_score
from attnwidgets.statistics.rows import RECEIVER as RECEIVER
from attnwidgets.statistics.rows import (
    cls_entropy,
    diagonal,
    duplicate_token,
    entropy,
    first_token,
    mean_distance,
    next_token,
    no_token,
    other_sentences,
    other_text,
    previous_token,
    relative_entropy,
    same_word,
    separators,
    special_tokens,
)
from attnwidgets.statistics.sinks import attention_sinks, inner_sink, sink_importance, sink_rate
from attnwidgets.statistics.statistic import statistics

__all__ = [
    "attention_sinks",
    "averaged",
    "cls_entropy",
    "copied_share",
    "diagonal",
    "duplicate_token",
    "effective_attention",
    "entropy",
    "first_token",
    "free_attention",
    "head_importance",
    "head_patterns",
    "head_statistics",
    "induction_score",
    "inner_sink",
    "mean_distance",
    "next_token",
    "no_token",
    "norm_weights",
    "other_sentences",
    "other_text",
    "prefix_matching",
    "previous_token",
    "relative_entropy",
    "repeated_tokens",
    "retrieval_score",
    "same_word",
    "separators",
    "similar_heads",
    "sink_importance",
    "sink_rate",
    "special_tokens",
    "statistics",
]


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)


if not TYPE_CHECKING:  # type checkers would take any name for an attribute
    __getattr__ = complete(__name__)
