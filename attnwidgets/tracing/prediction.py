"""Prediction: one possible output of a model. Apart from `predictions.py`, so that it loads without torch."""

from __future__ import annotations

from typing import NamedTuple


class Prediction(NamedTuple):
    """One possible output: its label, its probability, and its id among tokens or classes."""

    label: str
    probability: float
    id: int
