"""Views of attention heads: all of them, one of them, and how one weight comes about."""
