"""Run a model once and record it: `trace`, `from_attentions`, and what they return."""
