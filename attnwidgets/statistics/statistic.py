"""Statistics of heads by name; each registers itself in the file that defines it."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.registry.several_traces import OfTraces, takes_lists
from attnwidgets.statistics.row_shares import Float, Measure, Queries, Roles, means, source_of

Refusal = Callable[[Roles], str]
Finish = Callable[[Float, Roles], Float]


@dataclass(frozen=True)
class Statistic:
    """A number that characterises a head.

    Attributes:
        name: Name in `aw.statistics.head_statistics`.
        title: Title in menus.
        definition: Definition in a line.
        scale: Range and unit, in words.
        high: Meaning of a high value, in words.
        paper: Source, or "" for a definition of this package.
        measure: Takes some rows of a layer's heads, returns the sums whose quotient is the statistic; None if
            it needs a special text (`aw.statistics.induction_score`, `aw.statistics.retrieval_score`).
        refusal: Returns why a map does not have it, or "".
        finish: Takes the quotients [layer, head, ...] and the roles, returns the statistic [layer, head].
        made_by: The call that measures it, if it is not read from a map.
    """

    name: str
    title: str
    definition: str
    scale: str
    high: str
    paper: str = ""
    measure: Measure | None = field(default=None, repr=False)
    refusal: Refusal = field(default=lambda _: "", repr=False)
    finish: Finish = field(default=lambda mean, _: mean, repr=False)
    made_by: str = ""


class OfHeads(Protocol):
    """A statistic as a function of a trace or a map; returns [layer, head] in float64."""

    def __call__(
        self,
        shown: Any,
        *,
        unit: str | None = None,
        stack: str | None = None,
        layers: Any = None,
        queries: Queries = "all",
    ) -> Float:
        """Return the statistic of every head [layer, head]; arguments as of `head_statistics`."""
        ...


# What all statistics share in their documentation, after definition, range, meaning and source.
_SHARED = """

Args:
    shown: A trace (its attention), or a MixingMap without negative values; or a list of them.
    unit: Read the map by "word", "sentence", ...; by default in the unit of the map.
    stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
    layers: Numbers of some layers; all by default.
    queries: "all", or "text" to leave out the rows of special elements ([CLS], [SEP]).

Returns:
    The statistic of every head, [layer, head] in float64; without a head axis if the map has none. NaN for
    heads that a layer does not have, or without a row that counts. For a list, a list in the same order.

Raises:
    ValueError: If the statistic is not defined for this map, values are negative, or the unit, stack or
        `queries` is unknown.
    TypeError: If `shown` is neither a trace nor a map.
"""
_EXAMPLE = """

Example:
    >>> model, tokenizer = aw.demo_model("encoder")
    >>> trace = aw.trace(model, tokenizer, "It drizzled and drizzled.", text_pair="The cat slept.")
    >>> aw.statistics.{name}(trace).shape
    (6, 12)
"""
# In the order of tables and menus: position, relation, kind of element, breadth, special texts.
_ORDER = (
    *("mean_distance", "diagonal", "previous_token", "next_token", "first_token", "inner_sink"),
    "no_token",
    *("same_word", "duplicate_token"),
    *("special_tokens", "separators", "other_sentences", "other_text"),
    *("entropy", "relative_entropy", "cls_entropy"),
    *("induction", "retrieval", "receiver"),
)
_STATISTICS: dict[str, Statistic] = {}


def register(described: Statistic) -> Statistic:
    """Register a statistic by its name, and return it."""
    _STATISTICS[described.name] = described
    return described


def statistic(
    *, title: str = "", refusal: Refusal = lambda _: "", finish: Finish = lambda mean, _: mean
) -> Callable[[Measure], OfTraces[Any, ..., Float]]:
    """Register a measure of rows as a statistic, and return it as a function of a trace or a map.

    The docstring of the measure begins with the definition that menus show, and has the paragraphs "Range:",
    "High:", "Low:" and perhaps "Source:". An "Example:" at its end replaces the shared example.

    Args:
        title: Title in menus; by default the name of the measure.
        refusal: Returns why a map does not have the statistic, or "".
        finish: Takes the quotients of the sums, if they are not the statistic; see `Statistic`.
    """

    def wrap(measure: Measure) -> OfTraces[Any, ..., Float]:
        name = getattr(measure, "__name__", "")
        documentation = inspect.cleandoc(measure.__doc__ or "")
        definition = documentation.split("\n", 1)[0]
        scale, high, paper = (_paragraph(documentation, word) for word in ("Range", "High", "Source"))
        title_of = title or name.replace("_", " ")
        described = register(
            Statistic(name, title_of, definition, scale, high, paper, measure, refusal, finish)
        )

        @functools.wraps(measure, updated=())
        def of_heads(
            shown: Any,
            *,
            unit: str | None = None,
            stack: str | None = None,
            layers: Any = None,
            queries: Queries = "all",
        ) -> Float:
            source, unit = source_of(shown, stack, layers, unit, name)
            roles = Roles(source.to(unit), queries)
            reason = refusal(roles)
            if reason:
                raise ValueError(f"{name} is not defined here: {reason}.")
            return compute([described], source, unit, roles)[0]

        of_heads.__annotations__ = dict(OfHeads.__call__.__annotations__)
        words, heading, example = documentation.partition("\n\nExample:")
        example = heading + example if heading else _EXAMPLE.format(name=name).rstrip()
        of_heads.__doc__ = words + _SHARED.rstrip() + example + "\n"
        del of_heads.__wrapped__  # so that help() shows the arguments it takes
        return takes_lists(of_heads)

    return wrap


def _paragraph(documentation: str, word: str) -> str:
    """Return the text after "word:" in a docstring as a line, without its full stop."""
    text = re.search(rf"^{word}: (.*?)(?=\n\S|\n\n|\Z)", documentation, re.MULTILINE | re.DOTALL)
    return " ".join(text[1].split()).removesuffix(".") if text else ""


def compute(statistics: list[Statistic], source: Any, unit: str, roles: Roles) -> Float:
    """Return statistics of a map [statistic, layer, head]; without a head axis if it has none."""
    measures = [described.measure for described in statistics if described.measure is not None]
    results = means(source, unit, roles, "head statistics", measures)
    values = np.stack([each.finish(mean, roles) for each, mean in zip(statistics, results, strict=True)])
    return values if source.heads is not None else values[:, :, 0]


def statistics() -> dict[str, Statistic]:
    """Return every statistic by name, with its definition, range and source.

    Example:
        >>> aw.statistics.statistics()["entropy"].scale
        '0 to ln(n) nats (divide by ln 2 for bits)'
    """
    import attnwidgets.statistics  # noqa: F401 - its files register what they define

    rank = {name: index for index, name in enumerate(_ORDER)}
    return {
        name: _STATISTICS[name] for name in sorted(_STATISTICS, key=lambda name: rank.get(name, len(rank)))
    }


def named(names: Any) -> list[Statistic]:
    """Return statistics of maps by name; all of them for None.

    Raises:
        ValueError: If a statistic is unknown, or needs a special text.
    """
    table = statistics()
    of_maps = [name for name, described in table.items() if described.measure is not None]
    requested = of_maps if names is None else [names] if isinstance(names, str) else list(names)
    for name in requested:
        if name in table and name not in of_maps:
            raise ValueError(
                f"statistic {name!r} is measured by {table[name].made_by}; views sort heads by that table: "
                "aw.HeadGrid(trace, sort=table)."
            )
        require_choice("statistic", name, of_maps)
    return [table[name] for name in dict.fromkeys(requested)]
