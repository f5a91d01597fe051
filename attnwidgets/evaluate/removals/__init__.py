"""Removing parts of an input: the operators, the orders, and the predictions without them."""
