"""Parts of an input taken away, in which order, and what is left of the prediction."""
