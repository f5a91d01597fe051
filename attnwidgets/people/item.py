"""Item: a text that a person reads, a model's prediction for it, and its explanations by condition."""

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
"""Conditions that the study makes itself: no explanation, and another condition's values on other words."""
_MOST_WORDS = 400
_MOST_CHARACTERS = 4000
_DIGITS = 3


@dataclass(frozen=True)
class Item:
    """A text of a study, with a model's prediction for it and the explanations of this prediction.

    Args:
        text: The text that people read.
        explanations: An explanation by condition: Attributions with a single target; a MixingMap, shown as
            the weight of every word, averaged over layers, heads and queries; a pair `(words, values)`; or a
            sentence. "none" and "random" are made by the study. For two models, a pair of explanations, the
            first model's first.
        prediction: The model's answer; of two models a pair.
        label: The true answer, if there is one. It is not shown.
        changed: The changed text of a counterfactual simulation.
        changed_prediction: The model's answer for the changed text.
        better: The index of the better of two models, 0 or 1.
        remove: The words that are rightly removed, as texts or as indices from 0.
        id: A name, unique in the study; "": the item's number.
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
    """An explanation in the form in which it is drawn.

    `words` have `values` between -1 and 1; or both are empty and `text` is a sentence; or all three are
    empty.
    """

    words: tuple[str, ...]
    values: tuple[float, ...]
    text: str

    @property
    def signed(self) -> bool:
        """Whether a value is negative: the word speaks against the prediction."""
        return any(value < 0 for value in self.values)


NOTHING = Shown((), (), "")


def item_of(entry: Any, number: int) -> Item:
    """Return the `Item` that an entry of a list of items is, or describes as a dict.

    Raises:
        TypeError: The entry is neither an Item nor a dict, or has an unknown field.
        ValueError: The text is empty or too long.
    """
    if isinstance(entry, Mapping):
        names = [item.name for item in fields(Item)]
        refuse_unknown("aw.people.Item", [name for name in entry if name not in names], names)
        entry = Item(**entry)
    if not isinstance(entry, Item):
        raise TypeError(f"items[{number}] is a {type(entry).__name__}; give an aw.people.Item or a dict.")
    if not isinstance(entry.text, str) or not entry.text.strip():
        raise ValueError(f"items[{number}] has no text.")
    if max(len(entry.text), len(entry.changed)) > _MOST_CHARACTERS:
        raise ValueError(f"items[{number}] has more than {_MOST_CHARACTERS:,} characters: give a part of it.")
    return entry


def shown_of(explanation: Any, where: str) -> Shown:
    """Return an explanation in the form in which it is drawn.

    Args:
        explanation: A sentence, `(words, values)`, Attributions or a MixingMap, see `Item`.
        where: The expression that names the explanation in messages, such as `items[0].explanations['a']`.

    Raises:
        TypeError: The explanation is none of these types.
        ValueError: The explanation has several targets, no words, or a value that is not finite.
    """
    if isinstance(explanation, str):
        if not explanation.strip() or len(explanation) > _MOST_CHARACTERS:
            raise ValueError(f"{where} is a sentence of 1 to {_MOST_CHARACTERS:,} characters.")
        return Shown((), (), explanation)
    if isinstance(explanation, (Attributions, MixingMap)):
        words, values = _word_values(explanation, where)
    elif isinstance(explanation, (tuple, list)) and len(explanation) == 2:  # noqa: PLR2004 - words and values
        words, values = [str(word) for word in explanation[0]], np.asarray(explanation[1], float)
    else:
        raise TypeError(
            f"{where} is a {type(explanation).__name__}; give Attributions, a MixingMap, (words, values) or "
            "a sentence."
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


def _word_values(explanation: Attributions | MixingMap, where: str) -> tuple[list[str], Any]:
    """Return the words of an explanation and its values [word], without special tokens."""
    axis = explanation.axis if isinstance(explanation, Attributions) else explanation.key
    unit_name = "word" if "word" in axis.units else explanation.unit
    try:
        by_word = explanation.to(unit_name)
    except (TypeError, ValueError):  # the explanation is in a coarser unit already
        by_word, unit_name = explanation, explanation.unit
    if isinstance(by_word, Attributions):
        if by_word.values.ndim > 1:
            raise ValueError(f"{where} has {len(by_word.targets)} targets: choose one with .select(target).")
        unit, values = by_word.axis.units[unit_name], np.asarray(by_word.values, float)
    else:
        unit = by_word.key.units[unit_name]
        values = np.asarray(by_word.values, float).reshape(-1, len(unit)).mean(0)
    content = [index for index, special in enumerate(unit.special) if not special]
    return [str(unit.labels[index]) for index in content], values[content]


def placebo(shown: Shown, seed: int) -> Shown:
    """Return an explanation with its values permuted over its words, so that it explains nothing."""
    order = np.random.default_rng(seed).permutation(len(shown.values))
    return shown._replace(values=tuple(shown.values[index] for index in order))


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text between spaces."""
    return tuple(text.split())


def gaps(text: str, words: Sequence[str]) -> list[bool]:
    """Return for every word whether a space stands before it in the text."""
    result, at = [], 0
    for word in words:
        start = text.find(word, at)
        if start < 0:  # the explanation spells the word in another way
            result.append(True)
            continue
        result.append(bool(re.search(r"\s", text[at:start])))
        at = start + len(word)
    return [False, *result[1:]]


def words_to_remove(item: Item, words: Sequence[str], number: int) -> tuple[int, ...]:
    """Return the sorted indices of the words that are rightly removed.

    Raises:
        ValueError: A word is not in the text, or an index is out of range.
    """
    indices: set[int] = set()
    for entry in item.remove:
        if isinstance(entry, str):
            same = [index for index, word in enumerate(words) if word == entry]
        else:
            same = [int(entry)] if 0 <= int(entry) < len(words) else []
        if not same:
            raise ValueError(
                f"items[{number}].remove: {quoted(str(entry))} is not one of its {len(words)} words."
            )
        indices.update(same)
    return tuple(sorted(indices))
