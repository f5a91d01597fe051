"""How the trained models of `aw.zoo` are trained: a recipe a file, and one loop."""
