"""Types of arrays in evaluations."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Float = NDArray[np.float64]
Indices = NDArray[np.intp]
Order = Indices
"""Indices of features, the first to be removed first."""
