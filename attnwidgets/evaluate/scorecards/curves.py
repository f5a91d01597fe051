"""A curve as one number: its mean over thresholds, or the area under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

_TWO = 2


def aopc(card: Scorecard) -> Scorecard:
    """Return the plain mean of a scorecard over its last axis: AOPC, where that is shares of features.

    An example that is undefined at one of them is undefined.

    Source: DeYoung et al. 2020, section 5; Samek et al. 2017, Evaluating the Visualization of What a Deep
    Neural Network Has Learned (there from k = 0 on, which adds a zero).
    """
    return card.with_samples(
        card.samples.mean(axis=-1, keepdims=True),
        step=f"mean over {card.x_name}",
        x=["AOPC"],
        x_name=f"over {card.x_name}",
        x_notes=[""],
    )


def area(card: Scorecard) -> Scorecard:
    """Return the area under every curve of a scorecard, by trapezoids between the values of its last axis.

    The last axis is not scaled: of shares from 0 to 1, the area is between the least and the greatest value.

    Raises:
        ValueError: Where the last axis has fewer than two values, or they do not rise.
    """
    x = [float(label) if isinstance(label, (int, float)) else np.nan for label in card.x]
    steps = np.diff(x)
    if len(x) < _TWO or not (steps > 0).all():
        raise ValueError(
            f"an area needs two or more rising values of {card.x_name!r}; there is {list(card.x)!r}."
        )
    heights = (card.samples[..., 1:] + card.samples[..., :-1]) / 2
    return card.with_samples(
        (heights * steps).sum(axis=-1, keepdims=True),
        step=f"area over {card.x_name}",
        x=["area"],
        x_name=f"over {card.x_name}",
        x_notes=[""],
    )
