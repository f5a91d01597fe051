"""Scores of linear probes as lines over the layers of explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    ProbeLines = tuple[tuple[str, NDArray[np.float64]], ...]


def probe_lines(card: Any, layers: Sequence[int]) -> ProbeLines:
    """Return the accuracy of a probe and of its baselines by layer of explanations, each with its name.

    An explanation's layer l is what block l does, and its outcome is the state that block l + 1 reads: layer
    l + 1 of states. Layers without such states are NaN.

    Args:
        card: A scorecard of `aw.evaluate.probe`; None: no lines.
        layers: Layers of the explanations.

    Raises:
        TypeError: The scorecard is not that of a probe.
        ValueError: It has none of these layers.
    """
    if card is None:
        return ()
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    if not isinstance(card, Scorecard) or card.method != "probe":
        raise TypeError(
            f"probe= takes the result of aw.evaluate.probe, not a {getattr(card, 'method', '') or ''} "
            f"{type(card).__name__}.".replace("  ", " ")
        )
    places = {int(layer): place for place, layer in enumerate(card.x)}
    if not any(layer + 1 in places for layer in layers):
        raise ValueError(
            f"probe= has states of layers {', '.join(map(str, places))}; the blocks {min(layers)} to "
            f"{max(layers)} write the states {min(layers) + 1} to {max(layers) + 1}."
        )
    metric = card.metrics[0]
    lines = []
    for row, name in enumerate(card.methods):
        values = [card.mean[0, row, places[one + 1]] if one + 1 in places else np.nan for one in layers]
        lines.append((f"{name}: {metric}" if row == 0 else name, np.asarray(values, dtype=np.float64)))
    return tuple(lines)
