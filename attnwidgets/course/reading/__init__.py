"""Answers are read from files, without a kernel."""
