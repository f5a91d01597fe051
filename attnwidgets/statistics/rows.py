"""Statistics of rows of attention: entropy, distance and neighbours, kinds of elements, related tokens.

Each statistic is a function of `Rows` under `@statistic`, whose docstring is also the text of menus, tables
and documentation. A `refusal` returns why a statistic is not defined for a map, or "".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.statistics.statistic import Statistic, register, statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.statistics.row_shares import Bool, Float, Roles, Rows, Sums, Targets

RECEIVER = register(
    Statistic(
        "receiver",
        "receiver",
        "Kurtosis over sentences of the attention they get from later ones, relative to its highest value.",
        "up to 1, where one sentence gets all of it; 0 for normal scores",
        "a receiver head: later sentences look back to few sentences",
        "Bogdan et al. 2025, Thought Anchors, section 4; divided by its ceiling for so many sentences",
        made_by="aw.circuits.receiver_heads(traces)",
    )
)


def _several_keys(roles: Roles) -> str:
    return "" if roles.keys > 1 else "there is only one key"


def _starts_special(roles: Roles) -> str:
    if roles.causal:
        return "the first query of a causal map sees only itself"
    return "" if roles.special_queries[:1].any() else "the text does not begin with a special element"


def relative_entropy_of_rows(rows: Rows) -> Float:
    """Return the entropy of every row, divided by that of equal shares of all it can see [head, query]."""
    most: Float = np.log(np.maximum(rows.seen.sum(axis=1) + rows.roles.sink, 2))
    return rows.entropy / most


@statistic()
def entropy(rows: Rows) -> Sums:
    """How broadly a query attends: mean over queries i of -sum_j a_ij ln a_ij, in nats.

    Range: 0 to ln(n) nats (divide by ln 2 for bits)
    High: broad: spreads over many elements, like a bag of words
    Low: focused on one element
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.3
    """
    return rows.sums(rows.entropy)


@statistic(refusal=_several_keys)
def relative_entropy(rows: Rows) -> Sums:
    """How broadly a query attends to the keys it can see: mean over queries of entropy / ln(visible keys).

    A key outside a layer's window, or one that the layer did not choose, cannot be seen.

    Range: 0, all on one key, to 1, the same share on every key that the query can see
    High: broad for the number of keys; compares early and late queries, short and long texts
    Low: focused on one element
    """
    return rows.sums(relative_entropy_of_rows(rows))


@statistic(title="entropy of [CLS]", refusal=_starts_special)
def cls_entropy(rows: Rows) -> Sums:
    """How broadly the special first element ([CLS]) attends: the entropy of its row, in nats.

    Range: 0 to ln(n) nats
    High: the special first element gathers from the whole text
    Low: it reads one element
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.3
    """
    row = rows.filled[:, 0] & (rows.queries.start == 0)
    return np.where(row, rows.entropy[:, 0], 0.0), row.astype(np.float64)


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
def mean_distance(rows: Rows) -> Sums:
    """How many elements away a query attends on average: mean over queries i of sum_j a_ij |i - j|.

    As in the paper, it is divided by the mean sum of the rows, which is 1 in a model without a sink, because
    the share of a sink has no distance.

    Range: 0 to n - 1 elements (tokens, or words where the map is read by word)
    High: attends far away
    Low: attends to the query itself and its neighbours
    Source: Vig & Belinkov 2019, Analyzing the Structure of Attention in a Transformer Language Model; with
        |i - j| for encoders, as in Dosovitskiy et al. 2021, figure 7
    """
    distance = np.abs(rows.positions[:, None] - np.arange(rows.roles.keys))
    return rows.sums(rows.mass(distance))[0], rows.sums(rows.shares.sum(axis=2))[0]


@statistic(refusal=places_compare)
def diagonal(rows: Rows) -> Sums:
    """Share of a query that goes to itself: mean over queries i of a_ii.

    Range: 0 to 1, a share of the query's attention
    High: attends to the query itself
    Low: attends to other elements
    """
    return rows.sums(rows.at(0))


@statistic(refusal=has_neighbours)
def previous_token(rows: Rows) -> Sums:
    """Share of a query that goes to the element before it: mean over queries i > 0 of a_i,i-1.

    Range: 0 to 1, a share of the query's attention
    High: attends to the element before the query (a previous-token head)
    Low: attends elsewhere
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.1
    """
    return rows.sums(rows.at(-1), rows.positions > 0)


@statistic(refusal=has_next)
def next_token(rows: Rows) -> Sums:
    """Share of a query that goes to the element after it: mean over queries i < n - 1 of a_i,i+1.

    Range: 0 to 1, a share of the query's attention
    High: attends to the element after the query (a next-token head)
    Low: attends elsewhere
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.1
    """
    return rows.sums(rows.at(1), rows.positions < rows.roles.queries - 1)


@statistic()
def first_token(rows: Rows) -> Sums:
    """Share of a query that goes to the first element ([CLS], the start token, or a word): mean of a_i0.

    Range: 0 to 1, a share of the query's attention
    High: rests on the first element: an attention sink if far above chance
    Low: attends elsewhere
    Source: Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks, section 3.1
    """
    return rows.sums(rows.shares[:, :, 0])


def has_sink(roles: Roles) -> str:
    """Return why no row gives a share to a sink of the model, or ""."""
    return "" if roles.sink else "rows go to keys alone: no layer has a sink of its own"


@statistic(title="no token (sink)", refusal=has_sink)
def no_token(rows: Rows) -> Sums:
    """Share of a query that goes to no element: to the sink, a score of the model's own: 1 - sum_j a_ij.

    Such a sink is not a token of the text, as the sinks of `first_token` and `inner_sink` are.

    Range: 0 to 1, a share of the query's attention
    High: the head reads little here: most of its attention adds nothing
    Low: attends to elements
    Source: Agarwal et al. 2025, gpt-oss-120b & gpt-oss-20b Model Card, section 2.2

    Example:
        >>> from transformers import GptOssConfig, GptOssForCausalLM
        >>> sizes = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 16, "head_dim": 8}
        >>> heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 4}
        >>> model = GptOssForCausalLM(GptOssConfig(**sizes, **heads, num_hidden_layers=2)).eval()
        >>> aw.statistics.no_token(aw.trace(model, input_ids=[1, 2, 3])).shape
        (2, 2)
    """
    return rows.sums(rows.to_sink)


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


def _several(group: NDArray[np.int64], name: str) -> str:
    return "" if len(set(group[group >= 0].tolist())) > 1 else f"there is only one {name}"


@statistic(refusal=_has_special)
def special_tokens(rows: Rows) -> Sums:
    """Share of a query that goes to special elements ([CLS], [SEP], start, end): mean of their summed shares.

    Range: 0 to 1, a share of the query's attention
    High: rests on special elements: often a way of doing nothing
    Low: attends to the text
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.2
    """
    return rows.sums(rows.mass(rows.roles.special))


@statistic(refusal=_has_separators)
def separators(rows: Rows) -> Sums:
    """Share of a query that goes to special elements after the first ([SEP], end): mean of summed shares.

    Range: 0 to 1, a share of the query's attention
    High: rests on [SEP] or the end token: often a way of doing nothing
    Low: attends to the text or its first element
    Source: Clark et al. 2019, What Does BERT Look At?, section 3.2
    """
    return rows.sums(rows.mass(_separators(rows.roles)))


@statistic(refusal=_has_sentences)
def other_sentences(rows: Rows) -> Sums:
    """Share of a query in the text that goes to the text of other sentences: mean of their summed shares.

    Special elements belong to no sentence: they do not count as queries, and attention to them counts for
    no sentence. In causal maps, queries that see no other sentence (those of the first) are left out. A
    sink at the first word of a text without a start token counts as its sentence: compare `first_token`.

    Range: 0 to 1, a share of the query's attention
    High: carries information between sentences
    Low: attends within its sentence, or to special elements
    """
    owner = rows.roles.sentences
    none = np.zeros(len(rows.shares))
    return (none, none) if owner is None else _across(rows, owner)


@statistic(refusal=_has_texts)
def other_text(rows: Rows) -> Sums:
    """Share of a query in one text of a pair that goes to the other text: mean of the summed shares.

    Special elements are left out as in `other_sentences`.

    Range: 0 to 1, a share of the query's attention
    High: compares the two texts of a pair
    Low: attends within its text, or to special elements
    """
    return _across(rows, rows.roles.texts)


def _across(rows: Rows, group: NDArray[np.int64]) -> Sums:
    """Return the sum of the shares that go to elements of another group; group -1 is left out."""
    of_query = group[rows.queries, None]
    other = (of_query != group) & (of_query >= 0) & (group >= 0)
    if rows.roles.causal:
        other &= np.arange(rows.roles.keys) <= rows.positions[:, None]
    return rows.sums(rows.mass(other), other.any(axis=1))


def pieces_of(roles: Roles, query: int) -> list[int]:
    """Return the keys that are other pieces of the word of a query."""
    words = roles.words
    if words is None or roles.special[query]:
        return []
    return [int(key) for key in np.flatnonzero(words == words[query]) if key != query]


def earlier_of(roles: Roles, query: int) -> list[int]:
    """Return the keys before a query that are the same token, special ones left out."""
    return roles.occurrences[roles.labels[query]][: roles.rank[query]]


def has_pieces(roles: Roles) -> str:
    """Return why the text lacks words of several pieces, or ""."""
    reason = places_compare(roles)
    if reason or roles.words is None:
        return reason or f"these elements ({roles.unit}) are not pieces of words"
    counted = np.bincount(roles.words[~roles.special], minlength=1)
    return "" if counted.max(initial=0) > 1 else "no word has several pieces"


def has_repeats(roles: Roles) -> str:
    """Return why no element occurs twice, or ""."""
    repeats = any(len(positions) > 1 for positions in roles.occurrences.values())
    return places_compare(roles) or ("" if repeats else "no element occurs twice")


@statistic(refusal=has_pieces)
def same_word(rows: Rows) -> Sums:
    """Share of a query that goes to the other pieces of its own word: mean of their summed shares.

    Only queries whose word has another piece that they can see count.

    Range: 0 to 1, a share of the query's attention
    High: joins the pieces of a word (a subword-merging head)
    Low: attends to other words, or to the query itself
    Source: Correia et al. 2019, Adaptively Sparse Transformers, section 5.2 (a head that merges subwords)
    """
    return _towards(rows, pieces_of)


@statistic(refusal=has_repeats)
def duplicate_token(rows: Rows) -> Sums:
    """Share of a repeated element's query that goes to its earlier occurrences: mean of summed shares.

    Elements are the same if their labels are. Only queries that occurred before count; special elements do
    not.

    Range: 0 to 1, a share of the query's attention
    High: looks back at the same token (a duplicate-token head)
    Low: attends elsewhere
    Source: Wang et al. 2023, Interpretability in the Wild, section 3 (duplicate-token heads)
    """
    return _towards(rows, earlier_of)


def _towards(rows: Rows, targets: Targets) -> Sums:
    mask = rows.roles.targets_of(targets)[rows.queries]
    has_target: Bool = np.asarray(mask.any(axis=1))
    return rows.sums(rows.mass(mask), has_target)
