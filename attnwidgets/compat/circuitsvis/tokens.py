"""Functions of CircuitsVis that colour tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.compat.circuitsvis.attention import say_unused
from attnwidgets.explanations.results.arrays import as_floats
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.tracing.from_attentions import axis_of_tokens
from attnwidgets.views.text.token_strip import TokenStrip

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEVERAL = 2


def colored_tokens(
    tokens: Sequence[str],
    values: Any,
    min_value: float | None = None,
    max_value: float | None = None,
    negative_color: str | None = None,
    positive_color: str | None = None,
) -> TokenStrip:
    """Show text coloured by a value per token, with the signature of CircuitsVis' `colored_tokens`.

    Args:
        tokens: A string per token.
        values: Values [token].
        min_value: Ignored with a warning: the range is that of the numbers.
        max_value: Ignored with a warning.
        negative_color: Ignored with a warning.
        positive_color: Ignored with a warning.

    Raises:
        ValueError: If values and tokens do not match, or a value is NaN.
    """
    say_unused(
        "colored_tokens",
        min_value=min_value,
        max_value=max_value,
        negative_color=negative_color,
        positive_color=positive_color,
    )
    return TokenStrip(Attributions(as_floats(values), axis=axis_of_tokens(list(tokens)), method="values"))


def colored_tokens_multi(
    tokens: Sequence[str], values: Any, labels: Sequence[str] | None = None
) -> TokenStrip:
    """Show text coloured by one of several values per token, as CircuitsVis' `colored_tokens_multi`.

    Args:
        tokens: A string per token.
        values: Values [token, series].
        labels: Names of the series; by default 0, 1, ...

    Raises:
        ValueError: If values, tokens and labels do not match, or a value is NaN.
    """
    array = as_floats(values)
    if array.ndim != _SEVERAL or len(array) != len(tokens):
        raise ValueError(
            f"values has shape {array.shape}; it must be [token, series] with {len(tokens)} tokens."
        )
    if labels is not None and len(labels) != array.shape[1]:
        raise ValueError(f"labels has {len(labels)} names for {array.shape[1]} series.")
    attributions = Attributions(
        array.T,
        axis=axis_of_tokens(list(tokens)),
        target=None if labels is None else list(labels),
        method="values",
    )
    return TokenStrip(attributions)
