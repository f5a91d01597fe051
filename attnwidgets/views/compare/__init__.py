"""Views that compare explanations of a text, or follow tokens from layer to layer."""
