"""Models made by code in transformers' own classes, one model per file: every weight has a reason."""
