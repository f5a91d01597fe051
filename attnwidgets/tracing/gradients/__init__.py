"""A traced model run again with gradients."""
