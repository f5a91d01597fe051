"""Differentiable runs of a traced model."""
