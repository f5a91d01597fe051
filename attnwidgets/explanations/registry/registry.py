"""The registry of methods by name; each method registers itself from its file.

`@method` wraps a function so that it takes lists and refuses unknown keywords, missing attention and too
little memory, and adds it to `_METHODS`. `methods` imports all modules of `_HOMES` first, so that every
method of the package has registered itself.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from attnwidgets._errors import refuse_unknown, suggest
from attnwidgets._selecting import listed
from attnwidgets.explanations.explanation import Explanation
from attnwidgets.explanations.registry.documentation import QUESTIONS, SPEEDS, documented
from attnwidgets.explanations.registry.requirements import OF_ATTENTION, Need, resolve_needs, sizes_of
from attnwidgets.explanations.registry.several_traces import OfTraces, takes_lists
from attnwidgets.tracing.free_memory import forced, less_of, room_for, spoken_bytes
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from attnwidgets.explanations.registry.documentation import Question, Speed
    from attnwidgets.explanations.registry.requirements import Takes

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R", bound=Explanation)


@dataclass(frozen=True, repr=False)
class Method:
    """A method that explains traces.

    Attributes:
        name: Its name in `aw.explain` and the views.
        function: Takes a trace (or a list of traces) and keyword options.
        paper: The publication.
        needs: The requirements on the trace, in words.
        returns: The kind of result, with its axes.
        cost: The passes it takes beyond the recorded pass, in words.
        requirements: `needs` as checks.
        by_user: Whether `aw.register` added it.
        beside: The method to compare it with, or "".
        mark: A remark next to the name in menus ("fails: causal"), or "".
        takes: Estimates its memory from sizes; None if it checks its memory itself, or takes little.
        question: The question that it answers; None: that of its kind of result (see `answers`).
        gist: Its answer in a few words of the reader's; "": its summary (see `reads`).
        speed: About how long it takes: "instant", "seconds" or "minutes".
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
    question: Question | None = None
    gist: str = ""
    speed: Speed = "seconds"

    def __repr__(self) -> str:
        paper = f" {self.paper}." if self.paper else ""
        return f"<Method {self.name}: {self.summary} Returns {self.returns}.{paper}>"

    @property
    def summary(self) -> str:
        """The first sentence of the function's docstring."""
        return inspect.cleandoc(self.function.__doc__ or "").split("\n", 1)[0]

    @property
    def answers(self) -> Question:
        """The question that it answers, under which menus list it."""
        if self.question is not None:
            return self.question
        return "For this prediction" if self.kind == "attributions" else "What goes into a token"

    @property
    def reads(self) -> str:
        """Its answer in a few words: "which words each head reads"."""
        return self.gist or self.summary.removesuffix(".")

    @property
    def kind(self) -> Literal["map", "attributions"]:
        """The kind of result: a MixingMap ("map") or Attributions ("attributions")."""
        return "attributions" if self.returns.startswith("Attributions") else "map"

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the keyword options."""
        return tuple(parameter.name for parameter in self._parameters())

    def default_options(self, trace: Any = None) -> dict[str, Any]:
        """Return the options with their defaults, without those that have none (see `required`).

        Args:
            trace: If given, `stack` is the trace's default stack.
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
        return _parameters_of(self.function)

    def memory(self, trace: Any, stack: str | None = None) -> float:
        """Return the approximate bytes that this method takes; 0 if few, or if it checks its memory itself.

        Args:
            trace: Trace returned by `aw.trace` or `aw.from_attentions`, or a MixingMap.
            stack: Name of the stack; the trace's default otherwise.
        """
        sizes = sizes_of(trace, stack)
        return 0.0 if self.takes is None or sizes is None else float(self.takes(sizes))

    @contextmanager
    def in_room(self, trace: Any, stack: str | None, *, force: bool) -> Iterator[None]:
        """Raise ValueError, with a remedy, if memory is too short, before the method runs or when it fails.

        With `force`, nothing is refused for its memory.
        """
        sizes = sizes_of(trace, stack)
        where = "" if sizes is None else f" over {sizes.keys:,} tokens"
        device = None if sizes is None else sizes.device
        remedy = f"Take {less_of(getattr(trace, 'inputs', {}))}, or a device with more memory"
        with forced(force), room_for(f"{self.name}{where}", self.memory(trace, stack), device, remedy):
            yield

    def refusal(self, trace: Any, stack: str | None = None) -> str:
        """Return "" if this method can explain a trace, else the first reason against it, in words.

        The model does not run: errors that only a run can reveal are raised when the method is called.

        Args:
            trace: Trace returned by `aw.trace` or `aw.from_attentions`, or a MixingMap.
            stack: Name of the stack; the trace's default otherwise.
        """
        stack = default_stack(trace) if stack is None else stack
        reasons = (need.refusal(trace, stack) for need in self.requirements)
        return next((reason for reason in reasons if reason), "")


