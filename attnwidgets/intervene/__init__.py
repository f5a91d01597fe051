"""Interventions: context managers that change a model and restore it on exit, one per file."""
