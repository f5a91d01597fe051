"""Handouts from one source, keys with margins, and what other graders need."""
