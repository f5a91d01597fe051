"""Views of a text: its coloured tokens, its attributions and its predictions."""
