"""Blocks and heads of models as algebra: described, proved on the numbers of a real pass, and taken apart."""
