"""What models call keys and values of earlier tokens: past_key_values, from transformers 5.24 on cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# The later name first: where it is there, transformers warns of the earlier one.
NAMES = ("cache", "past_key_values")


def cache_parameter(takes: Collection[str]) -> str | None:
    """Return the name of the parameter that takes a cache; None if a forward has none.

    Args:
        takes: The names of its parameters.
    """
    return next((name for name in NAMES if name in takes), None)


def cache_given(arguments: Mapping[str, Any]) -> Any:
    """Return the cache among a forward's arguments; None if there is none."""
    return next((arguments[name] for name in NAMES if arguments.get(name) is not None), None)


def cache_returned(outputs: Any) -> Any:
    """Return the cache that a model returned; None if there is none."""
    found = (getattr(outputs, name, None) for name in NAMES)
    return next((cache for cache in found if cache is not None), None)
