"""Methods that fit a simple model to what the model answers when elements are removed."""
