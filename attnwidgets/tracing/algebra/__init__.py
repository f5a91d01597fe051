"""Transformer blocks and output heads as algebra, checked against the numbers of a real forward pass."""
