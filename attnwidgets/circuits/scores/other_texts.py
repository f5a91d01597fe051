"""OtherTexts: the tokens of other texts that a query would read, and those that would read a key."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets._selecting import at_most
from attnwidgets._tables import Table
from attnwidgets.circuits.scores.bank import NAME, RankedToken, bank_of
from attnwidgets.figures.html_tables import cell as table_cell
from attnwidgets.figures.html_tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets._tables import Columns
    from attnwidgets.circuits.scores.bank import Bank
    from attnwidgets.circuits.scores.cell import Cell

    Float = NDArray[np.float64]

MOST_BELOW = 0.05
"""Share of tokens with a larger score up to which a sentence says that the query looks for such a key."""
_FEW, _ROUNDING = 3, 1e-9  # tokens of a small bank that may have a larger score; of a share
_NOTABLE = 0.001  # share of tokens with the same score from which it is said
_NAMED = 5  # words in a sentence
_ROUNDING = 1e-9
_CHUNK = 2**14  # tokens whose queries or keys are in memory at once
_POSITIONS = (
    "Positions are in this model's states, so that a token also has something of where it stands in its text."
)
_LISTS = ("keys", "queries", "keys_of_mean")


@dataclass(frozen=True, repr=False)
class OtherTexts(Table):
    """Tokens of other texts in the place of a cell's key and of its query. Made by `why.in_other_texts()`.

    Attributes:
        layer: Number of the layer.
        head: Number of the head.
        words: Query and key.
        score: The score of the cell, as the softmax reads it.
        attention: Its weight.
        count: Number of tokens of other texts.
        texts: Number of texts.
        keys: The tokens that the query would look at in the place of the key, the largest score first. A word
            is listed once.
        queries: The tokens that would look at the key in the place of the query, the largest attention first:
            scores of different queries have different scales.
        keys_of_mean: The tokens that the mean query would look at, the largest score first: the
            tokens that the head reads in general, at this place. Their attention is that of the mean query.
        above_keys: Share of tokens with a smaller score than the key has, 0 to 1.
        below_keys: Share of tokens with a larger score; the others have the same.
        above_queries: Share of tokens that would give the key less attention than the query does.
        above_mean: Share of tokens with a smaller score than the key has for the mean query.
        special: Whether the key is a special token, as none of those of other texts is.
        warning: A caveat for the reader, or "".
    """

    layer: int
    head: int
    words: tuple[str, str]
    score: float
    attention: float
    count: int
    texts: int
    keys: tuple[RankedToken, ...]
    queries: tuple[RankedToken, ...]
    keys_of_mean: tuple[RankedToken, ...]
    above_keys: float
    below_keys: float
    above_queries: float
    above_mean: float
    special: bool
    warning: str

    @property
    def is_sought(self) -> bool:
        """Whether few tokens have a larger score than the key, and it is an ordinary token.

        Few are at most 5 %, or of fewer than 60 tokens three, as long as these are at most 10 %.
        """
        most = max(MOST_BELOW, min(2 * MOST_BELOW, _FEW / self.count))
        return not self.special and self.below_keys <= most + _ROUNDING

    def first(self, k: int) -> OtherTexts:
        """Return the same with at most k tokens in each list.

        Raises:
            ValueError: If `k` is below 1.
        """
        keys, queries, keys_of_mean = (tuple(at_most(getattr(self, name), k)) for name in _LISTS)
        return replace(self, keys=keys, queries=queries, keys_of_mean=keys_of_mean)

    def describe(self) -> str:
        """Return sentences on the tokens that the query would read, the key's rank, and its readers."""
        return described_of(self, self.words)

    def ranked(self) -> str:
        """Return in a sentence how many tokens the key's score is above."""
        same = 1 - self.above_keys - self.below_keys
        ties = f" (and the same as that of {percent(same)})" if same >= _NOTABLE else ""
        above = "all" if self.above_keys == 1 else f"{percent(self.above_keys)} of"
        return (
            f"Its score is higher than that of {above} {self.count:,} tokens of other "
            f"texts put in its place{ties}; for their mean query, than that of {percent(self.above_mean)}."
        )

    def to_description(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        return asdict(self)

    @classmethod
    def from_description(cls, described: Mapping[str, Any]) -> OtherTexts:
        """Return the result of a description."""
        lists = {name: tuple(RankedToken(*token) for token in described[name]) for name in _LISTS}
        return cls(**(dict(described) | lists | {"words": tuple(described["words"])}))

    def _columns(self) -> Iterator[Columns]:
        """Yield list, rank from 1, token, its word and context, number of its text, score and attention."""
        rows = [(name, rank, token) for name in _LISTS for rank, token in enumerate(getattr(self, name), 1)]
        columns: dict[str, Any] = {"list": [name for name, *_ in rows], "rank": [rank for _, rank, _ in rows]}
        fields = ("before", "token", "after", "word", "text", "position", "score", "attention")
        yield columns | {name: [getattr(token, name) for *_, token in rows] for name in fields}

    def __repr__(self) -> str:
        warning = f" {self.warning}" if self.warning else ""
        return f"<OtherTexts of head {self.layer}.{self.head}: {self.describe()}{warning}>"

    def _repr_html_(self) -> str:
        query, key = self.words
        titles = (f"{query} would look at", f"{key} would be looked at by", "the mean query would look at")
        rows = (
            (
                table_cell(title if number == 0 else "", left=True),
                table_cell(f"… {token.before}[{token.token}]{token.after}", left=True, limit=90),
                table_cell(f"{token.score:+.2f}"),
                table_cell(f"{token.attention:.2f}"),
            )
            for title, name in zip(titles, _LISTS, strict=True)
            for number, token in enumerate(getattr(self, name))
        )
        return table(("", "token", "score", "attention"), rows, [self.ranked(), self.warning], left=(0, 1))


def said_of(other: OtherTexts, words: tuple[str, str]) -> list[tuple[str, bool]]:
    """Return a sentence on the tokens of other texts that a query would read, in pieces; true: stressed.

    Args:
        other: The tokens of other texts.
        words: Query and key, as the sentence writes them.
    """
    (query, key), named = words, (_named(other.keys), True)
    if other.special:
        return [(f"Of words of other texts, {query} would look at ", False), named, (".", False)]
    if other.is_sought:
        return [(f"{query} looks for words such as ", False), named, (f"; {key} is one of them.", False)]
    return [(f"{query} would rather look at ", False), named, (f"; {key} is nothing special to it.", False)]


def described_of(other: OtherTexts, words: tuple[str, str]) -> str:
    """Return everything in sentences, with query and key as they write them."""
    said = "".join(piece for piece, _ in said_of(other, words))
    return f"{said} {other.ranked()} {words[1]} would be looked at by {_named(other.queries)}."


def _named(tokens: Sequence[RankedToken]) -> str:
    """Return the first words of a list, as far as they have half of the attention of its first."""
    least = tokens[0].attention / 2
    return ", ".join(token.word for token in tokens[:_NAMED] if token.attention >= least)


def percent(share: float) -> str:
    """Return a share in percent with a decimal; only all of them are 100 %."""
    return f"{np.floor(1000 * share + _ROUNDING) / 10:.1f}".removesuffix(".0") + " %"


def in_other_texts(cell: Cell, texts: Any = None, k: int = 8) -> OtherTexts:
    """Return how the tokens of other texts rank in the place of a cell's key and query."""
    words = cell.words
    rivals = ~cell.row.masked
    rivals[cell.key] = False
    if not rivals.any() and cell.row.sink is None:
        raise ValueError(
            f"{NAME}: {words[0]} reads no other token, so that every token in its place would look at "
            f"{words[1]}; another query has a choice."
        )
    bank = bank_of(cell.trace, cell.stack, texts)
    with no_grad():
        keys, queries = _vectors(cell, bank)
    this, mean = (_ByQuery(cell, query, rivals) for query in (cell.query_vector, queries.mean(0)))
    scores, scores_of_mean = this.of(keys), mean.of(keys)
    own, own_of_mean = (float(query.of(cell.keys[[cell.key]])[0]) for query in (this, mean))
    others = _ByQuery(cell, queries, rivals)
    scores_of_queries = others.of(cell.keys[[cell.key]])[:, 0]
    odds = scores_of_queries - others.rest
    close = cell.allowed * max(1.0, float(np.abs(scores).max()))
    return OtherTexts(
        cell.layer,
        cell.head,
        words,
        float(cell.row.scores[cell.key]),
        float(cell.row.recorded[cell.key]),
        len(bank),
        len(bank.texts),
        _ranked(bank, scores, scores, this.attention(scores), k),
        _ranked(bank, odds, scores_of_queries, others.attention(scores_of_queries), k),
        _ranked(bank, scores_of_mean, scores_of_mean, mean.attention(scores_of_mean), k),
        float((scores < own - close).mean()),
        float((scores > own + close).mean()),
        float((odds < own - this.rest - close).mean()),
        float((scores_of_mean < own_of_mean - close).mean()),
        bool(cell.trace.axes(cell.stack)[1].units["token"].special[cell.key]),
        _POSITIONS if cell.reader.rotation is None and cell.row.bias is None else "",
    )


def _vectors(cell: Cell, bank: Bank) -> tuple[Tensor, Tensor]:
    """Return the bank's keys and queries [token, dim] in the place of the cell's, float64."""
    states, reader = bank.layer(cell.layer), cell.reader
    vectors: tuple[list[Tensor], list[Tensor]] = ([], [])
    for start in range(0, len(states), _CHUNK):
        read = reader.read(torch.from_numpy(states[start : start + _CHUNK]).double())
        for made, side, at in zip(vectors, (reader.key, reader.query), (cell.key, cell.query), strict=True):
            made.append(reader.turned(side(read), [at] * len(read)))
    keys, queries = map(torch.cat, vectors)
    return keys, queries


class _ByQuery:
    """The scores of one query [dim], or of several [query, dim], with the keys of a cell's row as rivals.

    Soft cap, position bias, mask and sink are those of the row.
    """

    def __init__(self, cell: Cell, query: Tensor, rivals: NDArray[np.bool_]) -> None:
        self._cell, self._query = cell, query
        row = cell.row
        scores = self._capped(cell.keys[torch.from_numpy(rivals)])
        if row.bias is not None:
            scores = scores + row.bias[rivals]
        if row.sink is not None:
            scores = np.concatenate([scores, np.full((*scores.shape[:-1], 1), row.sink)], -1)
        self.rest: Float = np.logaddexp.reduce(scores, -1)

    def _capped(self, keys: Tensor) -> Float:
        row = self._cell.row
        scaled: Float = row.scaling * (self._query @ keys.T).numpy()
        return scaled if row.softcap is None else row.softcap * np.tanh(scaled / row.softcap)

    def of(self, keys: Tensor) -> Float:
        """Return the scores [..., key] of keys [key, dim] in the place of the cell's."""
        bias = self._cell.row.bias
        return self._capped(keys) + (0.0 if bias is None else bias[self._cell.key])

    def attention(self, scores: Float) -> Float:
        """Return the weights of scores in this place, which the row's other keys share with them."""
        weights: Float = np.exp(scores - np.logaddexp(scores, self.rest))
        return weights


def _ranked(bank: Bank, by: Float, scores: Float, attention: Float, k: int) -> tuple[RankedToken, ...]:
    """Return the k tokens with the largest numbers; a word is there once."""
    tokens: dict[str, RankedToken] = {}
    for index in np.argsort(-by, kind="stable").tolist():
        token = bank.token(index, float(scores[index]), float(attention[index]))
        name = token.word.strip().lower()
        if name not in tokens:
            tokens[name] = token
            if len(tokens) == k:
                break
    return tuple(tokens.values())
