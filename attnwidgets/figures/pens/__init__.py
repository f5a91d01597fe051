"""What figures are drawn with: areas of a page, on matplotlib's axes or on pixels. Begin with `pen.py`."""
