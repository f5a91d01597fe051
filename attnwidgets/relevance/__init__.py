"""Relevance propagation by operation: rules that replace gradients in a model's own code."""
