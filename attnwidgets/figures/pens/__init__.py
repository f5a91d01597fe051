"""The means of drawing figures: areas of a page, on matplotlib's axes or on pixels. Begin with `pen.py`."""
