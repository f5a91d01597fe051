"""Methods that fit a simple model to the answers of the model when elements are removed."""
