"""Attention functions of CircuitsVis."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.arrays import as_floats
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.tracing.from_attentions import axis_of_tokens
from attnwidgets.views.heads.head_view import HeadGrid
from attnwidgets.views.maps.heatmap import Heatmap

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADS, _PATTERN = 3, 2


def attention_heads(
    attention: Any,
    tokens: Sequence[str],
    attention_head_names: Sequence[str] | None = None,
    max_value: float | None = None,
    min_value: float | None = None,
    negative_color: str | None = None,
    positive_color: str | None = None,
    mask_upper_tri: bool | None = None,
) -> HeadGrid:
    """Show a group of heads as thumbnails, with the signature of CircuitsVis' `attention_heads`.

    Args:
        attention: [head, destination, source]: rows are queries, columns are keys.
        tokens: A string per token.
        attention_head_names: Names of the heads, shown in the title: 0 is the first.
        max_value: Ignored with a warning: the range is that of the numbers.
        min_value: Ignored with a warning.
        negative_color: Ignored with a warning.
        positive_color: Ignored with a warning.
        mask_upper_tri: Whether keys after a query are hidden. By default only if they are all zero
            (CircuitsVis hides them by default); True hides them and says how much attention that was.

    Raises:
        ValueError: If the shape or the number of names or tokens does not match, or a value is NaN.
    """
    say_unused(
        "attention_heads",
        max_value=max_value,
        min_value=min_value,
        negative_color=negative_color,
        positive_color=positive_color,
    )
    heads = _map(attention, tokens, _HEADS, "[head, destination, source]", mask_upper_tri)
    names = list(attention_head_names or ())
    if names and len(names) != len(heads.heads or ()):
        raise ValueError(f"attention_head_names has {len(names)} names for {len(heads.heads or ())} heads.")
    return HeadGrid(heads, title=", ".join(f"{number}: {name}" for number, name in enumerate(names)))


def attention_pattern(
    tokens: Sequence[str],
    attention: Any,
    max_value: float | None = None,
    min_value: float | None = None,
    negative_color: str | None = None,
    show_axis_labels: bool | None = None,
    positive_color: str | None = None,
    mask_upper_tri: bool | None = None,
) -> Heatmap:
    """Show a head as a heatmap, with the signature of CircuitsVis' `attention_pattern` (tokens first).

    Args:
        tokens: A string per token.
        attention: [destination, source]: rows are queries, columns are keys.
        max_value: Ignored with a warning: the range is that of the numbers.
        min_value: Ignored with a warning.
        negative_color: Ignored with a warning.
        show_axis_labels: Axes are always labelled; False is ignored with a warning.
        positive_color: Ignored with a warning.
        mask_upper_tri: See `attention_heads`.

    Raises:
        ValueError: If the shape or the number of tokens does not match, or a value is NaN.
    """
    say_unused(
        "attention_pattern",
        max_value=max_value,
        min_value=min_value,
        negative_color=negative_color,
        show_axis_labels=None if show_axis_labels else show_axis_labels,
        positive_color=positive_color,
    )
    return Heatmap(_map(attention, tokens, _PATTERN, "[destination, source]", mask_upper_tri))


def attention_patterns(tokens: Sequence[str], attention: Any) -> HeadGrid:
    """Show a group of heads, with the signature of CircuitsVis' deprecated `attention_patterns`.

    Args:
        tokens: A string per token.
        attention: [head, destination, source].
    """
    return attention_heads(attention, tokens)


def _map(attention: Any, tokens: Sequence[str], dimensions: int, shape: str, mask: bool | None) -> MixingMap:
    values = as_floats(attention)
    if values.ndim == dimensions + 1 and len(values) == 1:
        values = values[0]
    n = len(tokens)
    if values.ndim != dimensions or values.shape[-2:] != (n, n):
        raise ValueError(
            f"attention has shape {values.shape}; for {n} tokens it must be {shape} with {n} destinations "
            f"and {n} sources."
        )
    warning = ""
    if mask:
        total, lower = np.abs(values).sum(), np.tril(values)
        hidden = 1 - np.abs(lower).sum() / total if total else 0.0
        values = lower
        if hidden > 0:
            warning = f"mask_upper_tri=True hides {hidden:.1%} of the attention: this is not a causal map"
    return MixingMap(
        values if dimensions == _PATTERN else values[None],
        query=axis_of_tokens(list(tokens)),
        causal=mask,
        method="attention",
        warning=warning,
    )


def say_unused(function: str, **options: object) -> None:
    """Warn of options that were passed and have no effect.

    Args:
        function: Name of the function.
        options: The options it ignores, None if they were not passed.
    """
    if passed := [name for name, value in options.items() if value is not None]:
        warnings.warn(
            f"{function}() ignores {', '.join(passed)}: colours are those of the notebook's theme, and their "
            "range is printed next to them.",
            UserWarning,
            stacklevel=3,
        )
