"""Where a head looks: how far, at itself, at its neighbours, at the first element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.statistics.statistic import statistic

if TYPE_CHECKING:
    from attnwidgets.statistics.row_shares import Float, Roles, Rows

_CLARK = "Clark et al. 2019, What Does BERT Look At?, section 3.1"
_SHARE = "0 to 1, a share of what a query draws"


def places_compare(roles: Roles) -> str:
    """Say why a query's place and a key's cannot be compared, or ""."""
    return "" if roles.square else "queries and keys are elements of different sequences"


def _has_neighbours(roles: Roles) -> str:
    return places_compare(roles) or ("" if roles.keys > 1 else "there is one element only")


def _has_next(roles: Roles) -> str:
    return _has_neighbours(roles) or ("no query sees a later key (causal)" if roles.causal else "")


@statistic(
    title="mean distance",
    scale="0 to n - 1 elements (tokens, or words where the map is read by word)",
    high="looks far away",
    paper="Vig & Belinkov 2019, Analyzing the Structure of Attention in a Transformer Language Model; "
    "with |i - j| for encoders, as in Dosovitskiy et al. 2021, figure 7",
    refusal=places_compare,
)
def mean_distance(rows: Rows) -> Float:
    """How many elements away a query looks on average: mean over queries i of sum_j a_ij |i - j|.

    Vig and Belinkov divide the sum over all rows by the sum of all weights; where rows sum to one this is
    the same.
    """
    return rows.mean((rows.shares * rows.roles.distance).sum(axis=2))


@statistic(title="diagonal", scale=_SHARE, high="looks at the query itself", refusal=places_compare)
def diagonal(rows: Rows) -> Float:
    """What a query draws from itself: mean over queries i of a_ii."""
    return rows.mean(np.einsum("hii->hi", rows.shares))


@statistic(
    title="previous token",
    scale=_SHARE,
    high="looks at the element before the query (a previous-token head)",
    paper=_CLARK,
    refusal=_has_neighbours,
)
def previous_token(rows: Rows) -> Float:
    """What a query draws from the element before it: mean over queries i > 0 of a_i,i-1."""
    values = np.zeros(rows.filled.shape)
    values[:, 1:] = np.einsum("hii->hi", rows.shares[:, 1:, :-1])
    return rows.mean(values, np.arange(rows.roles.queries) > 0)


@statistic(
    title="next token",
    scale=_SHARE,
    high="looks at the element after the query (a next-token head)",
    paper=_CLARK,
    refusal=_has_next,
)
def next_token(rows: Rows) -> Float:
    """What a query draws from the element after it: mean over queries i < n - 1 of a_i,i+1."""
    values = np.zeros(rows.filled.shape)
    values[:, :-1] = np.einsum("hii->hi", rows.shares[:, :-1, 1:])
    return rows.mean(values, np.arange(rows.roles.queries) < rows.roles.queries - 1)


@statistic(
    title="first token",
    scale=_SHARE,
    high="rests on the first element: an attention sink where it is far above chance",
    paper="Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks, section 3.1",
)
def first_token(rows: Rows) -> Float:
    """What a query draws from the first element ([CLS], the start token, or a word): mean of a_i0."""
    return rows.mean(rows.shares[:, :, 0])
