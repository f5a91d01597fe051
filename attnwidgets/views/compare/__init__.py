"""Views that compare explanations of one text, or follow tokens from layer to layer."""
