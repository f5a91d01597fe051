"""Attacks on explanations: changes that keep a prediction and move its explanation."""
