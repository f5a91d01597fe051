"""A reader's own method: registered, tried on small inputs, and told where it fails."""
