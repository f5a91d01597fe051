"""Features of an SAE changed while a model runs, and the texts that it then writes."""
