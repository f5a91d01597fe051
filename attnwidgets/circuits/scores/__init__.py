"""Why a head reads a token: the score of one cell of a map of attention, taken apart.

`why.py` is the entry: a `Cell` (`cell.py`) is a query, a key and the rivals it is compared with, and a `Why`
(`result.py`) its score as pairs of parts. `removal.py` says what attention does without some parts.
"""
