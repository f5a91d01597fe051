"""Explanations and views leaving the notebook: archives, figures, standalone pages."""
