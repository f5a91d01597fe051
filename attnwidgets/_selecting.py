"""Selecting layers and heads by their original numbers, with errors that name the range."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from attnwidgets._errors import require_choice, suggest

CLASS_TOKENS = ("[CLS]", "<s>", "<cls>")
POSITIONS = ("cls", "first", "last")

T = TypeVar("T")


def position(number: int, numbers: Sequence[int], name: str) -> int:
    """Return the index of `number` in `numbers`; a negative number counts from the end.

    Args:
        number: The number.
        numbers: The existing numbers.
        name: Their name, for messages; an argument's name may stand before it ("start_layer", "pins: layer").

    Raises:
        IndexError: If it is not among them; the message names the range.
        TypeError: If it is not an integer.
    """
    if isinstance(number, bool):
        raise TypeError(f"{name} takes an integer, not {number}.")
    try:
        integer = operator.index(number)
    except TypeError as error:
        raise TypeError(f"{name} takes an integer, not {number!r}.") from error
    if integer in numbers:
        return numbers.index(integer)
    if -len(numbers) <= integer < 0:
        return len(numbers) + integer
    noun = re.split("_|: ", name)[-1]
    raise IndexError(f"{name} {integer} is out of range: there {spoken(numbers, noun)}.")


def element(which: int | str, labels: Sequence[str], name: str) -> int:
    """Return the index of an element that is named by its number, its label, "first", "last" or "cls".

    Blanks before and after a label do not count, unless a label with them is there.

    Args:
        which: The number, which counts from the last if it is negative, or the name.
        labels: Labels of all elements.
        name: Name of the argument or the unit, for messages.

    Raises:
        IndexError, TypeError: As `position`.
        ValueError: If no element has this label, or several have (the message names their positions).
    """
    if not isinstance(which, str):
        return position(which, range(len(labels)), name)
    exact = [index for index, label in enumerate(labels) if label == which]
    stripped = [index for index, label in enumerate(labels) if label.strip(" ␣▁") == which.strip()]
    indices = exact or stripped
    if len(indices) > 1:
        raise ValueError(f"{name} {which!r} is at {', '.join(map(str, indices))}; give one of these numbers.")
    if indices:
        return indices[0]
    if which in {"first", "last"}:
        return 0 if which == "first" else len(labels) - 1
    if which != "cls":
        near = suggest(which, [*labels, *POSITIONS])
        raise ValueError(
            f"{name} {which!r} is neither a label of this text nor one of {listed(POSITIONS)}.{near}"
        )
    classes = [index for index, label in enumerate(labels) if label in CLASS_TOKENS]
    if not classes:
        raise ValueError(
            f"{name} 'cls': no element is a class token ([CLS], <s>); give 'first', or its number."
        )
    return classes[0]


def ranking(which: Any, k: Any) -> tuple[Any, Any]:
    """Return the arguments of `.top(which, k)`, of which the first may be left out: `.top(3)`."""
    is_number = isinstance(which, int) and not isinstance(which, bool)
    return (None, which) if is_number else (which, k)


def at_most(rows: Sequence[T], k: int | None) -> list[T]:
    """Return the first `k` rows of a ranking; None: all.

    Raises:
        ValueError: If `k` is below 1.
    """
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, not {k}.")
    return list(rows[:k])


def pick(index: Any, numbers: Sequence[int], name: str) -> tuple[int, ...]:
    """Return the numbers selected by a number, several, or a slice of positions.

    Raises:
        IndexError: If a selected number is not among them, or the selection is empty.
    """
    if isinstance(index, slice):
        chosen = tuple(numbers[index])
    elif isinstance(index, Iterable) and not isinstance(index, str):
        chosen = tuple(dict.fromkeys(numbers[position(item, numbers, name)] for item in index))
    else:
        chosen = (numbers[position(index, numbers, name)],)
    if not chosen:
        raise IndexError(f"{name} selects nothing: there {spoken(numbers, name)}.")
    return chosen


def with_options(name: str, given: Any, options: Mapping[str, Collection[str]]) -> tuple[str, dict[str, Any]]:
    """Return a choice and its options, from the choice alone or from a pair (choice, options).

    Args:
        name: The argument's name, for messages.
        given: Its value.
        options: By choice, the names of its options.

    Raises:
        ValueError: If the choice, or an option of it, is unknown; the message names the nearest.
    """
    pair = isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[1], Mapping)  # noqa: PLR2004
    choice, chosen = given if pair else (given, {})
    require_choice(name, choice, list(options))
    for option in chosen:
        if not options[choice]:
            takes = listed(each for each in options if option in options[each])
            raise ValueError(
                f"{name} {choice!r} takes no option {option!r}{takes and f', which is of {takes}'}."
            )
        require_choice(f"{name} {choice!r}: option", option, options[choice])
    return choice, dict(chosen)


def spoken(numbers: Sequence[int], name: str) -> str:
    """Return a phrase such as "are layers 0 to 5"."""
    if len(numbers) == 1:
        return f"is only {name} {numbers[0]}"
    return f"are {name}s {spoken_range(numbers)}"


def listed(names: Iterable[str]) -> str:
    """Return names in quotes, with commas."""
    return ", ".join(repr(name) for name in names)


def spoken_range(numbers: Sequence[int]) -> str:
    """Return ascending numbers in words, runs of three or more as ranges: "0 to 5", "0 to 2, 4, 5"."""
    parts: list[str] = []
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        is_range = len(members) > 2 or len(members) == len(numbers) > 1  # noqa: PLR2004 - two are no shorter
        parts += [f"{members[0]} to {members[-1]}"] if is_range else map(str, members)
    return ", ".join(parts)
