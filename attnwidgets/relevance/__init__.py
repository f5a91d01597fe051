"""Relevance propagation by operation: rules that replace gradients while a model runs, its code untouched."""
