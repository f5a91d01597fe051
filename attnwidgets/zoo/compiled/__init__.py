"""Models compiled into transformers' classes, a model per file: every weight has a documented reason."""
