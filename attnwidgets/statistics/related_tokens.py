"""Attention to related tokens: the other pieces of the query's word, and the same token earlier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.statistics.positional import places_compare
from attnwidgets.statistics.statistic import statistic

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.statistics.row_shares import Bool, Float, Roles, Rows


def pieces_of(roles: Roles, query: int) -> list[int]:
    """Return the keys that are other pieces of the word of a query."""
    words = roles.words
    if words is None or roles.special[query]:
        return []
    return [int(key) for key in np.flatnonzero(words == words[query]) if key != query]


def earlier_of(roles: Roles, query: int) -> list[int]:
    """Return the keys before a query that are the same token, special ones left out."""
    return roles.occurrences[roles.labels[query]][: roles.rank[query]]


def mask_of(roles: Roles, targets: Callable[[Roles, int], list[int]]) -> Bool:
    """Return targets of all queries that a query can see [query, key]."""
    mask = np.zeros((roles.queries, roles.keys), dtype=bool)
    for query in range(roles.queries):
        mask[query, targets(roles, query)] = True
    return np.tril(mask) if roles.causal else mask


def has_pieces(roles: Roles) -> str:
    """Return why the text lacks words of several pieces, or ""."""
    reason = places_compare(roles)
    if reason or roles.words is None:
        return reason or f"these elements ({roles.unit}) are not pieces of words"
    counted = np.bincount(roles.words[~roles.special], minlength=1)
    return "" if counted.max(initial=0) > 1 else "no word has several pieces"


def has_repeats(roles: Roles) -> str:
    """Return why no element occurs twice, or ""."""
    repeats = any(len(places) > 1 for places in roles.occurrences.values())
    return places_compare(roles) or ("" if repeats else "no element occurs twice")


@statistic(refusal=has_pieces)
def same_word(rows: Rows) -> Float:
    """Share of a query that goes to the other pieces of its own word: mean of their summed shares.

    Only queries whose word has another piece that they can see count.

    Range: 0 to 1, a share of the query's attention
    High: joins the pieces of a word (a subword-merging head)
    Low: attends to other words, or to the query itself
    Source: Correia et al. 2019, Adaptively Sparse Transformers, section 5.2 (a head that merges subwords)
    """
    return _towards(rows, pieces_of)


@statistic(refusal=has_repeats)
def duplicate_token(rows: Rows) -> Float:
    """Share of a repeated element's query that goes to its earlier occurrences: mean of summed shares.

    Elements are the same if their labels are. Only queries that occurred before count; special elements do
    not.

    Range: 0 to 1, a share of the query's attention
    High: looks back at the same token (a duplicate-token head)
    Low: attends elsewhere
    Source: Wang et al. 2023, Interpretability in the Wild, section 3 (duplicate-token heads)
    """
    return _towards(rows, earlier_of)


def _towards(rows: Rows, targets: Callable[[Roles, int], list[int]]) -> Float:
    mask = mask_of(rows.roles, targets)
    has_target: Bool = np.asarray(mask.any(axis=1))
    return rows.mean(rows.mass(mask), has_target)
