"""Views of a text: its tokens coloured, its attributions, its predictions."""
