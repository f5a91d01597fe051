"""Views of many texts: concepts, the influence of training texts, and a simpler model."""
