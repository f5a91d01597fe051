"""Transformers made by code in transformers' own classes, one model a file: every weight has a reason."""
