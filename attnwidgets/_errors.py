"""Helpful messages: the nearest valid name for a misspelt name, and texts and durations in brief."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
import warnings
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

TYPED = {
    # Names before 0.1.0, which some notebooks still use.
    "stream": "stack",
    # Words of matplotlib, pandas and Captum, and the names here.
    "cmap": "palette",
    "colormap": "palette",
    "savefig": "save",
    "export": "save",
    "to_pdf": 'save("figure.pdf")',
    "to_png": 'save("figure.png")',
    "to_svg": 'save("figure.svg")',
    "to_pandas": "to_dataframe",
    "to_df": "to_dataframe",
    "df": "to_dataframe",
    "width": 'layout={"width": "600px"}',
    "show": "view",
    "gradient_x_input": "input_x_gradient",
    "grad_x_input": "input_x_gradient",
    # Names that an object lacks, and a sentence with the calls that serve.
    "aw.mean": "Maps average over heads by aw.attention(trace).mean('head'), over texts tables by "
    "aw.statistics.averaged(tables).",
    "aw.save": "Save a result, aw.rollout(trace).save(path), a view, aw.Explorer(trace).save(path), or "
    "several views, aw.to_html(views, path).",
    "aw.plot": "Results draw themselves: aw.rollout(trace).figure().",
    "Trace.save": "A trace stays with its model. Save a result, aw.attention(trace).save(path), which "
    "aw.load reads, or a page, aw.Explorer(trace).to_html(path).",
    "Trace.to_dataframe": "Results are tables: aw.attention(trace).to_dataframe().",
    "Trace.attentions": "All layers are aw.attention(trace).values, a single layer trace.attention_layer(0).",
}
"""Words that people type, with the name meant, or, after the name of a class or `aw`, a sentence."""

P = ParamSpec("P")
R = TypeVar("R")


def suggest(name: str, choices: Iterable[str], of: str = "") -> str:
    """Return " Did you mean 'x'?" for the choice meant by `name` (`TYPED`) or nearest to it, or "".

    Args:
        name: The name that was typed.
        choices: The valid names.
        of: The object that was to have the name: "aw", "Trace".
    """
    name = str(name)
    if sentence := TYPED.get(f"{of}.{name}"):
        return f" {sentence}"
    names = {choice.casefold(): choice for choice in choices}
    meant = TYPED.get(name, "")
    verb = re.split(r"\W", meant)[0]
    if verb in names:
        return f" Did you mean {repr(verb) if verb == meant else meant}?"
    near = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.6)
    return f" Did you mean {names[near[0]]!r}?" if near else ""


class _Lacking:
    """The message about a name that an object lacks, composed when it is read.

    `hasattr` drops it, and finding the nearest name takes a thousand times as long as noticing the lack.
    """

    def __init__(self, owner: object, name: str) -> None:
        self._owner, self._name = owner, name

    def __str__(self) -> str:
        kind, name = type(self._owner), self._name
        names = [public for public in dir(self._owner) if not public.startswith("_")]
        kinds = (base.__name__ for base in kind.__mro__)
        near = suggest(name, names, next((base for base in kinds if f"{base}.{name}" in TYPED), ""))
        return f"{kind.__name__!r} object has no attribute {name!r}.{near}"

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # an error travels without the object


class Suggesting:
    """An object that suggests, for a name that it lacks, the nearest public name or the name meant."""

    if not TYPE_CHECKING:  # type checkers would take any name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            kind = type(self)
            if name.startswith("_") or hasattr(kind, name):  # a property that raised says why
                return object.__getattribute__(self, name)
            raise AttributeError(_Lacking(self, name))


def suggests_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function refuse an unknown keyword with a TypeError that names the nearest valid keyword.

    Its signature stays as it is, for readers and for type checkers.
    """
    parameters = inspect.signature(function).parameters.values()
    allowed = [parameter.name for parameter in parameters if parameter.name not in ("self", "cls")]
    name = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_unknown(name, (keyword for keyword in kwargs if keyword not in allowed), allowed)
        return function(*args, **kwargs)

    return checked


def renamed(old: str, function: Callable[P, R]) -> Callable[P, R]:
    """Return a method under its former name ("Lens.top"), which warns and gives the new name."""
    new = function.__name__

    @functools.wraps(function)
    def former(*args: P.args, **kwargs: P.kwargs) -> R:
        deprecated(f"{old}() is called {new}() now")
        return function(*args, **kwargs)

    former.__name__ = old.rpartition(".")[2]
    former.__doc__ = f"Deprecated name of `{new}`."
    return former


def deprecated(change: str) -> None:
    """Warn the caller of a public function of a change; see Releases in CONTRIBUTING.md."""
    warnings.warn(f"{change}; the former call works until version 0.3.", DeprecationWarning, stacklevel=3)


def refuse_unknown(function: str, unknown: Iterable[str], allowed: Iterable[str]) -> None:
    """Raise a TypeError that names the first unknown keyword and the nearest valid keyword."""
    choices = tuple(allowed)
    for name in unknown:
        message = f"{function}() takes no keyword {name!r}.{suggest(name, choices)}"
        raise TypeError(f"{message} It takes: {', '.join(choices)}.")


def require_choice(name: str, value: object, choices: Collection[str | None]) -> None:
    """Raise a ValueError if the option `name` is not in `choices`; the message suggests the nearest."""
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


def not_installed(feature: str, library: str, instead: str = "") -> ModuleNotFoundError:
    """Return the error for a feature that needs a missing library; its message names the remedy.

    Args:
        feature: The feature that needs it: "aw.trace".
        library: The name of the library.
        instead: A sentence with another way to the same end.
    """
    if library not in ("torch", "transformers"):
        remedy = f"pip install {library}."
    elif sys.platform == "emscripten":
        remedy = "no browser runs it. Save results elsewhere with .save(path), and aw.load them here."
    else:
        remedy = "pip install torch transformers."
    text = f"{feature} needs {library}, which is not installed: {remedy}"
    return ModuleNotFoundError(f"{text} {instead}".rstrip(), name=library)
