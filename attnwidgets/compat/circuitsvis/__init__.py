"""Functions of CircuitsVis 1.43: `import attnwidgets.compat.circuitsvis as cv` instead of `circuitsvis`."""

from __future__ import annotations

from attnwidgets.compat.circuitsvis import attention, tokens
from attnwidgets.compat.circuitsvis.attention import attention_heads, attention_pattern, attention_patterns
from attnwidgets.compat.circuitsvis.tokens import colored_tokens, colored_tokens_multi

__all__ = [
    "attention",
    "attention_heads",
    "attention_pattern",
    "attention_patterns",
    "colored_tokens",
    "colored_tokens_multi",
    "tokens",
]
