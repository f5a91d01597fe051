"""The error for methods that a trace or its model does not allow."""


class UnsupportedModelError(ValueError):
    """The attention of a model cannot be recorded faithfully; the message says why and what still works."""
