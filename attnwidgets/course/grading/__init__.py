"""Answers are compared with a key."""
