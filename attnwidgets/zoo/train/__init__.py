"""Training of the models of `aw.zoo.trained`: a recipe per file, and a loop that all of them share."""
