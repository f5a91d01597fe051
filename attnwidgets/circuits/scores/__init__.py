"""Why a head reads a token: the score of one cell of a map of attention, taken apart.

`why.py` is the entry: a `Cell` (`cell.py`) is a query, a key and the rivals it is compared with, and a `Why`
(`result.py`) its score as pairs of parts. `removal.py` recomputes attention without some parts.
`pattern_parts.py` splits the pattern of a whole head over texts, `kernel_parts.py` weights without a softmax,
and `writers.py` measures the attention that a head loses without a component in its keys.
"""
