"""The activations of every feature of an SAE on a corpus."""
