"""Methods by name: each registers itself from the file that carries its name."""

from __future__ import annotations

import functools
import html
import importlib
import inspect
import pkgutil
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from attnwidgets._errors import suggest
from attnwidgets.explanations.explanation import Explanation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
R = TypeVar("R", bound=Explanation)


@dataclass(frozen=True)
class Method:
    """A way to explain a trace.

    Attributes:
        name: What `aw.explain` and the views call it.
        function: Takes a trace and keyword options.
        paper: Where it was published.
        needs: What the trace must offer, in words.
        returns: What comes back, with its axes.
        cost: What it takes beyond the recorded pass, in words.
    """

    name: str
    function: Callable[..., Explanation]
    paper: str
    needs: str
    returns: str
    cost: str

    @property
    def summary(self) -> str:
        """The first sentence of the function's docstring."""
        return inspect.cleandoc(self.function.__doc__ or "").split("\n", 1)[0]

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the keyword options."""
        return tuple(list(inspect.signature(self.function).parameters)[1:])


_METHODS: dict[str, Method] = {}


def method(
    name: str, *, paper: str, needs: str, returns: str, cost: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function as the method `name`; its unknown keywords are refused with the nearest valid one.

    Raises:
        ValueError: Where another function has the name.
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        parameters = tuple(inspect.signature(function).parameters)

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for keyword in kwargs:
                if keyword not in parameters:
                    taken = ", ".join(parameters[1:])
                    near = suggest(keyword, parameters)
                    message = f"{name}() takes no keyword {keyword!r}; it takes {taken}.{near}"
                    raise TypeError(message)
            return function(*args, **kwargs)

        other = _METHODS.get(name)
        if other is not None and other.function.__module__ != function.__module__:
            message = f"method {name!r} is registered by {other.function.__module__}; choose another name."
            raise ValueError(message)
        _METHODS[name] = Method(name, checked, paper, needs, returns, cost)
        return checked

    return register


def methods() -> MethodTable:
    """Return every method by name, with what it needs and returns; shown as a table."""
    package = importlib.import_module("attnwidgets.explanations")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return MethodTable(dict(sorted(_METHODS.items())))


def explain(trace: Any, name: str, /, **options: Any) -> Explanation:
    """Return what the method `name` says about a trace.

    Args:
        trace: What `aw.trace` returned; methods that read a map take a MixingMap, too.
        name: A name in `aw.methods()`.
        options: The method's own keywords.

    Raises:
        ValueError: Where there is no such method; the message names the nearest and lists them all.
        TypeError: Where the method takes no such keyword.
    """
    return methods()[name].function(trace, **options)


class MethodTable:
    """The registered methods: a table in a notebook, and a mapping from names to `Method`."""

    def __init__(self, found: dict[str, Method]) -> None:
        self._methods = found

    def __iter__(self) -> Iterator[Method]:
        return iter(self._methods.values())

    def __len__(self) -> int:
        return len(self._methods)

    def __contains__(self, name: object) -> bool:
        return name in self._methods

    def __getitem__(self, name: str) -> Method:
        if name not in self._methods:
            names = ", ".join(repr(known) for known in self._methods)
            message = f"method {name!r} is unknown; there is {names}.{suggest(str(name), self._methods)}"
            raise ValueError(message)
        return self._methods[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(self._methods)

    def _rows(self) -> list[tuple[str, ...]]:
        return [(m.name, m.summary, m.returns, m.needs, m.cost, m.paper) for m in self]

    def __repr__(self) -> str:
        lines = []
        for name, summary, returns, needs, cost, paper in self._rows():
            lines.append(name)
            about = (summary, f"returns {returns}", f"needs {needs}", f"costs {cost}", paper)
            lines.extend(
                textwrap.fill(line, 100, initial_indent="    ", subsequent_indent="      ") for line in about
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        heads = ("method", "what it says", "returns", "needs", "costs", "paper")
        head = "".join(f"<th style='text-align:left'>{item}</th>" for item in heads)
        body = "".join(
            "<tr>"
            + "".join(f"<td style='text-align:left'>{html.escape(item)}</td>" for item in row)
            + "</tr>"
            for row in self._rows()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
