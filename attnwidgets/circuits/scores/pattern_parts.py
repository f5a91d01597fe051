"""aw.circuits.pattern_parts: which pairs of components make the pattern of a head, over texts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets._selecting import pick
from attnwidgets._tables import Table
from attnwidgets.circuits.scores.cell import blocks_below
from attnwidgets.circuits.scores.result import group_labels
from attnwidgets.circuits.scores.shares import Paired, Share
from attnwidgets.explanations.mixing.attention import attention_row
from attnwidgets.explanations.results.trace_protocol import require_trace, resolve_stack
from attnwidgets.statistics.patterns import head_patterns
from attnwidgets.tracing.algebra.query_key import score_reader
from attnwidgets.tracing.algebra.residual_parts import ComponentParts, Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.algebra.blocks import Block
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

NAME = "pattern_parts"
PAPER = "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits"
_HELD_BYTES = 2**31
_SHOWN = 3


@dataclass(frozen=True, eq=False)
class HeadParts(Paired):
    """The pattern of one head as pairs of components.

    Attributes:
        layer: Number of the layer.
        head: Number of the head.
        pattern: The name that most of the texts give its pattern, as in `HeadPatterns.own`.
        total: How far its rows are from even ones, in nats; the sum of `pairs` and `given`.
        parts: The names of the parts.
        pairs: Shares [query part, key part], float64.
        given: Terms outside of the pairs: "position bias", "soft cap".
    """

    layer: int
    head: int
    pattern: str
    total: float
    parts: tuple[str, ...]
    pairs: Float
    given: Mapping[str, float]

    @property
    def largest(self) -> Share:
        """The pair with the largest share above zero."""
        asks, offers = np.unravel_index(int(self.pairs.argmax()), self.pairs.shape)
        return Share(self.parts[asks], self.parts[offers], float(self.pairs[asks, offers]))

    def __repr__(self) -> str:
        asks, offers, value = self.largest
        return (
            f"<HeadParts of head {self.layer}.{self.head}, {self.pattern}: {asks} x {offers} {value:+.2f} of "
            f"{self.total:+.2f}>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class PatternParts(Table):
    """The patterns of heads as pairs of components, a row for each head.

    Attributes:
        heads: The heads, layer by layer.
        n_queries: Number of queries over which shares are means.
    """

    heads: tuple[HeadParts, ...]
    n_queries: int

    def __getitem__(self, which: tuple[int, int]) -> HeadParts:
        """Return a head by (layer, head).

        Raises:
            KeyError: If it is not among them.
        """
        by_number = {(parts.layer, parts.head): parts for parts in self.heads}
        if which not in by_number:
            raise KeyError(f"head {which!r} is not among these; they are {', '.join(map(str, by_number))}.")
        return by_number[which]

    def _columns(self) -> Iterator[Columns]:
        """Yield layer, head, pattern, total, the largest pair, its share, and the sizes of all pairs."""
        largest = [parts.largest for parts in self.heads]
        yield {
            "layer": [parts.layer for parts in self.heads],
            "head": [parts.head for parts in self.heads],
            "pattern": [parts.pattern for parts in self.heads],
            "total": np.array([parts.total for parts in self.heads]),
            "query_part": [share.query for share in largest],
            "key_part": [share.key for share in largest],
            "share": np.array([share.value for share in largest]),
            "sizes": np.array([np.abs(parts.pairs).sum() for parts in self.heads]),
        }

    def __repr__(self) -> str:
        ranked = sorted(self.heads, key=lambda parts: -parts.total)[:_SHOWN]
        shown = "; ".join(
            f"head {parts.layer}.{parts.head} mostly {parts.largest.query} x {parts.largest.key}: "
            f"{parts.pattern}"
            for parts in ranked
        )
        return f"<PatternParts [head {len(self.heads)}] of {self.n_queries} queries: {shown}>"


def pattern_parts(
    shown: Any,
    heads: Sequence[tuple[int, int]] | None = None,
    *,
    groups: str | int | Mapping[str, str] | None = None,
    stack: str | None = None,
) -> PatternParts:
    """Return the pairs of components that make the patterns of heads: one in the query, one in the key.

    The scores of a row, weighted by how much more of its attention a key gets than in an even row, are split
    as `aw.why` splits one, and averaged over queries:

        total = mean over i of  sum over j of (A_ij - 1/n_i) s_ij  =  sum over a, b of pairs[a, b] + given

    which is the Jeffreys divergence of the row from an even one over the n_i keys that it may read: 0 for a
    head that looks everywhere alike. It is the mean of `aw.why(..., foil="row")` by attention. Queries that
    are special tokens or read a single key are left out, as in `aw.statistics.head_patterns`.

    Args:
        shown: A trace made by `aw.trace`, or a list of traces of one model.
        heads: Some heads, (layer, head); None: all.
        groups: Groups of components, as in `Why.to`: "kind", a number of layers, or the group of a part by
            its name; None: single components. Single pairs cancel in large models.
        stack: Stack of a model that has several.

    Returns:
        PatternParts: a row for each head with its pattern's name and its largest pair; `[layer, head]` has
        all pairs, `.top(6)` of it the largest. In nats.

    Raises:
        ValueError: If no text has a query to measure, a group is unknown, or a text is too long to hold the
            parts of all its tokens.
        IndexError: If a number is out of range.
        UnsupportedModelError: If queries and keys were not recorded, no description fits the blocks, or they
            read another sequence.

    Source: Elhage et al. 2021 (QK circuits, composition). The weighting over a row is ours.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> traces = [aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "hagchag")]
        >>> aw.circuits.pattern_parts(traces)[1, 0].largest[:2]
        ('token', 'head 0.0')
    """
    traces = list(shown) if isinstance(shown, (list, tuple)) else [shown]
    if not traces:
        raise ValueError("shown is empty: pass a trace, or several.")
    for trace in traces:
        require_trace(trace, f"circuits.{NAME}")
    stack = resolve_stack(traces[0], stack)
    chosen = _heads(traces[0], stack, heads)
    sums: dict[tuple[int, int], _Sum] = {}
    for trace in progress(traces, "parts of patterns"):
        names = _names(trace, stack)
        for layer in dict.fromkeys(layer for layer, _ in chosen):
            of_layer = [head for other, head in chosen if other == layer]
            for head, added in _of_layer(trace, stack, layer, of_layer, groups).items():
                added.patterns.update([names[layer, head]])
                sums[layer, head] = sums[layer, head] + added if (layer, head) in sums else added
    n_queries = next(iter(sums.values())).n_queries
    if not n_queries:
        raise ValueError("no query of these texts reads two tokens, so that nothing is compared.")
    return PatternParts(tuple(total.mean(*at) for at, total in sorted(sums.items())), n_queries)


def _heads(trace: Trace, stack: str, heads: Sequence[tuple[int, int]] | None) -> list[tuple[int, int]]:
    """Return (layer, head) of some heads, or of all."""
    if heads is None:
        return [(layer, head) for layer in trace.layers(stack) for head in range(trace.n_heads(stack, layer))]
    result = []
    for layer, head in heads:
        (number,) = pick(layer, trace.layers(stack), "layer")
        result += [(number, at) for at in pick(head, range(trace.n_heads(stack, number)), "head")]
    return result


def _names(trace: Trace, stack: str) -> dict[tuple[int, int], str]:
    """Return the name of each head's pattern in a text."""
    patterns = head_patterns(trace, stack=stack)
    return {
        (layer, head): name
        for layer, row in zip(patterns.layers, patterns.own, strict=True)
        for head, name in zip(patterns.heads or (), row, strict=True)
    }


