"""aw.head_statistics: what every head of a trace or a map does, in numbers with exact definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.statistics.row_shares import Queries, Roles, source_of
from attnwidgets.statistics.statistic import measured, named
from attnwidgets.statistics.table import HeadStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable


def head_statistics(
    shown: Any,
    names: str | Iterable[str] | None = None,
    *,
    unit: str | None = None,
    stack: str | None = None,
    layers: Any = None,
    queries: Queries = "all",
) -> HeadStatistics:
    """Return what every head does: where it looks, how broadly, at what kind of elements, and where it rests.

    A row a_i of the map is what query i draws from every key, as shares: rows are divided by their sum
    (those of attention sum to one already). A statistic is a mean over queries. What does not count:

    - queries that see one key only, whose share is 1 whatever the head does: the first of a causal map;
    - rows of zeros (a query masked altogether); a head that has no other row has NaN;
    - queries without the element asked for: the first has no previous one.

    A map that is read by word has rows and distances in words: what goes to a word is the sum over its
    pieces, and a word's row the mean over its pieces' rows (Clark et al. 2019, section 3). One layer is held
    at a time, and none is kept beyond the trace's own byte budget.

    Args:
        shown: A trace (its attention), or any MixingMap of which no value is negative.
        names: Some statistics by name (`aw.statistics.statistics()` lists them with their definitions); every
            one that is defined here by default.
        unit: Read it by "word", "sentence", ...; by default as it is.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Some layers by number; all by default.
        queries: "all", or "text" to leave out the rows of special elements ([CLS], [SEP]).

    Returns:
        HeadStatistics [statistic, layer, head]: `stats["entropy"]`, `stats.top("previous_token", 5)`,
        `stats.to_dataframe()`, `stats.plot()`. Statistics that are not defined here (no special tokens, one
        sentence only) are in `.left_out`, with the reason.

    Raises:
        ValueError: For an unknown statistic (the nearest is named), one that is named but not defined here,
            a signed map, or a unit, stack or `queries` that is not to be had.
        TypeError: Where `shown` is neither a trace nor a map.
    """
    wanted = named(names)
    source, by = source_of(shown, stack, layers, unit, "head_statistics")
    roles = Roles(source.to(by), queries)
    reasons = {one.name: reason for one in wanted if (reason := one.refusal(roles))}
    if reasons and names is not None:
        name, reason = next(iter(reasons.items()))
        raise ValueError(f"names: {name!r} is not defined here: {reason}.")
    kept = [one for one in wanted if one.name not in reasons]
    return HeadStatistics(
        measured(kept, source, by, roles),
        names=[one.name for one in kept],
        layers=source.layers,
        heads=source.heads,
        left_out=reasons,
        unit=by,
        stack=source.stack,
        trace_id=source.trace_id,
        warning=source.warning,
        provenance={
            "options": {"of": source.title, "unit": by, "queries": queries},
            "model": source.provenance.get("model", ""),
            "text": source.provenance.get("text", ""),
            "title": f"head statistics of {source.title}",
        },
    )
