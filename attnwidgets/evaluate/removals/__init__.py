"""Removing parts of an input: by which operator, in which order, and what the model then predicts."""
