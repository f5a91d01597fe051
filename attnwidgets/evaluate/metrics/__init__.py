"""Questions asked of an explanation, one a file."""
