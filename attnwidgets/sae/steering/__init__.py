"""Features of an SAE changed while a model runs, and what becomes of a text then."""
