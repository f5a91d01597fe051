"""Methods by name: each registers itself from the file that carries its name."""

from __future__ import annotations

import functools
import html
import importlib
import inspect
import pkgutil
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from attnwidgets._errors import suggest
from attnwidgets.explanations.explanation import Explanation
from attnwidgets.explanations.registry.memory_estimates import sizes_of
from attnwidgets.explanations.registry.requirements import Need, resolve_needs
from attnwidgets.tracing.free_memory import forced, room_for, spoken_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from attnwidgets.explanations.registry.memory_estimates import Takes

P = ParamSpec("P")
R = TypeVar("R", bound=Explanation)


@dataclass(frozen=True, repr=False)
class Method:
    """A way to explain a trace.

    Attributes:
        name: What `aw.explain` and the views call it.
        function: Takes a trace and keyword options.
        paper: Where it was published.
        needs: What the trace must offer, in words.
        returns: What comes back, with its axes.
        cost: What it takes beyond the recorded pass, in words.
        requirements: What `needs` says, as checks.
        by_user: Whether `aw.register` added it.
        beside: The method it is to be laid beside, or "".
        mark: What a menu says beside the name ("fails: causal"), or "".
        takes: Its memory by sizes; None where it checks its own, or takes few bytes.
    """

    name: str
    function: Callable[..., Explanation]
    paper: str
    needs: str
    returns: str
    cost: str
    requirements: tuple[Need, ...] = ()
    by_user: bool = False
    beside: str = ""
    mark: str = ""
    takes: Takes | None = None

    def __repr__(self) -> str:
        paper = f" {self.paper}." if self.paper else ""
        return f"<Method {self.name}: {self.summary} Returns {self.returns}.{paper}>"

    @property
    def summary(self) -> str:
        """The first sentence of the function's docstring."""
        return inspect.cleandoc(self.function.__doc__ or "").split("\n", 1)[0]

    @property
    def kind(self) -> Literal["map", "attributions"]:
        """What comes back: a MixingMap ("map") or Attributions ("attributions")."""
        return "attributions" if self.returns.startswith("Attributions") else "map"

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the keyword options."""
        return tuple(parameter.name for parameter in self._parameters())

    def default_options(self, trace: Any = None) -> dict[str, Any]:
        """Return the options with their defaults; those without a default are left out (see `required`).

        Args:
            trace: Where given, `stack` is the one that is meant by its default.
        """
        defaults = {p.name: p.default for p in self._parameters() if p.default is not p.empty}
        if trace is not None and "stack" in defaults and defaults["stack"] is None:
            defaults["stack"] = default_stack(trace)
        return defaults

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the options that have no default."""
        return tuple(p.name for p in self._parameters() if p.default is p.empty)

    def _parameters(self) -> list[inspect.Parameter]:
        found = list(inspect.signature(self.function).parameters.values())[1:]
        return [p for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]

    def memory(self, trace: Any, stack: str | None = None) -> float:
        """Return about how many bytes this method holds at once; 0 where it checks its own, or takes few.

        Args:
            trace: What `aw.trace` or `aw.from_attentions` returned, or a MixingMap.
            stack: Which stack; the trace's default otherwise.
        """
        sizes = sizes_of(trace, stack)
        return 0.0 if self.takes is None or sizes is None else float(self.takes(sizes))

    @contextmanager
    def in_room(self, trace: Any, stack: str | None, *, force: bool) -> Iterator[None]:
        """Raise ValueError with what to do where this method has no room, before it runs or when it fails.

        Within `force`, nothing that it runs is refused for its memory.
        """
        sizes = sizes_of(trace, stack)
        where = "" if sizes is None else f" over {sizes.keys:,} tokens"
        device = None if sizes is None else sizes.device
        remedy = "Take a shorter text, or a device with more memory"
        with forced(force), room_for(f"{self.name}{where}", self.memory(trace, stack), device, remedy):
            yield

    def refusal(self, trace: Any, stack: str | None = None) -> str:
        """Return "" where this method can serve a trace, else the first reason against it, in words.

        The model is not run: what only a run can tell is the method's own error when it is called.

        Args:
            trace: What `aw.trace` or `aw.from_attentions` returned, or a MixingMap.
            stack: Which stack; the trace's default otherwise.
        """
        stack = default_stack(trace) if stack is None else stack
        reasons = (need.refusal(trace, stack) for need in self.requirements)
        return next((reason for reason in reasons if reason), "")


def default_stack(trace: Any) -> str:
    """Return the stack that is meant by default, of a trace or an explanation."""
    return str(getattr(trace, "default_stack", None) or getattr(trace, "stack", "self"))


_HOMES = ("attnwidgets.explanations.mixing", "attnwidgets.explanations.attribution")  # a method a file
_METHODS: dict[str, Method] = {}
_CELL = "text-align:left;vertical-align:top;padding:.3em .6em"


