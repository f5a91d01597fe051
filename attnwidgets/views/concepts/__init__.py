"""Views of many texts: concepts, what training taught, and a simpler model."""
