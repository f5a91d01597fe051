"""Training of sparse autoencoders: states harvested, steps, checkpoints, history."""