def method(
    name: str,
    *,
    paper: str,
    needs: str | Need | tuple[str | Need, ...],
    returns: str,
    cost: str,
    takes: Takes | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function as the method `name`; its unknown keywords are refused with the nearest valid one.

    What has no room in memory is refused as well, unless it is given `force=True`, which every method takes.

    Args:
        name: What `aw.explain` and the views call it.
        paper: Where it was published.
        needs: What the trace must offer: names in `needs.NEEDS`, or a `Need` of the method's own.
        returns: What comes back, with its axes; begins with MixingMap or Attributions.
        cost: What it takes beyond the recorded pass, in words.
        takes: How much memory it holds at once, by sizes; None where it checks its own, or takes few bytes.

    Raises:
        ValueError: Where another function has the name, or a requirement is unknown.
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            own = "force" in inspect.signature(function).parameters
            force = bool(kwargs.get("force") if own else kwargs.pop("force", False))
            require_known(name, function, kwargs)
            trace, stack = args[0] if args else kwargs.get("trace"), kwargs.get("stack")
            with entry.in_room(trace, stack if isinstance(stack, str) else None, force=force):
                return function(*args, **kwargs)

        other = _METHODS.get(name)
        if other is not None and other.function.__module__ != function.__module__:
            raise ValueError(
                f"method {name!r} is registered by {other.function.__module__}; choose another name."
            )
        requirements = resolve_needs(needs)
        words = "; ".join(need.words for need in requirements)
        entry = Method(name, checked, paper, words, returns, cost, requirements, takes=takes)
        _METHODS[name] = entry
        return checked

    return register


def require_known(name: str, function: Callable[..., Any], keywords: Iterable[str]) -> None:
    """Raise TypeError where a method takes no such keyword; the message names the nearest."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for keyword in keywords:
        if keyword not in parameters:
            taken = ", ".join(list(parameters)[1:]) or "none"
            near = suggest(keyword, parameters)
            raise TypeError(f"{name}() takes no keyword {keyword!r}; it takes {taken}.{near}")


def put(entry: Method) -> None:
    """Add a user's method, in place of one of the same name."""
    _METHODS[entry.name] = entry


def remove(name: str) -> None:
    """Forget a user's method."""
    if methods()[name].by_user:
        del _METHODS[name]


def methods(trace: Any = None, *, stack: str | None = None) -> MethodTable:
    """Return every method by name, with what it needs and returns; shown as a table.

    Args:
        trace: Where given, the table also says which methods serve it, what stands against the others, and
            how much memory they take.
        stack: Which stack of `trace`; its default otherwise.
    """
    for name in _HOMES:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{name}.{module.name}")
    found = dict(sorted(_METHODS.items()))
    if trace is None:
        return MethodTable(found)
    return MethodTable(
        found,
        {name: entry.refusal(trace, stack) for name, entry in found.items()},
        {name: entry.memory(trace, stack) for name, entry in found.items()},
    )


def explain(trace: Any, name: str, /, **options: Any) -> Explanation:
    """Return what the method `name` says about a trace.

    Args:
        trace: What `aw.trace` returned; methods that read a map take a MixingMap, too.
        name: A name in `aw.methods()`.
        options: The method's own keywords, and `force=True` to run what has no room in memory.

    Raises:
        ValueError: Where there is no such method (the message names the nearest and lists them all), or it
            has no room in memory (the message says what it takes and what is free).
        TypeError: Where the method takes no such keyword.
    """
    return methods()[name].function(trace, **options)


class MethodTable:
    """The registered methods: a table in a notebook, and a mapping from names to `Method`.

    Args:
        found: Methods by name.
        refusals: Where asked of a trace: by name, "" or why the method cannot serve it.
        memory: Where asked of a trace: by name, about how many bytes the method takes; 0 where that is told
            when it is called, or is little.
    """

    def __init__(
        self,
        found: dict[str, Method],
        refusals: dict[str, str] | None = None,
        memory: dict[str, float] | None = None,
    ) -> None:
        self._methods = found
        self.refusals = refusals
        self.memory = memory

    def __iter__(self) -> Iterator[Method]:
        return iter(self._methods.values())

    def __len__(self) -> int:
        return len(self._methods)

    def __contains__(self, name: object) -> bool:
        return name in self._methods

    def __getitem__(self, name: str) -> Method:
        if name not in self._methods:
            names = ", ".join(repr(known) for known in self._methods)
            raise ValueError(
                f"method {name!r} is unknown; there is {names}.{suggest(str(name), self._methods)}"
            )
        return self._methods[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(self._methods)

    def _rows(self) -> list[dict[str, str]]:
        rows = []
        for entry in self:
            named = f"{entry.name} ({entry.mark})" if entry.mark else entry.name
            row = {"method": named, "what it says": entry.summary, "returns": entry.returns}
            if self.refusals is not None:
                refused = self.refusals[entry.name]
                row["serves this trace"] = f"no: {refused}" if refused else "yes"
            if self.memory is not None:
                need = self.memory[entry.name]
                row["takes"] = f"about {spoken_bytes(need)}" if need else ""
            rows.append(row | {"needs": entry.needs, "costs": entry.cost, "paper": entry.paper})
        return rows

    def __repr__(self) -> str:
        lines = []
        bare = ("what it says", "paper")
        for row in self._rows():
            lines.append(row.pop("method"))
            about = (words if head in bare else f"{head} {words}" for head, words in row.items() if words)
            lines.extend(
                textwrap.fill(line, 100, initial_indent="    ", subsequent_indent="      ") for line in about
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = self._rows()
        head = "".join(f"<th style='text-align:left'>{item}</th>" for item in (rows[0] if rows else ()))
        body = "".join(
            "<tr>"
            + "".join(f"<td style='{_CELL}'>{html.escape(item)}</td>" for item in row.values())
            + "</tr>"
            for row in rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
