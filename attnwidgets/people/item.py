"""Item: what a person is shown once: a text, what a model made of it, and its explanations by condition."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from attnwidgets._errors import quoted, refuse_unknown
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap

NONE, RANDOM = "none", "random"
"""Conditions that are made from the others: no explanation, and the same numbers on other words."""
_MOST_WORDS = 400
_MOST_CHARACTERS = 4000
_DIGITS = 3


@dataclass(frozen=True)
class Item:
    """One text of a study, with what a model said of it and how this is explained.

    Args:
        text: What is read.
        explanations: An explanation by condition: Attributions with one target; a MixingMap, of which is
            shown how much every word is read, averaged over layers, heads and queries; a pair `(words,
            values)`; or a sentence. "none" and "random" are made by the study. For two models, a pair of
            explanations, the first model's first.
        prediction: What the model answered; of two models a pair.
        label: The true answer, if it is known. It is not shown.
        changed: The changed text of a counterfactual simulation.
        changed_prediction: What the model answered for it.
        better: Which of two models is the better one, 0 or 1.
        remove: The words that are rightly removed, as texts or as places counted from 0.
        id: A name, unique in the study; "": its number.
    """

    text: str
    explanations: Mapping[str, Any] = field(default_factory=dict)
    prediction: str | tuple[str, str] = ""
    label: str = ""
    changed: str = ""
    changed_prediction: str = ""
    better: int | None = None
    remove: tuple[str | int, ...] = ()
    id: str = ""


class Shown(NamedTuple):
    """An explanation as it is drawn: words with values between -1 and 1, or a sentence, or nothing."""

    words: tuple[str, ...]
    values: tuple[float, ...]
    text: str

    @property
    def signed(self) -> bool:
        """Whether some words speak against."""
        return any(value < 0 for value in self.values)


NOTHING = Shown((), (), "")


def item_of(given: Any, number: int) -> Item:
    """Return an item, or the item that a dict describes.

    Raises:
        TypeError: It is neither, or has an unknown field.
        ValueError: Its text is empty or too long.
    """
    if isinstance(given, Mapping):
        known = [item.name for item in fields(Item)]
        refuse_unknown("aw.people.Item", [name for name in given if name not in known], known)
        given = Item(**given)
    if not isinstance(given, Item):
        raise TypeError(f"items[{number}] is a {type(given).__name__}; give an aw.people.Item or a dict.")
    if not isinstance(given.text, str) or not given.text.strip():
        raise ValueError(f"items[{number}] has no text.")
    if max(len(given.text), len(given.changed)) > _MOST_CHARACTERS:
        raise ValueError(f"items[{number}] has more than {_MOST_CHARACTERS:,} characters: give a part of it.")
    return given


def shown_of(given: Any, where: str) -> Shown:
    """Return an explanation as it is drawn.

    Args:
        given: See `Item`.
        where: What it is, for messages.

    Raises:
        TypeError: It is not an explanation.
        ValueError: It has several targets, no words, or a value that is not finite.
    """
    if isinstance(given, str):
        if not given.strip() or len(given) > _MOST_CHARACTERS:
            raise ValueError(f"{where} is a sentence of 1 to {_MOST_CHARACTERS:,} characters.")
        return Shown((), (), given)
    if isinstance(given, (Attributions, MixingMap)):
        words, values = _of_explanation(given, where)
    elif isinstance(given, (tuple, list)) and len(given) == 2:  # noqa: PLR2004 - words and values
        words, values = [str(word) for word in given[0]], np.asarray(given[1], float)
    else:
        raise TypeError(
            f"{where} is a {type(given).__name__}; give Attributions, a MixingMap, (words, values) or a "
            "sentence."
        )
    if not 0 < len(words) <= _MOST_WORDS or values.shape != (len(words),):
        raise ValueError(
            f"{where} has {len(words)} words and values of shape {values.shape}: give one value for each "
            f"word, for 1 to {_MOST_WORDS} words."
        )
    if not np.isfinite(values).all():
        word = words[int(np.argmin(np.isfinite(values)))]
        raise ValueError(f"{where} has a value that is NaN or infinite, for {quoted(word)}.")
    largest = float(np.abs(values).max())
    scaled = values / largest if largest > 0 else values
    return Shown(tuple(words), tuple(round(float(value), _DIGITS) for value in scaled), "")


def _of_explanation(given: Attributions | MixingMap, where: str) -> tuple[list[str], Any]:
    """Return words and values of an explanation, without special tokens."""
    axis = given.axis if isinstance(given, Attributions) else given.key
    unit_name = "word" if "word" in axis.units else given.unit
    try:
        read = given.to(unit_name)
    except (TypeError, ValueError):  # it is in a coarser unit already
        read, unit_name = given, given.unit
    if isinstance(read, Attributions):
        if read.values.ndim > 1:
            raise ValueError(f"{where} has {len(read.targets)} targets: choose one with .select(target).")
        unit, values = read.axis.units[unit_name], np.asarray(read.values, float)
    else:
        unit = read.key.units[unit_name]
        values = np.asarray(read.values, float).reshape(-1, len(unit)).mean(0)
    own = [index for index, special in enumerate(unit.special) if not special]
    return [str(unit.labels[place]) for place in own], values[own]


def placebo(shown: Shown, seed: int) -> Shown:
    """Return the same numbers on other words: what an explanation looks like that explains nothing."""
    order = np.random.default_rng(seed).permutation(len(shown.values))
    return shown._replace(values=tuple(shown.values[place] for place in order))


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text between spaces."""
    return tuple(text.split())


def gaps(text: str, words: Sequence[str]) -> list[bool]:
    """Return of every word whether a space stands before it in the text."""
    result, at = [], 0
    for word in words:
        place = text.find(word, at)
        if place < 0:
            result.append(True)
            continue
        result.append(bool(re.search(r"\s", text[at:place])))
        at = place + len(word)
    return [False, *result[1:]]


def places_to_remove(item: Item, words: Sequence[str], number: int) -> tuple[int, ...]:
    """Return the places of the words that are rightly removed.

    Raises:
        ValueError: A word is not in the text, or a place is out of range.
    """
    places: set[int] = set()
    for wanted in item.remove:
        if isinstance(wanted, str):
            same = [index for index, word in enumerate(words) if word == wanted]
        else:
            same = [int(wanted)] if 0 <= int(wanted) < len(words) else []
        if not same:
            raise ValueError(
                f"items[{number}].remove: {quoted(str(wanted))} is not one of its {len(words)} words."
            )
        places.update(same)
    return tuple(sorted(places))
