"""Where every character of a rendered template comes from, for any template, without knowing it.

All characters of the strings that a template is given are numbered from 1. Bit b of every number is written
into rendering b: a character whose number has the bit is replaced by another of its kind. A rendered
character's number is then read off the renderings in which it changed, and 0 is the template's own. log2(n)
renderings number n characters, wherever the template puts them, as often as it does, and whatever it leaves
out.
"""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_LETTERS = (string.ascii_lowercase, string.ascii_uppercase, string.digits[1:])
_SWAPPED = {char: row[(at + 1) % len(row)] for row in _LETTERS for at, char in enumerate(row)}
# Templates divide a text at these, and JSON must stay JSON.
_TAG = re.compile(r"</?[^<>\s]{1,40}>")
_LAST = 0x10FFFF
_FILLER = "x"


class DependsOnWordsError(ValueError):
    """A template renders other words in another way, so that nothing can be read off its renderings."""


@dataclass(frozen=True)
class Origin:
    """Where the characters of a rendered text come from.

    Attributes:
        text: The rendered text.
        string: Index of the string that each character is from, -1 for the template's own [character].
        offset: Its position in that string, -1 for the template's own [character].
        lost: Of each string, the stretches that are nowhere in the text, as pairs (start, end).
    """

    text: str
    string: NDArray[np.int64]
    offset: NDArray[np.int64]
    lost: tuple[tuple[tuple[int, int], ...], ...]


def twins(text: str) -> list[str]:
    """Return another character of the same kind for each of a text; the same one where it must stay.

    Blanks, punctuation and tags stay, in a text that has anything else.
    """
    result = [_twin(char) for char in text]
    for tag in _TAG.finditer(text):
        result[tag.start() : tag.end()] = tag.group()
    if any(new != char for new, char in zip(result, text, strict=True)):
        return result
    return [char if char.isspace() else _FILLER for char in text]


def _twin(char: str) -> str:
    if char.isascii():
        return _SWAPPED.get(char, char)
    kind = unicodedata.category(char)
    if char.isspace() or kind[0] not in "LNS" or ord(char) == _LAST:
        return char
    other = chr(ord(char) + 1)
    return other if unicodedata.category(other) == kind and not unicodedata.combining(other) else char


def origins(render: Callable[[Sequence[str]], str], strings: Sequence[str]) -> Origin:
    """Return where every character that `render` writes comes from.

    Args:
        render: The rendered text for strings in place of the given ones, of the same lengths.
        strings: The given strings.

    Raises:
        DependsOnWordsError: If the text is of another length, or its characters are not those of the strings.
    """
    text = render(strings)
    seen = _points(text)
    first = np.cumsum([1, *map(len, strings)])
    owner = np.repeat(np.arange(-1, len(strings)), [1, *map(len, strings)])
    chars = np.concatenate([[-1], *map(_points, strings)])
    other = np.concatenate([[-1], *(_points("".join(twins(text))) for text in strings)])
    coded = chars != other

    def rendered(changed: NDArray[np.bool_]) -> NDArray[np.int64]:
        new = np.where(changed, other, chars)
        parts = [_spelled(new[start:stop]) for start, stop in pairwise(first)]
        try:
            result = _points(render(parts))
        except ValueError as error:  # of the template: it accepts only some words
            raise DependsOnWordsError(str(error)) from error
        if len(result) != len(seen):
            raise DependsOnWordsError("a rendering of other words has another length")
        return result

    numbers = np.arange(len(chars))
    number = np.zeros(len(seen), dtype=np.int64)
    for bit in range(int(numbers[-1]).bit_length()):
        number += (rendered(coded & (numbers >> bit & 1).astype(bool)) != seen).astype(np.int64) << bit
    written = number > 0
    if (number >= len(chars)).any():
        raise DependsOnWordsError("other words change the template's own")
    all_changed = rendered(coded)
    same = (chars[number] == seen) & (other[number] == all_changed)
    if not same[written].all() or (all_changed != seen)[~written].any():
        raise DependsOnWordsError("characters are not rendered as they are given")
    for step in (1, -1):
        number = _continued(number, seen, chars, owner, step)
    offset = np.where(number > 0, number - np.r_[0, first[:-1]][owner[number] + 1], -1)
    present = np.zeros(len(chars), dtype=bool)
    present[number] = True
    lost = tuple(_stretches(~present[start:stop], coded[start:stop]) for start, stop in pairwise(first))
    return Origin(text, owner[number], offset, lost)


def _continued(
    number: NDArray[np.int64],
    seen: NDArray[np.int64],
    chars: NDArray[np.int64],
    owner: NDArray[np.int64],
    step: int,
) -> NDArray[np.int64]:
    """Return numbers in which characters without a code go on from their neighbour, as long as they agree.

    Args:
        number: Number of each rendered character, 0 without one.
        seen: The rendered characters.
        chars: The characters by number.
        owner: The string of each number.
        step: 1 to go on to the right, -1 to the left.
    """
    number, seen = number[::step], seen[::step]
    at = np.arange(len(number))
    near = np.maximum.accumulate(np.where(number > 0, at, -1))
    guess = number[near] + step * (at - near)
    inside = (near >= 0) & (guess > 0) & (guess < len(chars))
    guess = np.where(inside, guess, 0)
    agrees = (number > 0) | (inside & (chars[guess] == seen) & (owner[guess] == owner[number[near]]))
    differs = np.maximum.accumulate(np.where(agrees, -1, at))
    return np.where((number == 0) & (differs < near), guess, number)[::step]


def _stretches(lost: NDArray[np.bool_], coded: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Return the runs of lost characters that hold one with a code: of the others, a run may be anywhere."""
    edges = np.flatnonzero(np.diff(np.r_[False, lost, False]))
    runs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return tuple((start, stop) for start, stop in runs if coded[start:stop].any())


def _points(text: str) -> NDArray[np.int64]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)


def _spelled(points: NDArray[np.int64]) -> str:
    return points.astype(np.uint32).tobytes().decode("utf-32-le", "surrogatepass")
