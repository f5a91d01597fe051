"""Entropy of attention rows: how broadly a head attends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.statistics.statistic import statistic

if TYPE_CHECKING:
    from attnwidgets.statistics.row_shares import Float, Roles, Rows


def _several_keys(roles: Roles) -> str:
    return "" if roles.keys > 1 else "there is only one key"


def _starts_special(roles: Roles) -> str:
    if roles.causal:
        return "the first query of a causal map sees only itself"
    return "" if roles.special_queries[:1].any() else "the text does not begin with a special element"


def entropy_of_rows(shares: Float) -> Float:
    """Return the entropy of every row, in nats: -sum_j a_ij ln a_ij, where 0 ln 0 is 0 [head, query]."""
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return 0.0 - (shares * logs).sum(axis=2)


@statistic()
def entropy(rows: Rows) -> Float:
    """How broadly a query attends: mean over queries i of -sum_j a_ij ln a_ij, in nats.

    Range: 0 to ln(n) nats (divide by ln 2 for bits)
    High: broad: spreads over many elements, like a bag of words
    Low: focused on one element
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.3
    """
    return rows.mean(entropy_of_rows(rows.shares))


@statistic(refusal=_several_keys)
def relative_entropy(rows: Rows) -> Float:
    """How broadly a query attends to the keys it can see: mean over queries of entropy / ln(visible keys).

    Range: 0, all on one key, to 1, the same share on every key that the query can see
    High: broad for the number of keys; compares early and late queries, short and long texts
    Low: focused on one element
    """
    most = np.log(np.maximum(rows.roles.visible, 2))
    return rows.mean(entropy_of_rows(rows.shares) / most)


@statistic(title="entropy of [CLS]", refusal=_starts_special)
def cls_entropy(rows: Rows) -> Float:
    """How broadly the special first element ([CLS]) attends: the entropy of its row, in nats.

    Range: 0 to ln(n) nats
    High: the special first element gathers from the whole text
    Low: it reads one element
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.3
    """
    return np.where(rows.filled[:, 0], entropy_of_rows(rows.shares[:, :1])[:, 0], np.nan)
