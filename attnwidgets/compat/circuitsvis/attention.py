"""CircuitsVis' attention calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.compat.circuitsvis.options import say_unused
from attnwidgets.explanations.results.arrays import as_floats
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.tracing.from_attentions import axis_of_tokens
from attnwidgets.views.heads.head_grid import HeadGrid
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
    """Show a group of heads as thumbnails, as CircuitsVis' `attention_heads` is called.

    Args:
        attention: [head, destination, source]: rows are queries, columns are keys.
        tokens: One string for each token.
        attention_head_names: What the heads are called, said in the title: 0 is the first.
        max_value: Taken and not followed, with a warning: the range is that of the numbers.
        min_value: The same.
        negative_color: Taken and not followed, with a warning.
        positive_color: The same.
        mask_upper_tri: Whether what lies after a query is hidden. By default where it is zero everywhere
            (CircuitsVis hides it unless told otherwise); True hides it and says how much that was.

    Raises:
        ValueError: For another shape, names or tokens whose number does not fit, or NaN.
    """
    say_unused(
        "attention_heads",
        max_value=max_value,
        min_value=min_value,
        negative_color=negative_color,
        positive_color=positive_color,
    )
    shown = _map(attention, tokens, _HEADS, "[head, destination, source]", mask_upper_tri)
    names = list(attention_head_names or ())
    if names and len(names) != len(shown.heads or ()):
        raise ValueError(f"attention_head_names has {len(names)} names for {len(shown.heads or ())} heads.")
    return HeadGrid(shown, title=", ".join(f"{number}: {name}" for number, name in enumerate(names)))


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
    """Show one head as a heatmap, as CircuitsVis' `attention_pattern` is called (tokens come first).

    Args:
        tokens: One string for each token.
        attention: [destination, source]: rows are queries, columns are keys.
        max_value: Taken and not followed, with a warning: the range is that of the numbers.
        min_value: The same.
        negative_color: Taken and not followed, with a warning.
        show_axis_labels: Taken; axes are always labelled.
        positive_color: Taken and not followed, with a warning.
        mask_upper_tri: See `attention_heads`.

    Raises:
        ValueError: For another shape, tokens whose number does not fit, or NaN.
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
    """Show a group of heads, as CircuitsVis' deprecated `attention_patterns` is called.

    Args:
        tokens: One string for each token.
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
            f"attention has shape {values.shape}; of {n} tokens {shape} is taken, with {n} destinations and "
            f"{n} sources."
        )
    warning = ""
    if mask:
        total, kept = np.abs(values).sum(), np.tril(values)
        hidden = 1 - np.abs(kept).sum() / total if total else 0.0
        values = kept
        if hidden > 0:
            warning = f"mask_upper_tri=True hides {hidden:.1%} of the attention: this is no causal map"
    return MixingMap(
        values if dimensions == _PATTERN else values[None],
        query=axis_of_tokens(list(tokens)),
        causal=mask,
        method="attention",
        warning=warning,
    )
