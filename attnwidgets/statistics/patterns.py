"""Patterns of heads by name: how clearly each head reads the previous token, the first, itself, and so on.

A pattern with `targets` names the keys that each query reads by it: its value is the mean share that goes to
these cells, which are few, so that large maps are cheap to name (`towards`). The patterns without targets
("sink", "no token", "broad") need whole rows (`_DENSE`). `HeadPatterns.own` names each head by its strongest
pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import at_most, ranking
from attnwidgets._tables import Table, cells
from attnwidgets.explanations.registry.several_traces import takes_lists
from attnwidgets.statistics.row_shares import (
    Float,
    Roles,
    divided,
    rows_of,
    seen_in,
    source_of,
    values_by_layer,
)
from attnwidgets.statistics.rows import (
    earlier_of,
    has_neighbours,
    has_next,
    has_pieces,
    has_repeats,
    has_sink,
    pieces_of,
    places_compare,
    relative_entropy_of_rows,
)
from attnwidgets.statistics.table import RankedHead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.statistics.row_shares import Rows

CLEAR = 0.2
"""Share of the attention from which a head is named by a pattern; below it, it is "broad" or "mixed"."""
BROAD = 0.7
"""Relative entropy from which a head without a clear pattern is "broad"."""
MIXED = "mixed"


@dataclass(frozen=True)
class Pattern:
    """A pattern that a head may show.

    Attributes:
        name: Name in `aw.statistics.head_patterns`.
        title: Title in menus.
        words: Verb phrase that follows a head's name: "head 0.2 reads the token before".
        definition: Definition in a line.
        targets: Returns the keys that a query reads by the pattern; None for patterns of whole rows.
        refusal: Returns why a text or map does not have it, or "".
        outside: Whether it relates different elements of the text. False for special tokens, punctuation, the
            first token and sinks, which take attention that is not needed elsewhere, for the query itself,
            and for breadth.
        paper: Source.
    """

    name: str
    title: str
    words: str
    definition: str
    targets: Callable[[Roles, int], list[int]] | None
    refusal: Callable[[Roles], str]
    outside: bool = True
    paper: str = ""


def _before(roles: Roles, query: int) -> list[int]:
    return [query - 1] if query > 0 and not roles.special[query - 1] else []


def _after(roles: Roles, query: int) -> list[int]:
    return [query + 1] if query + 1 < roles.keys and not roles.special[query + 1] else []


def _separators(roles: Roles, _: int) -> list[int]:
    return [int(key) for key in np.flatnonzero(roles.special) if key > 0]


def _punctuation(roles: Roles, _: int) -> list[int]:
    return [int(key) for key in np.flatnonzero(roles.punctuation)]


def _has_punctuation(roles: Roles) -> str:
    return "" if roles.punctuation.any() else "no element is a punctuation mark"


def _has_content(roles: Roles) -> str:
    return "" if (~roles.special).sum() > 1 else "fewer than two elements are not special"


def _has_separators(roles: Roles) -> str:
    return "" if roles.special[1:].any() else "no element after the first is special"


_CLARK = "Clark et al. 2019, What Does BERT Look At?"
PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "previous",
        "previous token",
        "reads the token before",
        "Share of a query that goes to the element before it, if that is not special.",
        _before,
        has_neighbours,
        paper=_CLARK,
    ),
    Pattern(
        "next",
        "next token",
        "reads the token after",
        "Share of a query that goes to the element after it, if that is not special.",
        _after,
        has_next,
        paper=_CLARK,
    ),
    Pattern(
        "first",
        "first token",
        "reads the first token",
        "Share of a query that goes to the first element, special or not.",
        lambda *_: [0],
        lambda _: "",
        outside=False,
        paper="Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks",
    ),
    Pattern(
        "self",
        "same token",
        "reads the token itself",
        "Share of a query that goes to itself.",
        lambda _, query: [query],
        places_compare,
        outside=False,
    ),
    Pattern(
        "same word",
        "same word",
        "reads the other pieces of the word",
        "Share of a query that goes to the other pieces of its word.",
        pieces_of,
        has_pieces,
        paper="Correia et al. 2019, Adaptively Sparse Transformers",
    ),
    Pattern(
        "duplicate",
        "duplicate token",
        "reads the same token, earlier",
        "Share of a repeated element's query that goes to its earlier occurrences.",
        earlier_of,
        has_repeats,
        paper="Wang et al. 2023, Interpretability in the Wild",
    ),
    Pattern(
        "punctuation",
        "punctuation",
        "reads punctuation",
        "Share of a query that goes to punctuation marks.",
        _punctuation,
        _has_punctuation,
        outside=False,
        paper=_CLARK,
    ),
    Pattern(
        "sink",
        "sink",
        "rests on one token of the text",
        "How much attention goes to the single most-attended word.",
        None,
        lambda roles: places_compare(roles) or _has_content(roles),
        outside=False,
        paper="Gu et al. 2025, When Attention Sink Emerges in Language Models",
    ),
    Pattern(
        "no token",
        "no token (sink)",
        "rests on no token",
        "Share of a query that goes to no element: to the model's own sink.",
        None,
        has_sink,
        outside=False,
        paper="Agarwal et al. 2025, gpt-oss-120b & gpt-oss-20b Model Card",
    ),
    Pattern(
        "broad",
        "broad",
        "reads broadly",
        "Entropy of a query's row, divided by its largest possible value: 1 is the same share for every key.",
        None,
        lambda roles: "" if roles.keys > 1 else "there is only one key",
        outside=False,
        paper=_CLARK,
    ),
    Pattern(
        "separator",
        "separator",
        "rests on separators",
        "Share of a query that goes to special elements after the first ([SEP], end).",
        _separators,
        _has_separators,
        outside=False,
        paper=_CLARK,
    ),
)
"""All patterns that recorded attention shows, in the order of menus."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadPatterns(Table):
    """Strength of every pattern that applies to a text in every head.

    Attributes:
        values: [pattern, layer, head] in float64, from 0 to 1; NaN for a head that a layer does not have.
        patterns: The patterns that apply, in the order of `values`.
        left_out: The others by name, with the reason.
        special: Names of the patterns that concern special tokens in this text.
        layers: Original layer numbers.
        heads: Original head numbers; None if the map has no head axis (`values` then has one head).
    """

    values: Float
    patterns: tuple[Pattern, ...]
    left_out: dict[str, str]
    special: frozenset[str]
    layers: tuple[int, ...]
    heads: tuple[int, ...] | None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the patterns."""
        return tuple(pattern.name for pattern in self.patterns)

    def __getitem__(self, name: str) -> Float:
        """Return the values of a pattern [layer, head].

        Raises:
            ValueError: If the table lacks the pattern.
        """
        require_choice("pattern", name, self.names)
        return self.values[self.names.index(name)]

    def top(self, name: str | int | None = None, k: int | None = 10) -> list[RankedHead]:
        """Return the heads that show a pattern most, highest first; ties in the order of layer and head.

        Args:
            name: The pattern; by default the first. May be left out: `.top(3)`.
            k: Largest number of heads; None: all.

        Raises:
            ValueError: If the table lacks the pattern, or `k` is below 1.
        """
        chosen, k = ranking(name, k)
        values = self[chosen or self.names[0]]
        ranked = [self._ranked(at, values) for at in np.ndindex(values.shape) if not np.isnan(values[at])]
        return at_most(sorted(ranked, key=lambda head: -head.value), k)

    def _columns(self) -> Iterator[Columns]:
        """Yield pattern, layer, head, value."""
        axes = {"pattern": self.names, "layer": self.layers, "head": self.heads or (None,)}
        yield cells(axes, {"value": self.values})

    def __repr__(self) -> str:
        sizes = zip(("pattern", "layer", "head"), self.values.shape, strict=True)
        best = [
            f"{name} {layer if head is None else f'{layer}.{head}'} {value:.2f}"
            for name in self.names
            for layer, head, value in self.top(name, 1)
        ]
        return f"<HeadPatterns [{', '.join(f'{name} {size}' for name, size in sizes)}]: {'; '.join(best)}>"

    @property
    def own(self) -> list[list[str]]:
        """The name of the strongest pattern of every head [layer][head].

        The highest share of attention among patterns that are not about special tokens, if it is at least
        0.2; else the highest of the others ("separator", "no token", and "first" if that is a special token)
        by the same rule; else "broad" from a relative entropy of 0.7 on, else "mixed". "" for pruned heads.
        """
        of_text = [name not in {*self.special, "broad"} for name in self.names]
        of_special = [name in self.special for name in self.names]
        names = np.array([*self.names, "broad", MIXED, ""])
        broad, mixed, none = len(self.names), len(self.names) + 1, len(self.names) + 2
        breadth = self["broad"] if "broad" in self.names else np.zeros(self.values.shape[1:])
        result = np.where(np.nan_to_num(breadth) >= BROAD, broad, mixed)
        for included in (of_special, of_text):
            shares = np.where(np.array(included)[:, None, None], np.nan_to_num(self.values), 0.0)
            if any(included):
                result = np.where(shares.max(axis=0) >= CLEAR, shares.argmax(axis=0), result)
        result = np.where(np.isnan(self.values).all(axis=0), none, result)
        return [[str(names[index]) for index in layer] for layer in result]

    def strongest(self) -> tuple[Pattern, RankedHead] | None:
        """Return the head with the strongest pattern outside special tokens, and the pattern.

        These patterns relate different elements of the text: previous, next, same word, duplicate. Ties: the
        first pattern, then the first layer and head. None if none of them applies, or no head has a value.
        """
        result = [(pattern, self.top(pattern.name, 1)) for pattern in self.patterns if pattern.outside]
        ranked = [(pattern, heads[0]) for pattern, heads in result if heads]
        return max(ranked, key=lambda entry: entry[1].value, default=None)

    def _ranked(self, at: tuple[int, ...], values: Float) -> RankedHead:
        head = None if self.heads is None else self.heads[at[1]]
        return RankedHead(self.layers[at[0]], head, float(values[at]))


@takes_lists
def head_patterns(
    shown: Any, *, unit: str | None = None, stack: str | None = None, layers: Any = None
) -> HeadPatterns:
    """Return the strength of named patterns in every head: previous, next, first, self, same word, ...

    Rows of special elements ([CLS], [SEP], start, end) are left out of every mean. The attention of other
    queries to special elements stays in the denominator, so that a head that rests on [SEP] has a low value
    everywhere else; only "first" and "separator" count it as a pattern. A special element before or after a
    query is neither "previous" nor "next". Queries without a target (the first has no previous element, a
    word may have a single piece) and queries that see a single key are left out of a pattern's mean.

    Args:
        shown: A trace (its attention), or a MixingMap without negative values; or a list of them.
        unit: Read the map by "word", "sentence", ...; by default in the unit of the map.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Numbers of some layers; all by default.

    Returns:
        HeadPatterns [pattern, layer, head] from 0 to 1: `["previous"]`, `.top("previous", 5)`, `.own`. Those
        that do not apply to this model and text (no later keys, no word of several pieces, no token that
        repeats, no separators) are in `.left_out`, with the reason. For a list, a list in the same order.

    Raises:
        ValueError: If values are negative, or the unit or stack is unknown.
        TypeError: If `shown` is neither a trace nor a map.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> patterns = aw.statistics.head_patterns(trace)
        >>> patterns.names[:2], patterns.top("previous", 1)[0][:2]
        (('previous', 'next'), (0, 2))
    """
    source, unit = source_of(shown, stack, layers, unit, "head_patterns")
    return patterns_of(source, unit, PATTERNS)


def patterns_of(
    source: MixingMap, unit: str, candidates: Iterable[Pattern], queries: int | None = None
) -> HeadPatterns:
    """Return the strength of some patterns in a map; patterns with `targets` read few cells and cost little.

    Args:
        source: The map.
        unit: The unit to read it in.
        candidates: The patterns; with `queries`, patterns with `targets` only.
        queries: Number of evenly spaced queries that are read; None: all. Means are then over these.
    """
    roles = Roles(source.to(unit), "text")
    reasons = {item.name: reason for item in candidates if (reason := item.refusal(roles))}
    patterns = tuple(item for item in candidates if item.name not in reasons)
    counted = np.flatnonzero(roles.counted)
    read = (
        None if queries is None else counted[np.unique(np.linspace(0, len(counted) - 1, queries, dtype=int))]
    )
    rows = np.arange(roles.queries) if read is None else read
    pairs = {
        pattern.name: _pairs(roles, pattern.targets, rows)
        for pattern in patterns
        if pattern.targets is not None
    }
    heads = 1 if source.heads is None else len(source.heads)
    values = np.full((len(patterns), len(source.layers), heads), np.nan)
    for layer, first, numbers in values_by_layer(source, unit, roles, "head patterns", read):
        # With a sink, rows are shares already, and need not sum to 1.
        totals = np.ones(numbers.shape[:2]) if roles.sink else numbers.sum(axis=2, dtype=np.float64)
        whole = None
        if len(pairs) < len(patterns):
            seen = seen_in(source, unit, roles, source.layers[layer])
            whole = rows_of(numbers, roles, "a layer", seen)
        for index, pattern in enumerate(patterns):
            if pattern.name in pairs:
                result = towards(numbers, totals, pairs[pattern.name])
            else:
                result = _DENSE[pattern.name](whole)
            values[index, layer, first : first + len(numbers)] = result
    special = frozenset(["separator", "no token", *(["first"] if roles.special[0] else [])])
    return HeadPatterns(values, patterns, reasons, special, tuple(source.layers), source.heads)


Pairs = tuple["NDArray[np.intp]", "NDArray[np.intp]"]


def _pairs(roles: Roles, targets: Callable[[Roles, int], list[int]], rows: NDArray[np.intp]) -> Pairs:
    """Return the cells of a pattern, as indices into `rows` [cell] and keys [cell]."""
    counted = [(index, int(query)) for index, query in enumerate(rows) if roles.counted[query]]
    result = [(at, key) for at, q in counted for key in targets(roles, q) if key <= q or not roles.causal]
    cells_of_pattern = np.array(result, dtype=np.intp).reshape(-1, 2)
    return cells_of_pattern[:, 0], cells_of_pattern[:, 1]


def towards(values: Any, totals: Float, pairs: Pairs) -> Float:
    """Return the mean share that goes to the cells of `pairs`, over the rows that have any [head]."""
    queries, keys = pairs
    of_pairs = totals[:, queries]
    shares = np.maximum(values[:, queries, keys], 0.0) / np.where(of_pairs > 0, of_pairs, 1.0)
    return divided(shares.sum(axis=1), (totals[:, np.unique(queries)] > 0).sum(axis=1))


def _sink(rows: Rows) -> Float:
    roles = rows.roles
    inside = ~roles.special & (np.arange(roles.keys) > 0)
    seen = rows.seen & ~np.eye(roles.queries, dtype=bool)
    # A late element of a causal text is seen by few: at least two, and a quarter of the queries, must see it.
    seen_by = (seen & roles.counted[:, None]).sum(axis=0)
    enough = inside & (seen_by > 1) & (4 * seen_by >= roles.counted.sum())
    if not enough.any():
        return np.full(len(rows.shares), np.nan)
    means = divided(*rows.received(roles.counted))[:, enough]
    empty = np.isnan(means).all(axis=1)
    return np.where(empty, np.nan, np.nanmax(means, axis=1, initial=0.0))


def _broad(rows: Rows) -> Float:
    return divided(*rows.sums(relative_entropy_of_rows(rows)))


def _no_token(rows: Rows) -> Float:
    return divided(*rows.sums(rows.to_sink))


_DENSE: dict[str, Callable[[Any], Float]] = {"sink": _sink, "no token": _no_token, "broad": _broad}
