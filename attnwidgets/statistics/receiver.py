"""The statistic of receiver heads, which `aw.circuits.receiver_heads` measures on long texts."""

from __future__ import annotations

from attnwidgets.statistics.statistic import Statistic, register

RECEIVER = register(
    Statistic(
        "receiver",
        "receiver",
        "Kurtosis over sentences of the attention they get from later ones, relative to its highest value.",
        "up to 1, where one sentence gets all of it; 0 for normal scores",
        "a receiver head: later sentences look back to few sentences",
        "Bogdan et al. 2025, Thought Anchors, section 4; divided by its ceiling for so many sentences",
        made_by="aw.circuits.receiver_heads(traces)",
    )
)
