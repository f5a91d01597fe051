"""Prediction: one possible output of a model. Apart from `predictions.py`, so that it loads without torch."""

from __future__ import annotations

from math import isnan
from typing import NamedTuple


class Prediction(NamedTuple):
    """One possible output: its label, its probability, and its id among tokens or classes.

    A number of a regression has no probability (NaN); its label is its name and the number: "number 0.73".
    """

    label: str
    probability: float
    id: int

    @property
    def name(self) -> str:
        """The label, of a number without its digits: its name as a target."""
        return self.label.rpartition(" ")[0] if isnan(self.probability) else self.label
