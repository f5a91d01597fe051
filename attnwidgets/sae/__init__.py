"""Sparse autoencoders: load anyone's, train your own, see what features mean, steer with them."""
