"""What kind of elements a head looks at: special ones, separators, another sentence, the other text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.statistics.positional import places_compare
from attnwidgets.statistics.statistic import statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.statistics.row_shares import Bool, Float, Roles, Rows

_CLARK = "Clark et al. 2019, What Does BERT Look At?, section 3.2"
_SHARE = "0 to 1, a share of what a query draws"


def _has_special(roles: Roles) -> str:
    return "" if roles.special.any() else "no element is special"


def _has_separators(roles: Roles) -> str:
    return "" if _separators(roles).any() else "no element after the first is special"


def _separators(roles: Roles) -> Bool:
    return roles.special & (np.arange(roles.keys) > 0)


def _has_sentences(roles: Roles) -> str:
    if roles.sentences is None:
        return f"these elements ({roles.unit}) do not lie in sentences"
    return places_compare(roles) or _several(roles.sentences, "sentence")


def _has_texts(roles: Roles) -> str:
    return places_compare(roles) or _several(roles.texts, "text")


def _several(owner: NDArray[np.int64], what: str) -> str:
    return "" if len(set(owner[owner >= 0].tolist())) > 1 else f"there is one {what} only"


@statistic(
    title="special tokens",
    scale=_SHARE,
    high="rests on special elements: often a way of doing nothing",
    paper=_CLARK,
    refusal=_has_special,
)
def special_tokens(rows: Rows) -> Float:
    """What a query draws from special elements ([CLS], [SEP], start, end): mean of their summed shares."""
    return rows.mean(rows.mass(rows.roles.special))


@statistic(
    title="separators",
    scale=_SHARE,
    high="rests on [SEP] or the end token: often a way of doing nothing",
    paper=_CLARK,
    refusal=_has_separators,
)
def separators(rows: Rows) -> Float:
    """What a query draws from special elements other than the first ([SEP], end): mean of summed shares."""
    return rows.mean(rows.mass(_separators(rows.roles)))


@statistic(
    title="other sentences",
    scale=_SHARE,
    high="carries between sentences",
    refusal=_has_sentences,
)
def other_sentences(rows: Rows) -> Float:
    """What a query of the text draws from the text of other sentences: mean of their summed shares.

    Special elements are in no sentence: they are no queries here, and what goes to them counts for nobody.
    Where a map is causal, queries that see no other sentence (those of the first) are left out. A sink at
    the first word of a text without a start token counts as its sentence: compare `first_token`.
    """
    owner = rows.roles.sentences
    return np.full(len(rows.shares), np.nan) if owner is None else _across(rows, owner)


@statistic(
    title="other text",
    scale=_SHARE,
    high="compares the two texts of a pair",
    refusal=_has_texts,
)
def other_text(rows: Rows) -> Float:
    """What a query of one text of a pair draws from the other text: mean of the summed shares.

    Special elements are left out as in `other_sentences`.
    """
    return _across(rows, rows.roles.texts)


def _across(rows: Rows, owner: NDArray[np.int64]) -> Float:
    """Return the mean share that goes to elements of another owner [head]; owner -1 takes no part."""
    other = (owner[:, None] != owner) & (owner[:, None] >= 0) & (owner >= 0)
    seen = np.tril(other) if rows.roles.causal else other
    return rows.mean(rows.mass(other), seen.any(axis=1))
