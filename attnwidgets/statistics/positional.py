"""Attention by position: distance, the query itself, its neighbours, the first element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.statistics.statistic import statistic

if TYPE_CHECKING:
    from attnwidgets.statistics.row_shares import Float, Roles, Rows


def places_compare(roles: Roles) -> str:
    """Return why positions of queries and keys cannot be compared, or ""."""
    return "" if roles.square else "queries and keys are elements of different sequences"


def has_neighbours(roles: Roles) -> str:
    """Return why no element has a neighbour, or ""."""
    return places_compare(roles) or ("" if roles.keys > 1 else "there is only one element")


def has_next(roles: Roles) -> str:
    """Return why no query reads a later element, or ""."""
    return has_neighbours(roles) or ("no query sees a later key (causal)" if roles.causal else "")


@statistic(refusal=places_compare)
def mean_distance(rows: Rows) -> Float:
    """How many elements away a query attends on average: mean over queries i of sum_j a_ij |i - j|.

    Vig and Belinkov divide the sum over all rows by the sum of all weights, which is the same if rows sum to
    one.

    Range: 0 to n - 1 elements (tokens, or words where the map is read by word)
    High: attends far away
    Low: attends to the query itself and its neighbours
    Source: Vig & Belinkov 2019, Analyzing the Structure of Attention in a Transformer Language Model; with
        |i - j| for encoders, as in Dosovitskiy et al. 2021, figure 7
    """
    return rows.mean((rows.shares * rows.roles.distance).sum(axis=2))


@statistic(refusal=places_compare)
def diagonal(rows: Rows) -> Float:
    """Share of a query that goes to itself: mean over queries i of a_ii.

    Range: 0 to 1, a share of the query's attention
    High: attends to the query itself
    Low: attends to other elements
    """
    return rows.mean(np.einsum("hii->hi", rows.shares))


@statistic(refusal=has_neighbours)
def previous_token(rows: Rows) -> Float:
    """Share of a query that goes to the element before it: mean over queries i > 0 of a_i,i-1.

    Range: 0 to 1, a share of the query's attention
    High: attends to the element before the query (a previous-token head)
    Low: attends elsewhere
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.1
    """
    values = np.zeros(rows.filled.shape)
    values[:, 1:] = np.einsum("hii->hi", rows.shares[:, 1:, :-1])
    return rows.mean(values, np.arange(rows.roles.queries) > 0)


@statistic(refusal=has_next)
def next_token(rows: Rows) -> Float:
    """Share of a query that goes to the element after it: mean over queries i < n - 1 of a_i,i+1.

    Range: 0 to 1, a share of the query's attention
    High: attends to the element after the query (a next-token head)
    Low: attends elsewhere
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.1
    """
    values = np.zeros(rows.filled.shape)
    values[:, :-1] = np.einsum("hii->hi", rows.shares[:, :-1, 1:])
    return rows.mean(values, np.arange(rows.roles.queries) < rows.roles.queries - 1)


@statistic()
def first_token(rows: Rows) -> Float:
    """Share of a query that goes to the first element ([CLS], the start token, or a word): mean of a_i0.

    Range: 0 to 1, a share of the query's attention
    High: rests on the first element: an attention sink if far above chance
    Low: attends elsewhere
    Source: Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks, section 3.1
    """
    return rows.mean(rows.shares[:, :, 0])
