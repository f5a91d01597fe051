"""Numbers that say how every head of a trace or map reads; and heads like a head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.registry.several_traces import takes_lists
from attnwidgets.explanations.results.description import plain
from attnwidgets.statistics.row_shares import Float, Queries, Roles, by_layer, divided, source_of
from attnwidgets.statistics.statistic import compute, named
from attnwidgets.statistics.table import HeadStatistics, RankedHead

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.statistics.row_shares import Rows


@takes_lists
def head_statistics(
    shown: Any,
    names: str | Iterable[str] | None = None,
    *,
    unit: str | None = None,
    stack: str | None = None,
    layers: Any = None,
    queries: Queries = "all",
) -> HeadStatistics:
    """Return what every head does: where it attends, how broadly, to which kinds of elements.

    A row a_i of the map holds the shares that query i gives to every key: rows are divided by their sum
    (attention rows sum to one already). A statistic is a mean over queries. Not counted are

    - queries that see only one key, whose share is always 1: the first of a causal map;
    - rows of zeros (a fully masked query); a head without any other row has NaN;
    - queries without the element in question: the first has no previous one.

    If the map is read by word, rows and distances are in words: the share of a word is the sum over its
    pieces, and a word's row is the mean over its pieces' rows (Clark et al. 2019, section 3). Only one layer
    is in memory at a time, beyond those the trace keeps in its own byte budget.

    Args:
        shown: A trace (its attention), or a MixingMap without negative values; or a list of them.
        names: Names of some statistics (`aw.statistics.statistics()` lists them with their definitions); by
            default all that are defined for this map.
        unit: Read the map by "word", "sentence", ...; by default in its own unit.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Numbers of some layers; all by default.
        queries: "all", or "text" to leave out the rows of special elements ([CLS], [SEP]).

    Returns:
        HeadStatistics [statistic, layer, head]: `stats["entropy"]`, `stats.top("previous_token", 5)`,
        `stats.to_dataframe()`, `stats.figure()`. Statistics that are not defined here (no special tokens,
        only one sentence) are in `.left_out`, with the reason. `stats.statistics` has range and meaning.
        For a list, a list in the same order; `aw.statistics.averaged` makes one table of it.

    Raises:
        ValueError: If a statistic is unknown or named but not defined here, values are negative, or the unit,
            stack or `queries` is unknown.
        TypeError: If `shown` is neither a trace nor a map.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> stats = aw.statistics.head_statistics(trace)
        >>> stats["entropy"].shape, stats.left_out["other_sentences"]
        ((6, 12), 'there is only one sentence')
    """
    requested = named(names)
    source, unit = source_of(shown, stack, layers, unit, "head_statistics")
    roles = Roles(source.to(unit), queries)
    reasons = {stat.name: reason for stat in requested if (reason := stat.refusal(roles))}
    if reasons and names is not None:
        name, reason = next(iter(reasons.items()))
        raise ValueError(f"names: {name!r} is not defined here: {reason}.")
    defined = [stat for stat in requested if stat.name not in reasons]
    return HeadStatistics(
        compute(defined, source, unit, roles),
        names=[stat.name for stat in defined],
        layers=source.layers,
        heads=source.heads,
        left_out=reasons,
        unit=unit,
        stack=source.stack,
        trace_id=source.trace_id,
        warning=source.warning,
        provenance={
            "options": {"of": source.title, "unit": unit, "queries": queries},
            "model": source.provenance.get("model", ""),
            "text": source.provenance.get("text", ""),
            "title": f"head statistics of {source.title}",
        },
    )


def averaged(tables: Sequence[HeadStatistics]) -> HeadStatistics:
    """Return the mean of head statistics over texts, all with equal weight.

    Statistics that are not defined for one of the texts are left out. A value is NaN only if it is NaN for
    every text.

    Args:
        tables: Head statistics of the same model, in the same unit; one for each text.

    Returns:
        HeadStatistics [statistic, layer, head]; range and meaning are those of each statistic.

    Raises:
        TypeError: If they are not tables, but traces, say, of which `aw.statistics.head_statistics` makes
            tables.
        ValueError: If layers, heads or units differ, or no statistic is in all tables.

    Example:
        >>> model, tokenizer = aw.demo_model("encoder")
        >>> texts = ("The cat sat on the mat.", "It rained all day.")
        >>> traces = [aw.trace(model, tokenizer, text) for text in texts]
        >>> tables = [aw.statistics.head_statistics(trace, "entropy") for trace in traces]
        >>> aw.statistics.averaged(tables).steps
        ('mean over 2 texts',)
    """
    if not tables:
        raise ValueError("tables is empty: pass at least one.")
    first = tables[0]
    for number, table in enumerate(tables):
        if not isinstance(table, HeadStatistics):
            raise TypeError(
                f"tables[{number}] is a {type(table).__name__}, not a table of heads: average "
                "aw.statistics.head_statistics(traces), or aw.statistics.head_importance(traces), which "
                "averages by itself."
            )
        for what in ("layers", "heads", "unit"):
            here, expected = getattr(table, what), getattr(first, what)
            if here != expected:
                raise ValueError(f"tables[{number}] has {what} {here!r}, but the first has {expected!r}.")
    names = [name for name in first.names if all(name in table for table in tables)]
    if not names:
        raise ValueError("no statistic is in all of the tables.")
    stack = np.array([[table[name] for name in names] for table in tables])
    known = ~np.isnan(stack)
    missing = {name: reason for table in tables for name, reason in table.left_out.items()}
    history = plain(first.provenance)
    history["steps"] = [*history["steps"], f"mean over {len(tables)} texts"]
    return HeadStatistics(
        divided(np.where(known, stack, 0.0).sum(axis=0), known.sum(axis=0)),
        names=names,
        layers=first.layers,
        heads=first.heads,
        left_out={name: f"{reason} (in one of the texts)" for name, reason in missing.items()},
        method=first.method,
        unit=first.unit,
        stack=first.stack,
        provenance=history | {"text": ""},
    )


def similar_heads(
    shown: Any,
    layer: int,
    head: int,
    other: Any = None,
    *,
    k: int | None = 10,
    unit: str | None = None,
    stack: str | None = None,
) -> list[RankedHead]:
    """Return the heads whose attention is nearest to that of one head, nearest first.

    The distance of two heads is the Jensen-Shannon divergence of their rows, 1/2 KL(p, m) + 1/2 KL(q, m) with
    m = (p + q) / 2, as a mean over queries that are not special (and see more than one key). Rows are whole:
    attention to special elements counts.

    Args:
        shown: A trace (its attention), or a MixingMap without negative values.
        layer: Original layer number of the head.
        head: Original number of the head.
        other: Another trace or map to search, such as that of a fine-tuned model; by default `shown` itself,
            without the head. It needs the same numbers of queries and keys.
        k: Largest number of heads; None: all.
        unit: Read the maps by "word", "sentence", ...; by default in their own unit.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.

    Returns:
        (layer, head, value), value being the divergence in nats: 0 for equal rows, ln 2 (0.693) for rows
        without a common key. Heads without a common row that counts are left out.

    Raises:
        IndexError: If the layer or head is out of range.
        ValueError: If `other` has other numbers of queries or keys, or values are negative.

    Source: Clark et al. 2019, What Does BERT Look At?, section 6 (who add it up over tokens).

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> [(found.layer, found.head) for found in aw.statistics.similar_heads(trace, 0, 2, k=1)]
        [(2, 11)]
    """
    source, unit = source_of(shown, stack, None, unit, "similar_heads")
    roles = Roles(source.to(unit), "text")
    own = _rows_of(source, layer, head, unit, roles)
    among = source if other is None else source_of(other, stack, None, unit, "similar_heads")[0]
    sizes = Roles(among.to(unit), "text")
    if (sizes.queries, sizes.keys) != (roles.queries, roles.keys):
        raise ValueError(
            f"other has {sizes.queries} queries and {sizes.keys} keys, this map {roles.queries} and "
            f"{roles.keys}: rows can be compared only if they are over the same elements."
        )
    result: list[RankedHead] = []
    for index, first, rows in by_layer(among, unit, roles, "similar heads"):
        number = among.layers[index]
        for position, value in enumerate(_divergence(own, rows), first):
            name = None if among.heads is None else among.heads[position]
            if not np.isnan(value) and (other is not None or (number, name) != (layer, head)):
                result.append(RankedHead(number, name, float(value)))
    return sorted(result, key=lambda one: one.value)[:k]


def _rows_of(source: MixingMap, layer: int, head: int, unit: str, roles: Roles) -> Rows:
    one = source.select(layer=layer, head=head)
    [(_, _, rows)] = by_layer(one, unit, roles, "similar heads")
    return rows


def _divergence(own: Rows, rows: Rows) -> Float:
    """Return the mean Jensen-Shannon divergence from one head's rows [head]."""
    from scipy.special import xlogy

    p, q = own.shares, rows.shares
    middle = (p + q) / 2
    total = (xlogy(p, p) + xlogy(q, q)).sum(axis=2) / 2 - xlogy(middle, middle).sum(axis=2)
    return rows.mean(np.maximum(np.where(own.filled, total, 0.0), 0.0), own.filled[0])
