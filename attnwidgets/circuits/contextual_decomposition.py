"""Contextual decomposition: of tokens, and (`component_relevance`) of heads and MLPs."""

from attnwidgets.explanations.attribution.contextual_decomposition import contextual_decomposition

__all__ = ["contextual_decomposition"]
