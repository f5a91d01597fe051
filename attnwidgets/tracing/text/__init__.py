"""Tokens as readers see them, and the units in which they are read."""
