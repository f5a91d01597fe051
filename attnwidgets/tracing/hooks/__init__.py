"""Hook points of a model, and hooks that read or change the states there."""
