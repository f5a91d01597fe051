"""Messages that help: the nearest valid name for a misspelt one, texts and times at a glance."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def suggest(name: str, choices: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the choice nearest to `name`, or "" when none is near."""
    known = {choice.casefold(): choice for choice in choices}
    near = difflib.get_close_matches(str(name).casefold(), known, n=1, cutoff=0.6)
    return f" Did you mean {known[near[0]]!r}?" if near else ""


def refuse_unknown(function: str, unknown: Iterable[str], known: Iterable[str]) -> None:
    """Raise a TypeError that names the first unknown keyword and the nearest valid one."""
    choices = tuple(known)
    for name in unknown:
        message = f"{function}() takes no keyword {name!r}.{suggest(name, choices)}"
        raise TypeError(f"{message} It takes: {', '.join(choices)}.")


def require_choice(name: str, value: object, choices: Collection[str | None]) -> None:
    """Raise a ValueError if the option `name` is none of `choices`; the message suggests the nearest."""
    if value not in choices:
        near = suggest(str(value), [choice for choice in choices if choice])
        raise ValueError(f"{name} {value!r} is not one of {', '.join(map(repr, choices))}.{near}")


def quoted(text: str, most: int = 60) -> str:
    """Return a text in quotes; of one longer than `most` characters, its beginning."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def duration(seconds: float) -> str:
    """Return a time as people say it: "20 seconds", "3 minutes", "5 hours", "12 days"."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.0f} {unit}s"
    whole = max(1, round(seconds))
    return "a second" if whole == 1 else f"{whole} seconds"
