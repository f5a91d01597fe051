"""The view of a model over the steps of its training."""
