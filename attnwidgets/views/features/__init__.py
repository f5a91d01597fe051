"""What the views of SAE features have in common."""
