"""Attacks on explanations: changes that keep a prediction and move what explains it."""
