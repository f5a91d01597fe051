"""CircuitsVis' calls that colour tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.compat.circuitsvis.options import say_unused
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
    """Show text coloured by one value a token, as CircuitsVis' `colored_tokens` is called.

    Args:
        tokens: One string for each token.
        values: [token].
        min_value: Taken and not followed, with a warning: the range is that of the numbers.
        max_value: The same.
        negative_color: Taken and not followed, with a warning.
        positive_color: The same.

    Raises:
        ValueError: Where values and tokens do not fit, or a value is NaN.
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
    """Show text coloured by one of several values a token, as CircuitsVis' `colored_tokens_multi` is called.

    Args:
        tokens: One string for each token.
        values: [token, series].
        labels: What the series are called; 0, 1, ... by default.

    Raises:
        ValueError: Where values, tokens and labels do not fit, or a value is NaN.
    """
    array = as_floats(values)
    if array.ndim != _SEVERAL or len(array) != len(tokens):
        raise ValueError(
            f"values has shape {array.shape}; [token, series] with {len(tokens)} tokens is taken."
        )
    if labels is not None and len(labels) != array.shape[1]:
        raise ValueError(f"labels has {len(labels)} names for {array.shape[1]} series.")
    named = Attributions(
        array.T,
        axis=axis_of_tokens(list(tokens)),
        target=None if labels is None else list(labels),
        method="values",
    )
    return TokenStrip(named)
