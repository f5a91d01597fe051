"""How broadly a head looks: the entropy of its rows, in nats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import entr

from attnwidgets.statistics.statistic import statistic

if TYPE_CHECKING:
    from attnwidgets.statistics.row_shares import Float, Roles, Rows

_CLARK = "Clark et al. 2019, What Does BERT Look At?, section 3.3"


def _several_keys(roles: Roles) -> str:
    return "" if roles.keys > 1 else "there is one key only"


def _starts_special(roles: Roles) -> str:
    if roles.causal:
        return "the first query of a causal map sees only itself"
    return "" if roles.special_queries[:1].any() else "the text does not begin with a special element"


def entropy_of_rows(shares: Float) -> Float:
    """Return the entropy of every row, in nats: -sum_j a_ij ln a_ij, where 0 ln 0 is 0 [head, query]."""
    return entr(shares).sum(axis=2)


@statistic(
    title="entropy",
    scale="0 to ln(n) nats (divide by ln 2 for bits)",
    high="broad: spreads over many elements, as a bag of words",
    paper=_CLARK,
)
def entropy(rows: Rows) -> Float:
    """How broadly a query looks: mean over queries i of -sum_j a_ij ln a_ij, in nats."""
    return rows.mean(entropy_of_rows(rows.shares))


@statistic(
    title="relative entropy",
    scale="0 to 1: all on one key, or the same on every key that a query can see",
    high="broad for the number of keys there are; compares early and late queries, short and long texts",
    refusal=_several_keys,
)
def relative_entropy(rows: Rows) -> Float:
    """How broadly a query looks for what it can see: mean over queries of its entropy / ln(keys it sees)."""
    most = np.log(np.maximum(rows.roles.visible, 2))
    return rows.mean(entropy_of_rows(rows.shares) / most)


@statistic(
    title="entropy of [CLS]",
    scale="0 to ln(n) nats",
    high="the special first element gathers from the whole text",
    paper=_CLARK,
    refusal=_starts_special,
)
def cls_entropy(rows: Rows) -> Float:
    """How broadly the special first element ([CLS]) looks: the entropy of its row, in nats."""
    found = entropy_of_rows(rows.shares[:, :1])[:, 0]
    return np.where(rows.filled[:, 0], found, np.nan)
