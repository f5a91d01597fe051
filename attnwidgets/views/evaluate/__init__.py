"""Views of scores, and of predictions without parts of the input."""
