"""Views of attention heads: all heads, those of a layer, and how a weight is computed."""
