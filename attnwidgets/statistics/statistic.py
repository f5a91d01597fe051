"""Statistics of heads by name: each registers itself from the file that defines it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.statistics.row_shares import Float, Queries, Roles, Rows, by_layer, source_of

Measure = Callable[[Rows], Float]
Refusal = Callable[[Roles], str]


@dataclass(frozen=True)
class Statistic:
    """A number that says what a head does.

    Attributes:
        name: What `aw.head_statistics` calls it.
        title: What a menu calls it.
        definition: What it is, in one line.
        scale: Its range and unit, in words.
        high: What a high value means, in words.
        paper: Where it was published, or "" for a definition of our own.
        measure: Takes the rows of some heads, returns [head]; None where it needs a text of its own
            (`aw.induction_score`, `aw.retrieval_score`).
        refusal: Says why a map does not have it, or "".
    """

    name: str
    title: str
    definition: str
    scale: str
    high: str
    paper: str = ""
    measure: Measure | None = field(default=None, repr=False)
    refusal: Refusal = field(default=lambda _: "", repr=False)


class OfHeads(Protocol):
    """A statistic as a function: of a trace or a map, returns [layer, head] in float64."""

    def __call__(
        self,
        shown: Any,
        *,
        unit: str | None = None,
        stack: str | None = None,
        layers: Any = None,
        queries: Queries = "all",
    ) -> Float:
        """Return the statistic of every head [layer, head]; see `aw.head_statistics` for the arguments."""
        ...


# As tables and menus show them: where, how broadly, at what, and what needs a text of its own.
_ORDER = (
    "mean_distance",
    "diagonal",
    "previous_token",
    "next_token",
    "first_token",
    "inner_sink",
    "special_tokens",
    "separators",
    "other_sentences",
    "other_text",
    "entropy",
    "relative_entropy",
    "cls_entropy",
    "induction",
    "retrieval",
)
_STATISTICS: dict[str, Statistic] = {}


def known(described: Statistic) -> Statistic:
    """Add a statistic to those known by name, and return it."""
    _STATISTICS[described.name] = described
    return described


def statistic(
    *, title: str, scale: str, high: str, paper: str = "", refusal: Refusal = lambda _: ""
) -> Callable[[Measure], OfHeads]:
    """Register a measure of rows as a statistic; what is returned takes a trace or a map.

    The first line of the docstring is the definition that menus show.
    """

    def wrap(measure: Measure) -> OfHeads:
        name = getattr(measure, "__name__", "")
        definition = inspect.cleandoc(measure.__doc__ or "").split("\n", 1)[0]
        described = known(Statistic(name, title, definition, scale, high, paper, measure, refusal))

        @functools.wraps(measure)
        def of_heads(
            shown: Any,
            *,
            unit: str | None = None,
            stack: str | None = None,
            layers: Any = None,
            queries: Queries = "all",
        ) -> Float:
            source, wanted = source_of(shown, stack, layers, unit, name)
            roles = Roles(source.to(wanted), queries)
            reason = refusal(roles)
            if reason:
                raise ValueError(f"{name} is not defined here: {reason}.")
            return measured([described], source, wanted, roles)[0]

        of_heads.__annotations__ = dict(OfHeads.__call__.__annotations__)
        del of_heads.__wrapped__  # so that help() shows the arguments it takes
        return of_heads

    return wrap


def measured(statistics: list[Statistic], source: Any, unit: str, roles: Roles) -> Float:
    """Return statistics [statistic, layer, head] of a map (no head axis where it has none); NaN: no head."""
    heads = 1 if source.heads is None else len(source.heads)
    found = np.full((len(statistics), len(source.layers), heads), np.nan)
    for layer, head, rows in by_layer(source, unit, roles, "head statistics"):
        for place, one in enumerate(statistics):
            if one.measure is not None:
                found[place, layer, head : head + len(rows.shares)] = one.measure(rows)
    return found if source.heads is not None else found[:, :, 0]


def statistics() -> dict[str, Statistic]:
    """Return every statistic by name, with its definition, range and source."""
    import attnwidgets.statistics  # noqa: F401 - its files register what they define

    return {name: _STATISTICS[name] for name in sorted(_STATISTICS, key=_place)}


def _place(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def named(names: Any) -> list[Statistic]:
    """Return statistics by name.

    Raises:
        ValueError: Where one is unknown, or needs a text of its own.
    """
    table = statistics()
    offered = [name for name, one in table.items() if one.measure is not None]
    if names is None:
        return [table[name] for name in offered]
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name in table and name not in offered:
            raise ValueError(
                f"statistic {name!r} needs a text of its own: aw.{name}_score(model, tokenizer, ...)."
            )
        if name not in offered:
            raise ValueError(
                f"statistic {name!r} is not one of {listed(offered)}.{suggest(str(name), offered)}"
            )
    return [table[name] for name in dict.fromkeys(wanted)]
