"""Tokens as a reader sees them, and the units in which they are read."""
