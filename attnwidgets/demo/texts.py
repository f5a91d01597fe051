"""Texts to begin with, without a download: a book, and labelled sentences on films, meals and journeys.

A book to train a small sparse autoencoder on, without a download.

*Alice's Adventures in Wonderland* by Lewis Carroll (1865) is in the public domain everywhere: its author died
in 1898. The text is that of the first edition, 26,000 words, without pictures.

A small labelled data set: sentences about films, meals and journeys, with the deciding words marked.

Written for this package and free to redistribute with it. In `sentiment.tsv` the deciding words are between
asterisks; positive and negative sentences come in pairs on similar topics, and a pair is never split between
training and test.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

LABELS = ("negative", "positive")
"""The classes, by index."""


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


@dataclass(frozen=True)
class LabelledText:
    """A sentence with its label and the reason for it.

    Attributes:
        text: The sentence.
        label: "positive" or "negative".
        split: "train" or "test".
        rationale: The words that a person would give as the reason, as (start, stop) of characters in `text`.
    """

    text: str
    label: str
    split: str
    rationale: tuple[tuple[int, int], ...]


def demo_texts(split: Literal["train", "test"] | None = None) -> tuple[LabelledText, ...]:
    """Return three hundred sentences with their sentiment, half of them positive.

    Args:
        split: "train" or "test"; None for both.

    Raises:
        ValueError: For an unknown split.

    Example:
        >>> first = aw.demo_texts("test")[0]
        >>> first.label, [first.text[start:stop] for start, stop in first.rationale]
        ('positive', ['delicious', 'fresh'])
    """
    if split not in ("train", "test", None):
        raise ValueError(f"split must be 'train', 'test' or None, not {split!r}.")
    lines = files("attnwidgets.demo").joinpath("sentiment.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts = (_read(*line.split("\t")) for line in lines)
    return tuple(text for text in texts if split in (text.split, None))


def _read(split: str, label: str, marked: str) -> LabelledText:
    rationale = tuple(
        (match.start() - 2 * count, match.end() - 2 * count - 2)
        for count, match in enumerate(re.finditer(r"\*[^*]+\*", marked))
    )
    return LabelledText(marked.replace("*", ""), label, split, rationale)
