"""How the range of a feature's activations is divided."""

BINS = 64
"""Number of histogram bins, from 0 to a power of two that no activation exceeds."""
INTERVALS = 8
"""Number of intervals of equal width over the same range; examples are kept from each."""
