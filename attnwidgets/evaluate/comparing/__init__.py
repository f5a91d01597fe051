"""Compare several methods by several metrics over a data set."""
