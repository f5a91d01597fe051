"""Methods that say how much every element of the input speaks for a target."""
