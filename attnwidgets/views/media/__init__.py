"""Views of pictures and sound."""
