"""Methods that measure how much of each token is in each other token."""
