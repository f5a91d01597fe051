"""Views of attention heads: all of them, one layer of them, and how one weight is computed."""
