"""Methods that say how much of every token is in every other, one a file."""
