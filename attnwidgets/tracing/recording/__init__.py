"""Recording one pass of a model: its inputs, the attention that is kept, and the model left as it was."""
