"""aw.head_statistics: numbers with exact definitions that say what every head of a trace or map does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.registry.several_traces import takes_lists
from attnwidgets.statistics.row_shares import Queries, Roles, source_of
from attnwidgets.statistics.statistic import compute, named
from attnwidgets.statistics.table import HeadStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable


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
        >>> stats = aw.head_statistics(trace)
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
