"""Matplotlib drawing: colours, labels, and figures of plain arrays."""
