"""A map whose rows read some keys only, and give a part of themselves to no token."""

from __future__ import annotations

import numpy as np

import attnwidgets as aw

WORDS = ["the", "cat", "sat", "on", "the", "mat"]
COUNT = len(WORDS)
READ = 3  # keys of a row, at most


def windowed(*, sink=True):
    """Return a map [layer, head, query, key] of a layer with a window and of a layer without, and the window.

    A weight inside the window of the first layer is zero: of query 3 and key 2.
    """
    window = np.tri(COUNT, dtype=bool) & ~np.tri(COUNT, k=-READ, dtype=bool)
    layers = [window, np.tri(COUNT, dtype=bool)]
    weights = np.random.default_rng(3).uniform(0.2, 1, (2, 2, COUNT, COUNT)) * np.stack(layers)[:, None]
    weights[0, :, 3, 2] = 0
    rest = np.linspace(0.1, 0.6, COUNT) if sink else np.zeros(COUNT)
    weights *= ((1 - rest) / weights.sum(axis=-1))[..., None]
    numbers = weights.astype(np.float32)
    axis = aw.attention(aw.from_attentions(numbers, WORDS)).query
    shown = aw.MixingMap.lazy(
        numbers.__getitem__,
        query=axis,
        layers=(0, 1),
        heads=range(2),
        causal=True,
        sink=sink,
        stochastic=not sink,
        readable=layers.__getitem__,
        method="attention",
    )
    return shown, window
