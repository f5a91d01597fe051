"""A book to train a small sparse autoencoder on, without a download.

*Alice's Adventures in Wonderland* by Lewis Carroll (1865) is in the public domain everywhere: its author died
in 1898. The text is that of the first edition, 26,000 words, without pictures.
"""

from __future__ import annotations

import gzip
from importlib.resources import files


def demo_book() -> tuple[str, ...]:
    """Return the paragraphs of *Alice's Adventures in Wonderland* (public domain), in order.

    Example:
        >>> paragraphs = aw.demo_book()
        >>> sum(len(paragraph.split()) for paragraph in paragraphs) > 26_000
        True
    """
    packed = files("attnwidgets.demo").joinpath("alice.txt.gz").read_bytes()
    paragraphs = gzip.decompress(packed).decode("ascii").split("\n\n")
    return tuple(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())
