"""Change a model for a while: context managers that always undo themselves, one a file."""