@dataclass(frozen=True, eq=False)
class _Sum:
    """The sums over queries of a head's pairs."""

    written: tuple[Written, ...]
    pairs: Float
    given: dict[str, float]
    n_queries: int
    patterns: Counter[str]

    def __add__(self, other: _Sum) -> _Sum:
        names = dict.fromkeys([*self.given, *other.given])
        return _Sum(
            self.written,
            self.pairs + other.pairs,
            {name: self.given.get(name, 0.0) + other.given.get(name, 0.0) for name in names},
            self.n_queries + other.n_queries,
            self.patterns + other.patterns,
        )

    def mean(self, layer: int, head: int) -> HeadParts:
        """Return the means over queries."""
        pairs = self.pairs / self.n_queries
        given = {name: value / self.n_queries for name, value in self.given.items()}
        pattern = self.patterns.most_common(1)[0][0]
        total = float(pairs.sum()) + sum(given.values())
        return HeadParts(layer, head, pattern, total, tuple(part.name for part in self.written), pairs, given)


def _of_layer(
    trace: Trace,
    stack: str,
    layer: int,
    heads: Sequence[int],
    groups: str | int | Mapping[str, str] | None,
) -> dict[int, _Sum]:
    """Return the sums of a text for some heads of a layer."""
    blocks = blocks_below(trace, layer, stack, NAME)
    states = ComponentParts(trace, stack, blocks)
    tokens = list(range(len(blocks[-1].hidden)))
    written = (*states.names, Written("constant", "constant"))
    if len(written) * blocks[-1].hidden.numel() * 8 > _HELD_BYTES:
        raise ValueError(
            f"{NAME} holds {len(written)} parts of each of {len(tokens)} tokens, more than 2 GB; take "
            "shorter texts."
        )
    names = [part.name for part in written]
    labels = names if groups is None else group_labels(written, names, groups)
    grouped = tuple(dict.fromkeys(labels))
    member = torch.tensor([[label == name for label in labels] for name in grouped], dtype=torch.float64)
    kinds = {label: part.kind for label, part in zip(labels, written, strict=True)}
    with no_grad():
        parts = states.at(tokens)
        return {
            head: _of_head(
                trace, stack, layer, head, blocks[-1], parts, member,
                tuple(Written(name, kinds[name]) for name in grouped),
            )
            for head in heads
        }  # fmt: skip


def _of_head(
    trace: Trace,
    stack: str,
    layer: int,
    head: int,
    block: Block,
    parts: Tensor,
    member: Tensor,
    written: tuple[Written, ...],
) -> _Sum:
    special = trace.axes(stack)[0].units["token"].special
    tokens = list(range(parts.shape[1]))
    reader = score_reader(block, head, NAME)
    asks, offers = (
        torch.einsum("gp,ptd->gtd", member, reader.parts(side, parts, tokens)) for side in ("query", "key")
    )
    weights = torch.zeros(len(tokens), len(tokens), dtype=torch.float64)
    given: dict[str, float] = {}
    scaling, counted = 1.0, 0
    for query in tokens:
        row = attention_row(trace, layer, head, query, stack=stack)
        read = ~row.masked
        if special[query] or read.sum() < len(("one", "another")):
            continue
        counted += 1
        scaling = row.scaling
        beyond = row.recorded / row.recorded.sum() - read / read.sum()
        weights[query] = torch.from_numpy(beyond)
        if row.bias is not None:
            given["position bias"] = given.get("position bias", 0.0) + float(beyond @ row.bias)
        if row.softcap is not None:
            given["soft cap"] = given.get("soft cap", 0.0) + float(beyond @ (row.capped - row.scaled))
    seen = torch.einsum("gkd,qk->gqd", offers, weights)
    pairs = scaling * asks.flatten(1) @ seen.flatten(1).T
    return _Sum(written, pairs.numpy(), given, counted, Counter())
