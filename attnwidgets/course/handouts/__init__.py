"""Handouts from one source, keys with margins, and files for other graders."""
