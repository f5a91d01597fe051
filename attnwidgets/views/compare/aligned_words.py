"""Words that several models share: explanations of one text over different tokens, read by common words."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.tracing.text.alignment import letters
from attnwidgets.tracing.text.units import TokenAxis, Unit
from attnwidgets.views.wire.units import units_of

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARED = "shared word"
"""Name of the unit: the shortest stretches of text that end where a word ends in every model."""


def elements(explanation: Any) -> Unit:
    """Return the elements that are compared: the sources of attributions, the keys of a map."""
    return explanation.source_unit if isinstance(explanation, Attributions) else explanation.key_unit


def are_alike(explanations: Sequence[Any]) -> bool:
    """Return whether all explanations are over the same elements."""
    first = explanations[0]
    return all(
        item.unit == first.unit and elements(item).labels == elements(first).labels for item in explanations
    )


def aligned(explanations: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], int]:
    """Return explanations by the words that they share, which come first, and how many those are.

    Elements that are not words of the text (special tokens) follow them: models have different ones. Case,
    accents and spaces do not matter.

    Args:
        explanations: Explanations of the same text.
        names: Their names, for messages.

    Raises:
        ValueError: The texts differ; the message names the first words that do.
    """
    by_word = [item.to("word") if "word" in units_of(item) else item for item in explanations]
    texts = [_words(elements(item)) for item in by_word]
    whole = ["".join(text for text, _ in words) for words in texts]
    for name, spelled, words in zip(names[1:], whole[1:], texts[1:], strict=True):
        if spelled != whole[0]:
            raise ValueError(_difference(names[0], texts[0], name, words))
    if not whole[0]:
        raise ValueError(f"{names[0]!r} has no words to compare: only special tokens.")
    ends = sorted(set.intersection(*map(_ends, texts)))
    first_labels = elements(by_word[0]).labels
    labels = ["".join(first_labels[place] for place in group) for group in _grouped(texts[0], ends)]
    shared = [
        item.to(_shared_unit(elements(item), _grouped(words, ends), labels))
        for item, words in zip(by_word, texts, strict=True)
    ]
    return shared, len(ends)


def axis_of(explanation: Any, count: int | None) -> TokenAxis:
    """Return the axis of an explanation, or that of its first elements; views link them by their tokens.

    Args:
        explanation: The explanation.
        count: How many elements; None: the axis as it is.
    """
    axis: TokenAxis = explanation.axis if isinstance(explanation, Attributions) else explanation.key
    if count is None:
        return axis
    unit = elements(explanation)
    chosen = Unit(unit.name, unit.labels[:count], unit.spans[:count], unit.special[:count])
    return TokenAxis(axis.tokens, {unit.name: chosen}, axis.segment, axis.boundary, axis.text)


def _words(unit: Unit) -> list[tuple[str, int]]:
    """Return the letters of every element that is not a special token, with its number."""
    return [
        (letters(label), place)
        for place, (label, special) in enumerate(zip(unit.labels, unit.special, strict=True))
        if not special
    ]


def _ends(words: Sequence[tuple[str, int]]) -> set[int]:
    """Return after how many letters a word ends."""
    return set(accumulate(len(text) for text, _ in words)) - {0}


def _shared_unit(unit: Unit, groups: Sequence[Sequence[int]], labels: Sequence[str]) -> Unit:
    """Return the shared words over one model's tokens, followed by the elements outside of them.

    Args:
        unit: The model's own elements.
        groups: Numbers of the elements that make up each shared word.
        labels: Names of the shared words.
    """
    inside = {place for group in groups for place in group}
    others = [place for place in range(len(unit)) if place not in inside]
    spans = [tuple(token for place in group for token in unit.spans[place]) for group in groups]
    return Unit(
        SHARED,
        (*labels, *(unit.labels[place] for place in others)),
        (*spans, *(unit.spans[place] for place in others)),
        (*(False,) * len(groups), *(True,) * len(others)),
    )


def _grouped(words: Sequence[tuple[str, int]], ends: Sequence[int]) -> list[list[int]]:
    """Return the numbers of the words up to each shared end; a word without letters joins those before it."""
    groups: list[list[int]] = [[] for _ in ends]
    length, at = 0, 0
    for text, place in words:
        if text and length >= ends[at]:
            at += 1
        groups[at].append(place)
        length += len(text)
    return groups


def _difference(
    first: str, words: Sequence[tuple[str, int]], second: str, others: Sequence[tuple[str, int]]
) -> str:
    pairs = zip(words, others, strict=False)
    number = next((i for i, ((a, _), (b, _)) in enumerate(pairs) if a != b), min(len(words), len(others)))
    here, there = (
        repr(text[number][0]) if number < len(text) else "no further word" for text in (words, others)
    )
    return (
        f"{first!r} and {second!r} do not explain the same text: word {number} is {here} in the one, "
        f"{there} in the other. Explanations are compared over the same words."
    )
