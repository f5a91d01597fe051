"""Options of CircuitsVis that our views have no counterpart of."""

from __future__ import annotations

import warnings


def say_unused(function: str, **options: object) -> None:
    """Warn of options that were given and are not followed."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        message = (
            f"{function}() does not follow {', '.join(given)}: colours are those of the notebook's theme, "
            "and the range that they stand for is printed beside them."
        )
        warnings.warn(message, UserWarning, stacklevel=3)
