"""A book: what a small sparse autoencoder can be trained on without fetching anything.

*Alice's Adventures in Wonderland* by Lewis Carroll (1865) is in the public domain everywhere: its author died
in 1898. The text is that of the first edition's words, 26,000 of them, without pictures.
"""

from __future__ import annotations

import gzip
from importlib.resources import files


def demo_book() -> tuple[str, ...]:
    """Return the paragraphs of *Alice's Adventures in Wonderland* (public domain), in order."""
    packed = files("attnwidgets.demo").joinpath("alice.txt.gz").read_bytes()
    paragraphs = gzip.decompress(packed).decode("ascii").split("\n\n")
    return tuple(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())
