"""Helpful messages: the nearest valid name for a misspelt one, and texts and durations in brief."""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

# Keywords that had another name before 0.1.0; some notebooks still use it.
_RENAMED = {"stream": "stack"}

P = ParamSpec("P")
R = TypeVar("R")


def suggest(name: str, choices: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the choice nearest to `name`, or "" if none is near."""
    known = {choice.casefold(): choice for choice in choices}
    near = difflib.get_close_matches(_RENAMED.get(str(name), str(name)).casefold(), known, n=1, cutoff=0.6)
    return f" Did you mean {known[near[0]]!r}?" if near else ""


def suggests_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function refuse an unknown keyword with a TypeError that names the nearest valid one.

    Its signature stays as it is, for readers and for type checkers.
    """
    parameters = inspect.signature(function).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.name not in ("self", "cls")]
    name = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_unknown(name, (keyword for keyword in kwargs if keyword not in known), known)
        return function(*args, **kwargs)

    return checked


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
    """Return a text in quotes; if it is longer than `most` characters, its beginning."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def duration(seconds: float) -> str:
    """Return a time in its largest fitting unit: "20 seconds", "3 minutes", "5 hours", "12 days"."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.0f} {unit}s"
    whole = max(1, round(seconds))
    return "a second" if whole == 1 else f"{whole} seconds"


def not_installed(what: str, library: str, instead: str = "") -> ModuleNotFoundError:
    """Return the error for what needs a library that is missing; it says what to do.

    Args:
        what: What needs it: "aw.trace".
        library: The name of the library.
        instead: A sentence with another way to what is wanted.
    """
    if library not in ("torch", "transformers"):
        remedy = f"pip install {library}."
    elif sys.platform == "emscripten":
        remedy = "no browser runs it. Save results elsewhere with .save(path), and aw.load them here."
    else:
        remedy = "pip install torch transformers."
    text = f"{what} needs {library}, which is not installed: {remedy}"
    return ModuleNotFoundError(f"{text} {instead}".rstrip(), name=library)
