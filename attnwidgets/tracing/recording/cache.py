"""A model's cache of keys and values: its names, and whether it serves as a prefix, cut and copied."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# The later name first: where it exists, transformers warns of the earlier name.
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
    result = (getattr(outputs, name, None) for name in NAMES)
    return next((cache for cache in result if cache is not None), None)


def prefix_in(outputs: Any, first: int, behind: int = 0) -> Any:
    """Return the cache that a run returned if it holds the first tokens and can be copied; otherwise None.

    Args:
        outputs: The outputs of the run.
        first: Number of the tokens.
        behind: Number of tokens that the run read after them; they are cut off.
    """
    cache = cache_returned(outputs)
    if behind:
        cache = _cut(cache, behind)
    is_prefix = (
        cache is not None
        and hasattr(cache, "layers")
        and hasattr(cache, "batch_repeat_interleave")
        and cache.get_seq_length() == first
        # A recurrent state is not copied with the keys and values.
        and not any(hasattr(layer, "recurrent_states") for layer in cache.layers)
    )
    return cache if is_prefix else None


def _cut(cache: Any, count: int) -> Any:
    """Return a cache without its last tokens; None if its layers do not hold all keys and values."""
    from transformers.cache_utils import DynamicLayer

    # A window or a recurrent state has dropped earlier tokens.
    if not all(type(layer) is DynamicLayer for layer in getattr(cache, "layers", (None,))):
        return None
    duplicate = _shallow(cache)
    duplicate.crop(-count)
    return duplicate


def cache_copies(cache: Any, copies: int) -> Any:
    """Return a cache to append to, in copies; its tensors are replaced, never written into."""
    duplicate = _shallow(cache)
    duplicate.batch_repeat_interleave(copies)
    return duplicate


def _shallow(cache: Any) -> Any:
    duplicate = copy.copy(cache)
    duplicate.layers = [copy.copy(layer) for layer in cache.layers]
    return duplicate
