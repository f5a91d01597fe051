"""Words that several models share: explanations of one text, cut differently, over the same elements."""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.text.units import TokenAxis, Unit
from attnwidgets.views.wire.reader import is_attributions
from attnwidgets.views.wire.units import units_of

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARED = "shared word"
"""Name of the unit: the shortest stretches of text at whose ends every model has the end of a word."""

_SPACE_SIGNS = str.maketrans("", "", "▁Ġ␣⏎↵⇥Ċ")


def elements(explanation: Any) -> Unit:
    """Return what is compared: the sources of attributions, the keys of a map."""
    return explanation.source_unit if is_attributions(explanation) else explanation.key_unit


def are_alike(explanations: Sequence[Any]) -> bool:
    """Return whether all are over the same elements."""
    first = explanations[0]
    return all(
        item.unit == first.unit and elements(item).labels == elements(first).labels for item in explanations
    )


def aligned(explanations: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], list[list[int]]]:
    """Return explanations by the words that they share, and which elements of each are such words.

    What is no word of the text (special tokens) is left out: models have different ones. Upper and lower
    case, accents and spaces do not matter.

    Args:
        explanations: Of the same text.
        names: What they are called, for messages.

    Raises:
        ValueError: Where the texts differ; the message names the first words that do.
    """
    by_word = [item.to("word") if "word" in units_of(item) else item for item in explanations]
    texts = [_texts(elements(item)) for item in by_word]
    whole = ["".join(text for text, _ in words) for words in texts]
    for name, other, words in zip(names[1:], whole[1:], texts[1:], strict=True):
        if other != whole[0]:
            raise ValueError(_difference(names[0], texts[0], name, words))
    if not whole[0]:
        raise ValueError(f"{names[0]!r} has no words to compare: only special tokens.")
    ends = [_ends(words) for words in texts]
    shared = sorted(set.intersection(*ends))
    found, kept = [], []
    for item, words in zip(by_word, texts, strict=True):
        unit, places = _unit(elements(item), words, shared, elements(by_word[0]), texts[0])
        found.append(item.to(unit))
        kept.append(places)
    return found, kept


def axis_of(explanation: Any, kept: Sequence[int]) -> TokenAxis:
    """Return the axis of some elements of an explanation; views link them by their tokens."""
    unit = elements(explanation)
    axis: TokenAxis = explanation.axis if is_attributions(explanation) else explanation.key
    chosen = Unit(
        unit.name,
        tuple(unit.labels[place] for place in kept),
        tuple(unit.spans[place] for place in kept),
        tuple(unit.special[place] for place in kept),
    )
    return TokenAxis(axis.tokens, {unit.name: chosen}, axis.segment, axis.boundary, axis.text)


def _texts(unit: Unit) -> list[tuple[str, int]]:
    """Return the letters of every element that is no special token, with its number."""
    return [
        (_letters(label), place)
        for place, (label, special) in enumerate(zip(unit.labels, unit.special, strict=True))
        if not special
    ]


def _letters(label: str) -> str:
    bare = label.removeprefix("##") if len(label) > len("##") else label
    plain = unicodedata.normalize("NFKD", bare.translate(_SPACE_SIGNS).casefold())
    return "".join(sign for sign in plain if not unicodedata.combining(sign) and not sign.isspace())


def _ends(words: Sequence[tuple[str, int]]) -> set[int]:
    """Return after how many letters a word ends."""
    ends, length = set(), 0
    for text, _ in words:
        length += len(text)
        ends.add(length)
    return ends - {0}


def _unit(
    own: Unit,
    words: Sequence[tuple[str, int]],
    shared: Sequence[int],
    first: Unit,
    first_words: Sequence[tuple[str, int]],
) -> tuple[Unit, list[int]]:
    """Return the shared words over one model's tokens, then what is none; and the shared ones' numbers."""
    groups = _grouped(words, shared)
    names = ["".join(first.labels[place] for place in group) for group in _grouped(first_words, shared)]
    inside = {place for group in groups for place in group}
    others = [place for place in range(len(own)) if place not in inside]
    spans = [tuple(token for place in group for token in own.spans[place]) for group in groups]
    unit = Unit(
        SHARED,
        (*names, *(own.labels[place] for place in others)),
        (*spans, *(own.spans[place] for place in others)),
        (*(False,) * len(groups), *(True,) * len(others)),
    )
    return unit, list(range(len(groups)))


def _grouped(words: Sequence[tuple[str, int]], shared: Sequence[int]) -> list[list[int]]:
    """Return the numbers of the words between one shared end and the next; one without letters joins them."""
    groups: list[list[int]] = []
    length, at = 0, 0
    starts = [0, *shared]
    bounds = list(pairwise(starts))
    groups = [[] for _ in bounds]
    for text, place in words:
        if text and length >= bounds[at][1]:
            at += 1
        groups[at].append(place)
        length += len(text)
    return groups


def _difference(
    first: str, words: Sequence[tuple[str, int]], second: str, others: Sequence[tuple[str, int]]
) -> str:
    pairs = zip(words, others, strict=False)
    number = next((i for i, ((a, _), (b, _)) in enumerate(pairs) if a != b), min(len(words), len(others)))
    said = [repr(found[number][0]) if number < len(found) else "no further word" for found in (words, others)]
    return (
        f"{first!r} and {second!r} are not of the same text: word {number} is {said[0]} in the one, "
        f"{said[1]} in the other. Explanations are compared over the same words."
    )
