"""A small labelled set: sentences about films, meals and journeys, with the words that decide marked.

Written for this package and free to redistribute with it. In `sentiment.tsv` the deciding words stand between
asterisks; positive and negative sentences come in pairs of like topics, and a pair is never split between
training and test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

LABELS = ("negative", "positive")
"""The classes, by index."""


@dataclass(frozen=True)
class LabelledText:
    """A sentence with its label and the reason for it.

    Attributes:
        text: The sentence.
        label: "positive" or "negative".
        split: "train" or "test".
        rationale: The words that a person would name as the reason, as (start, stop) of characters in `text`.
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
        ValueError: For another split.
    """
    if split not in ("train", "test", None):
        raise ValueError(f"split must be 'train', 'test' or None, not {split!r}.")
    lines = files("attnwidgets.demo").joinpath("sentiment.tsv").read_text(encoding="utf-8").splitlines()[1:]
    found = (_read(*line.split("\t")) for line in lines)
    return tuple(one for one in found if split in (one.split, None))


def _read(split: str, label: str, marked: str) -> LabelledText:
    rationale = tuple(
        (found.start() - 2 * count, found.end() - 2 * count - 2)
        for count, found in enumerate(re.finditer(r"\*[^*]+\*", marked))
    )
    return LabelledText(marked.replace("*", ""), label, split, rationale)