@functools.lru_cache(maxsize=256)
def _parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    # A menu asks each method several times.
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def default_stack(trace: Any) -> str:
    """Return the default stack of a trace or an explanation."""
    return str(getattr(trace, "default_stack", None) or getattr(trace, "stack", "self"))


# Packages of methods; the last, on the removal of elements, is in a layer above this package.
_HOMES = (
    "attnwidgets.explanations.mixing",
    "attnwidgets.explanations.attribution",
    "attnwidgets.evaluate.surrogates",
)
_METHODS: dict[str, Method] = {}
_TOP = ";vertical-align:top"


def method(
    name: str,
    *,
    question: Question,
    gist: str,
    paper: str,
    needs: str | Need | tuple[str | Need, ...],
    returns: str,
    cost: str,
    speed: Speed,
    takes: Takes | None = None,
    former: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> Callable[[Callable[Concatenate[T, P], R]], OfTraces[T, P, R]]:
    """Register a function as the method `name`; unknown keywords are refused with the nearest valid keyword.

    Called with a list of traces it returns a list of results, in the same order.
    Calls that do not fit into memory are refused as well, unless `force=True`, which every method accepts.
    Placeholders in the function's docstring are filled in: see `documented`.

    Args:
        name: Its name in `aw.explain` and the views.
        question: The question that it answers, under which menus list it.
        gist: Its answer in a few words of the reader's: "which words each head reads".
        paper: The publication.
        needs: The requirements on the trace: names in `requirements.NEEDS`, or a new `Need`.
        returns: The kind of result, with its axes; begins with MixingMap or Attributions.
        cost: The passes it takes beyond the recorded pass, in words.
        speed: About how long they take for a short text: "instant", "seconds" or "minutes".
        takes: Estimates its bytes from sizes; None if it checks its memory itself, or takes little.
        former: Lets it take its former keywords, with a warning.

    Raises:
        ValueError: If another function has the name, or a requirement or placeholder is unknown.
    """

    def register(function: Callable[Concatenate[T, P], R]) -> OfTraces[T, P, R]:
        @functools.wraps(documented(function))
        def checked_call(*args: Any, **kwargs: Any) -> R:
            takes_force = "force" in inspect.signature(function).parameters
            force = bool(kwargs.get("force") if takes_force else kwargs.pop("force", False))
            require_known(name, function, kwargs)
            trace, stack = args[0] if args else kwargs.get("trace"), kwargs.get("stack")
            require_attention(entry, trace)
            with entry.in_room(trace, stack if isinstance(stack, str) else None, force=force):
                return function(*args, **kwargs)

        checked: Any = takes_lists(checked_call)  # the signature of `function`
        checked = checked if former is None else former(checked)
        earlier = _METHODS.get(name)
        if earlier is not None and earlier.function.__module__ != function.__module__:
            raise ValueError(
                f"method {name!r} is registered by {earlier.function.__module__}; choose another name."
            )
        requirements = resolve_needs(needs)
        words = "; ".join(need.words for need in requirements)
        entry = Method(
            name,
            checked,
            paper,
            words,
            returns,
            cost,
            requirements,
            takes=takes,
            question=question,
            gist=gist,
            speed=speed,
        )
        _METHODS[name] = entry
        return checked

    return register


def require_known(name: str, function: Callable[..., Any], keywords: Iterable[str]) -> None:
    """Raise TypeError if a method does not accept a keyword; the message names the nearest."""
    parameters = inspect.signature(function).parameters
    if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
        refuse_unknown(name, (keyword for keyword in keywords if keyword not in parameters), parameters)


def require_attention(entry: Method, trace: Any) -> None:
    """Raise UnsupportedModelError if a method needs attention and a trace has none; lists the others."""
    table = getattr(trace, "stack_table", None)
    if not table or any(stack.layers for stack in table.values()):
        return
    reason = entry.refusal(trace)
    if not reason or all(need.name not in OF_ATTENTION for need in entry.requirements):
        return
    able = [candidate.name for candidate in methods(trace) if not candidate.refusal(trace)]
    raise UnsupportedModelError(
        f"{entry.name} {reason}; {listed(able) or 'no method'} {'need' if len(able) > 1 else 'needs'} "
        f"no attention"
    )


def put(entry: Method) -> None:
    """Add a user's method, which replaces a method of the same name."""
    _METHODS[entry.name] = entry


def method_named(name: str) -> Method | None:
    """Return a method by name; None if nothing of that name was registered so far. Loads no methods."""
    return _METHODS.get(name)


def in_menu_order(entry: Method) -> tuple[int, int, str]:
    """Return a key that sorts methods by question, then by speed, then by name."""
    return QUESTIONS.index(entry.answers), SPEEDS.index(entry.speed), entry.name


def remove(name: str) -> None:
    """Forget a user's method."""
    if methods()[name].by_user:
        del _METHODS[name]


@functools.cache  # a view reads the table several times, and listing the folders takes longer than reading it
def _import_homes() -> None:
    for name in _HOMES:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{name}.{module.name}")


def methods(trace: Any = None, *, stack: str | None = None) -> MethodTable:
    """Return every method by name, with its needs, results and costs; shown as a table.

    Every method takes a trace, or a list of traces, for which it returns a list of results in the same order.

    Args:
        trace: If given, the table also says which methods can explain it, why the others cannot, and how much
            memory they take.
        stack: Stack of `trace`; its default otherwise.

    Example:
        >>> "rollout" in aw.methods()
        True
        >>> aw.methods()["saliency"].returns
        'Attributions [source]'
    """
    _import_homes()
    by_name = dict(sorted(_METHODS.items()))
    if trace is None:
        return MethodTable(by_name)
    return MethodTable(
        by_name,
        {name: entry.refusal(trace, stack) for name, entry in by_name.items()},
        {name: entry.memory(trace, stack) for name, entry in by_name.items()},
    )


@overload
def explain(trace: list[Any] | tuple[Any, ...], name: str, /, **options: Any) -> list[Explanation]: ...


@overload
def explain(trace: Any, name: str, /, **options: Any) -> Explanation: ...


def explain(trace: Any, name: str, /, **options: Any) -> Explanation | list[Explanation]:
    """Explain a trace by the method `name`; a list of traces gives a list of results.

    Args:
        trace: Trace returned by `aw.trace`; methods that read a map also accept a MixingMap.
        name: A name in `aw.methods()`.
        options: The method's keywords, and `force=True` to run it even if memory may be too short.

    Returns:
        The method's result: a MixingMap or Attributions; for a list of traces, a list of results in the same
        order. The functions of `aw.methods()` return the same when they are called directly.

    Raises:
        ValueError: If the method is unknown (the message names the nearest and lists all), or memory is too
            short (the message says how much it takes and how much is free).
        TypeError: If the method does not accept a keyword.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.explain(trace, "rollout", residual_weight=0.8).method
        'rollout'
        >>> [result.shape for result in aw.rollout([trace, trace])]
        [(6, 9, 9), (6, 9, 9)]
    """
    return methods()[name].function(trace, **options)


class MethodTable:
    """The registered methods: a table in a notebook, and a mapping from names to `Method`.

    Args:
        by_name: Methods by name.
        refusals: For a given trace: by name, "" or why the method cannot explain it.
        memory: For a given trace: by name, the approximate bytes that the method takes; 0 if it is little, or
            the method checks its memory itself.
    """

    def __init__(
        self,
        by_name: dict[str, Method],
        refusals: dict[str, str] | None = None,
        memory: dict[str, float] | None = None,
    ) -> None:
        self._methods = by_name
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
            near = suggest(str(name), self._methods)
            raise ValueError(f"method {name!r} is unknown; the methods are {listed(self._methods)}.{near}")
        return self._methods[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(self._methods)

    def _rows(self) -> list[dict[str, str]]:
        rows = []
        for entry in self:
            name = f"{entry.name} ({entry.mark})" if entry.mark else entry.name
            row = {"method": name, "what it says": entry.summary, "returns": entry.returns}
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
        bare = ("what it says", "paper")  # without the column's name
        for row in self._rows():
            lines.append(row.pop("method"))
            about = (words if head in bare else f"{head} {words}" for head, words in row.items() if words)
            lines.extend(
                textwrap.fill(line, 100, initial_indent="    ", subsequent_indent="      ") for line in about
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from attnwidgets.figures.html_tables import cell, table

        rows = self._rows()
        head = list(rows[0]) if rows else []
        cells = ([cell(item, left=True, style=_TOP, limit=500) for item in row.values()] for row in rows)
        return table(head, cells, left=range(len(head)))
