"""Attention to kinds of elements: special ones, separators, other sentences, the other text of a pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.statistics.positional import places_compare
from attnwidgets.statistics.statistic import statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.statistics.row_shares import Bool, Float, Roles, Rows


def _has_special(roles: Roles) -> str:
    return "" if roles.special.any() else "no element is special"


def _has_separators(roles: Roles) -> str:
    return "" if _separators(roles).any() else "no element after the first is special"


def _separators(roles: Roles) -> Bool:
    return roles.special & (np.arange(roles.keys) > 0)


def _has_sentences(roles: Roles) -> str:
    if roles.sentences is None:
        return f"these elements ({roles.unit}) are not parts of sentences"
    return places_compare(roles) or _several(roles.sentences, "sentence")


def _has_texts(roles: Roles) -> str:
    return places_compare(roles) or _several(roles.texts, "text")


def _several(owner: NDArray[np.int64], what: str) -> str:
    return "" if len(set(owner[owner >= 0].tolist())) > 1 else f"there is only one {what}"


@statistic(refusal=_has_special)
def special_tokens(rows: Rows) -> Float:
    """Share of a query that goes to special elements ([CLS], [SEP], start, end): mean of their summed shares.

    Range: 0 to 1, a share of the query's attention
    High: rests on special elements: often a way of doing nothing
    Low: attends to the text
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.2
    """
    return rows.mean(rows.mass(rows.roles.special))


@statistic(refusal=_has_separators)
def separators(rows: Rows) -> Float:
    """Share of a query that goes to special elements after the first ([SEP], end): mean of summed shares.

    Range: 0 to 1, a share of the query's attention
    High: rests on [SEP] or the end token: often a way of doing nothing
    Low: attends to the text or its first element
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.2
    """
    return rows.mean(rows.mass(_separators(rows.roles)))


@statistic(refusal=_has_sentences)
def other_sentences(rows: Rows) -> Float:
    """Share of a query in the text that goes to the text of other sentences: mean of their summed shares.

    Special elements belong to no sentence: they do not count as queries here, and attention to them counts
    for no sentence. In causal maps, queries that see no other sentence (those of the first) are left out. A
    sink at the first word of a text without a start token counts as its sentence: compare `first_token`.

    Range: 0 to 1, a share of the query's attention
    High: carries information between sentences
    Low: attends within its sentence, or to special elements
    """
    owner = rows.roles.sentences
    return np.full(len(rows.shares), np.nan) if owner is None else _across(rows, owner)


@statistic(refusal=_has_texts)
def other_text(rows: Rows) -> Float:
    """Share of a query in one text of a pair that goes to the other text: mean of the summed shares.

    Special elements are left out as in `other_sentences`.

    Range: 0 to 1, a share of the query's attention
    High: compares the two texts of a pair
    Low: attends within its text, or to special elements
    """
    return _across(rows, rows.roles.texts)


def _across(rows: Rows, owner: NDArray[np.int64]) -> Float:
    """Return the mean share that goes to elements of another owner [head]; owner -1 is left out."""
    other = (owner[:, None] != owner) & (owner[:, None] >= 0) & (owner >= 0)
    seen = np.tril(other) if rows.roles.causal else other
    return rows.mean(rows.mass(other), seen.any(axis=1))
