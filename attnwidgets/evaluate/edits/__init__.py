"""Edits of a text that change what a model answers."""
