"""aw.statistics.head_statistics: statistics of every head's attention, means over texts, similar heads.

The statistics themselves are functions of rows in the files next to this one (`rows.py`, `sinks.py`), which
register themselves (`statistic.py`). Maps are read layer by layer in chunks of heads (`row_shares.py`).
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.registry.several_traces import takes_lists
from attnwidgets.explanations.results.description import plain
from attnwidgets.statistics.row_shares import Queries, Roles, divided, means, rows_of, source_of
from attnwidgets.statistics.statistic import compute, named
from attnwidgets.statistics.table import HeadStatistics, RankedHead

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from attnwidgets.statistics.row_shares import Rows, Sums


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
    """Return statistics of every head: where it attends, how broadly, to which kinds of elements.

    A row a_i of the map holds the shares that query i gives to every key: rows are divided by their sum
    (attention rows already sum to 1). A statistic is a mean over queries. Not counted are

    - queries that see a single key, whose share is always 1: the first query of a causal map;
    - rows of zeros (a fully masked query); a head without any other row has NaN;
    - queries without the element in question: the first has no previous element.

    If the map is read by word, rows and distances are in words: the share of a word is the sum over its
    pieces, and a word's row is the mean over its pieces' rows (Clark et al. 2019, section 3). A single
    layer is in memory at a time, besides those that the trace caches within its byte budget.

    Args:
        shown: A trace (its attention), or a MixingMap without negative values; or a list of them.
        names: Names of some statistics (`aw.statistics.statistics()` lists them with their definitions); by
            default all that are defined for this map.
        unit: Read the map by "word", "sentence", ...; by default in the unit of the map.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Numbers of some layers; all by default.
        queries: "all", or "text" to leave out the rows of special elements ([CLS], [SEP]).

    Returns:
        HeadStatistics [statistic, layer, head]: `stats["entropy"]`, `stats.top("previous_token", 5)`,
        `stats.to_dataframe()`, `stats.figure()`. Statistics that are not defined here (no special tokens,
        only one sentence) are in `.left_out`, with the reason. `stats.statistics` has range and meaning.
        For a list, a list in the same order, which `aw.statistics.averaged` averages.

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

    Statistics that are not defined for every text are left out. A value is NaN only if it is NaN for
    every text.

    Args:
        tables: Head statistics of the same model, in the same unit; a table for each text.

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
        for axis in ("layers", "heads", "unit"):
            labels, expected = getattr(table, axis), getattr(first, axis)
            if labels != expected:
                raise ValueError(f"tables[{number}] has {axis} {labels!r}, but the first has {expected!r}.")
    names = [name for name in first.names if all(name in table for table in tables)]
    if not names:
        raise ValueError("no statistic is in all of the tables.")
    stack = np.array([[table[name] for name in names] for table in tables])
    defined = ~np.isnan(stack)
    missing = {name: reason for table in tables for name, reason in table.left_out.items()}
    history = plain(first.provenance)
    history["steps"] = [*history["steps"], f"mean over {len(tables)} texts"]
    return HeadStatistics(
        divided(np.where(defined, stack, 0.0).sum(axis=0), defined.sum(axis=0)),
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
    """Return the heads whose attention is nearest to that of a head, nearest first.

    The distance of two heads is the Jensen-Shannon divergence of their rows, 1/2 KL(p, m) + 1/2 KL(q, m) with
    m = (p + q) / 2, as a mean over queries that are not special (and see more than one key). Rows are whole:
    attention to special elements counts, and so does the share of a sink.

    Args:
        shown: A trace (its attention), or a MixingMap without negative values.
        layer: Original layer number of the head.
        head: Original number of the head.
        other: Another trace or map to search, such as that of a fine-tuned model; by default `shown` itself,
            without the head. It needs the same numbers of queries and keys.
        k: Largest number of heads; None: all.
        unit: Read the maps by "word", "sentence", ...; by default in the unit of each map.
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
        >>> [(other.layer, other.head) for other in aw.statistics.similar_heads(trace, 0, 2, k=1)]
        [(2, 11)]
    """
    source, unit = source_of(shown, stack, None, unit, "similar_heads")
    roles = Roles(source.to(unit), "text")
    searched = source if other is None else source_of(other, stack, None, unit, "similar_heads")[0]
    sizes = Roles(searched.to(unit), "text")
    searched_roles = copy(roles)
    searched_roles.sink = sizes.sink
    if (sizes.queries, sizes.keys) != (roles.queries, roles.keys):
        raise ValueError(
            f"other has {sizes.queries} queries and {sizes.keys} keys, this map {roles.queries} and "
            f"{roles.keys}: rows can be compared only if they are over the same elements."
        )
    reference = source.select(layer=layer, head=head).to(unit)

    def divergence(rows: Rows) -> Sums:
        values = reference.rows(layer, None, rows.queries)[..., : rows.shares.shape[2]]
        return _divergence(rows_of(values, roles, "the head", roles.seen, rows.queries), rows)

    [divergences] = means(searched, unit, searched_roles, "similar heads", [divergence])
    result: list[RankedHead] = []
    for number, of_layer in zip(searched.layers, divergences, strict=True):
        for position, value in enumerate(of_layer):
            name = None if searched.heads is None else searched.heads[position]
            if not np.isnan(value) and (other is not None or (number, name) != (layer, head)):
                result.append(RankedHead(number, name, float(value)))
    return sorted(result, key=lambda ranked: ranked.value)[:k]


def _divergence(reference: Rows, rows: Rows) -> Sums:
    """Return the sum of the Jensen-Shannon divergences from the rows of a reference head."""
    from scipy.special import xlogy

    # A sink counts as one more key.
    p, q = (np.concatenate([each.shares, each.to_sink[:, :, None]], axis=2) for each in (reference, rows))
    middle = (p + q) / 2
    total = (xlogy(p, p) + xlogy(q, q)).sum(axis=2) / 2 - xlogy(middle, middle).sum(axis=2)
    return replace(rows, filled=rows.filled & reference.filled).sums(np.maximum(total, 0.0))
