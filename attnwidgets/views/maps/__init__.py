"""Views of matrices."""
