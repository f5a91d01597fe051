"""Options of CircuitsVis that our views do not have."""

from __future__ import annotations

import warnings


def say_unused(function: str, **options: object) -> None:
    """Warn of options that were passed and have no effect.

    Args:
        function: Name of the function.
        options: The options it ignores, None if they were not passed.
    """
    if given := [name for name, value in options.items() if value is not None]:
        warnings.warn(
            f"{function}() ignores {', '.join(given)}: colours are those of the notebook's theme, and their "
            "range is printed next to them.",
            UserWarning,
            stacklevel=3,
        )
