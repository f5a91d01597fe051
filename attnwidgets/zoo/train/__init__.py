"""How the trained models of `aw.zoo` are trained: a recipe per file, and one loop."""
