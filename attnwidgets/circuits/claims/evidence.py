"""Evidence for a claim: its head's statistic in every text, and that of other heads and tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import attnwidgets.statistics as of_heads
from attnwidgets.circuits.claims.roles import sample_of
from attnwidgets.circuits.pair import pair_of
from attnwidgets.circuits.patching import UNDEFINED
from attnwidgets.circuits.scores.writers import moved_attention, writers_of
from attnwidgets.circuits.suffix_runs import Cell, SuffixRuns
from attnwidgets.explanations.results.trace_protocol import resolve_stack
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.circuits.claims.grammar import Claim
    from attnwidgets.circuits.claims.roles import Roles
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

N_RANDOM = 20  # heads drawn from all layers
SAME_DISTANCE, OTHER_WRITERS = "same distance", "other writers"
REQUIRED = SAME_DISTANCE, OTHER_WRITERS
"""Baselines that a claim must exceed as well as its control."""


class LeftOut(Exception):  # noqa: N818 - no error: a text that says nothing about the claim
    """A text in which there is nothing to measure; the message says why, in a few words."""


@dataclass(frozen=True)
class InText:
    """The values of a text for a claim.

    Attributes:
        value: The head's value.
        heads: The same of the other heads [head], in the order of `Others.heads`.
        baselines: The same of other tokens, by name; NaN where there are none.
        source: Tokens of the claim's first role.
        target: Tokens of its second role.
    """

    value: float
    heads: Float
    baselines: Mapping[str, float] = field(default_factory=dict)
    source: tuple[int, ...] = ()
    target: tuple[int, ...] = ()


@dataclass(frozen=True)
class Others:
    """The heads that a head is compared with.

    Attributes:
        heads: (layer, head), without duplicates.
        groups: Indices into `heads`, by control.
    """

    heads: tuple[tuple[int, int], ...]
    groups: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, claim: Claim, sizes: Sequence[int], seed: int) -> Others:
        """Return the other heads of the layer, and heads drawn from all layers.

        Args:
            claim: The claim.
            sizes: Number of heads of every layer.
            seed: Seed of the draw.

        Raises:
            ValueError: If the head does not exist.
        """
        if claim.layer >= len(sizes) or claim.head >= sizes[claim.layer]:
            where = f"layers 0 to {len(sizes) - 1}"
            if claim.layer < len(sizes):
                where = f"heads 0 to {sizes[claim.layer] - 1} in layer {claim.layer}"
            raise ValueError(f"{claim.name} does not exist: the model has {where}.")
        every = [
            (layer, head)
            for layer, count in enumerate(sizes)
            for head in range(count)
            if (layer, head) != (claim.layer, claim.head)
        ]
        same = [head for head in every if head[0] == claim.layer]
        drawn = np.random.default_rng(seed).permutation(len(every))[:N_RANDOM]
        heads = tuple(dict.fromkeys([*same, *(every[number] for number in sorted(drawn))]))
        index_of = {head: index for index, head in enumerate(heads)}
        groups = {
            "same layer": tuple(index_of[head] for head in same),
            "random": tuple(index_of[every[number]] for number in sorted(drawn)),
        }
        return cls(heads, groups)


def observed(claim: Claim, others: Others, roles: Roles, trace: Trace, tokenizer: Any, text: int) -> InText:
    """Return the values of a text for a claim about attention.

    Raises:
        LeftOut: If there is nothing to measure.
    """
    if claim.predicate == "is":
        return _statistic(claim, others, trace)
    if claim.predicate == "looks":
        return _looks(claim, others, trace)
    sample = sample_of(tokenizer, trace.text)
    source, target = (roles.tokens(name, sample, text) for name in claim.roles)
    for name, tokens in zip(claim.roles, (source, target), strict=True):
        if not tokens:
            raise LeftOut(f"no {name}")
    return _attention(claim, others, trace, source, target)


def _attention(
    claim: Claim, others: Others, trace: Trace, source: tuple[int, ...], target: tuple[int, ...]
) -> InText:
    """Return the share of attention from tokens to others, as the mean over those that see any."""
    causal = trace.is_causal()
    n = len(trace.axes()[1])
    pairs = [(i, [j for j in target if j != i and (j < i or not causal)]) for i in source]
    pairs = [(i, keys) for i, keys in pairs if keys]
    if not pairs:
        raise LeftOut(f"no {claim.source} after a {claim.target}")
    mask = np.zeros((len(pairs), n), dtype=bool)
    for row, (_, keys) in enumerate(pairs):
        mask[row, keys] = True
    queries = [i for i, _ in pairs]
    rows = _rows(trace, [(claim.layer, claim.head), *others.heads], queries)  # [head, pair, key]
    shares = np.where(mask, rows, 0.0).sum(-1).mean(-1)
    return InText(
        float(shares[0]),
        shares[1:],
        {
            SAME_DISTANCE: _same_distance(claim, trace, pairs, causal=causal),
            "shuffled": _elsewhere(rows[0], mask, queries, causal=causal),
            "token 0": float(rows[0, :, 0].mean()) if 0 not in target else np.nan,
        },
        source,
        target,
    )


def _looks(claim: Claim, others: Others, trace: Trace) -> InText:
    """Return how much attention moves without the output of a component in the keys.

    Of heads that do not read the component, none does.
    """
    stack = resolve_stack(trace, None)
    kind, _, number = claim.writer.partition(" ")
    first = int(number.partition(".")[0])
    shares = {}
    written = {
        layer: writers_of(trace, stack, layer, kind, "circuits.claim")
        for layer in {claim.layer, *(layer for layer, _ in others.heads)}
        if layer > first
    }
    for layer, head in [(claim.layer, claim.head), *others.heads]:
        if layer <= first:
            shares[layer, head] = 0.0
            continue
        writers = written[layer]
        if claim.writer not in writers:
            raise ValueError(
                f"{claim.writer} does not exist: {', '.join(writers)} wrote below layer {layer}."
            )
        shares[layer, head] = float(
            moved_attention(trace, stack, layer, head, [writers[claim.writer]], "circuits.claim")[0]
        )
    rest = [part for name, part in written[claim.layer].items() if name != claim.writer]
    value, *values = shares.values()
    if np.isnan(value):
        raise LeftOut("no token reads two")
    others_wrote = np.nan
    if rest:
        moved_by = moved_attention(trace, stack, claim.layer, claim.head, rest, "circuits.claim")
        others_wrote = float(np.mean(moved_by))
    return InText(value, np.array(values), {OTHER_WRITERS: others_wrote})


def _rows(trace: Trace, heads: Sequence[tuple[int, int]], queries: Sequence[int]) -> Float:
    """Return rows of heads of several layers [head, query, key]."""
    result: dict[tuple[int, int], Float] = {}
    for layer in dict.fromkeys(layer for layer, _ in heads):
        chosen = [head for of, head in heads if of == layer]
        values = np.asarray(trace.attention_rows(layer, chosen, list(queries)), dtype=np.float64)
        result |= {(layer, head): values[index] for index, head in enumerate(chosen)}
    return np.stack([result[head] for head in heads])


def _same_distance(
    claim: Claim, trace: Trace, pairs: Sequence[tuple[int, list[int]]], *, causal: bool
) -> float:
    """Return the mean attention of other queries to keys at the same distances; NaN without such queries."""
    whole = np.asarray(trace.attention_rows(claim.layer, [claim.head], None), dtype=np.float64)[0]
    n = whole.shape[1]
    busy = {i for i, _ in pairs}
    means = []
    for i, keys in pairs:
        away = [i - j for j in keys]
        keys_of_rows = [
            [q - d for d in away]
            for q in range(n)
            if q not in busy and all(0 <= q - d < n and (q - d <= q or not causal) for d in away)
        ]
        rows = [
            q for q in range(n)
            if q not in busy and all(0 <= q - d < n and (q - d <= q or not causal) for d in away)
        ]  # fmt: skip
        if rows:
            means.append(
                float(np.mean([whole[q, at].sum() for q, at in zip(rows, keys_of_rows, strict=True)]))
            )
    return float(np.mean(means)) if means else np.nan


def _elsewhere(rows: Float, mask: NDArray[np.bool_], queries: Sequence[int], *, causal: bool) -> float:
    """Return the head's value for an equal number of random other tokens: the mean over all draws.

    Other tokens are those that a query sees, except itself and its targets.
    """
    n = rows.shape[1]
    result = []
    for row, chosen, i in zip(rows, mask, queries, strict=True):
        others = (np.arange(n) <= i) if causal else np.ones(n, dtype=bool)
        others = others & ~chosen & (np.arange(n) != i)
        if others.any():
            result.append(min(1.0, float(row[others].mean()) * int(chosen.sum())))
    return float(np.mean(result)) if result else np.nan


def _statistic(claim: Claim, others: Others, trace: Trace) -> InText:
    try:
        layers = sorted({claim.layer, *(layer for layer, _ in others.heads)})
        if claim.statistic == "induction":
            table = {layer: _induction(trace, layer) for layer in layers}
        else:
            measure: Any = getattr(of_heads, claim.statistic)
            values = np.asarray(measure(trace, layers=layers))
            table = dict(zip(layers, values, strict=True))
    except ValueError as error:
        raise LeftOut(str(error).split(": ")[-1].rstrip(".")) from error
    value = float(table[claim.layer][claim.head])
    if np.isnan(value):
        raise LeftOut("nothing to measure")
    return InText(value, np.array([table[layer][head] for layer, head in others.heads]))


def _induction(trace: Trace, layer: int) -> Float:
    """Return the share of repeated tokens' attention to the tokens after their earlier copies [head].

    Olsson et al. 2022, prefix matching, on the repeats in the text.

    Raises:
        LeftOut: If no token occurs again.
    """
    tokens = trace.axes()[0].tokens
    special = trace.axes()[0].units["token"].special
    pairs = [
        (i, keys)
        for i, token in enumerate(tokens)
        if not special[i] and (keys := [j + 1 for j in range(i - 1) if tokens[j] == token])
    ]
    if not pairs:
        raise LeftOut("no token occurs again")
    rows = np.asarray(trace.attention_rows(layer, None, [i for i, _ in pairs]), dtype=np.float64)
    return np.mean([rows[:, row, keys].sum(-1) for row, (_, keys) in enumerate(pairs)], axis=0)


@dataclass(frozen=True)
class MinimalPair:
    """Two texts whose answers differ.

    Attributes:
        clean: A text.
        corrupt: The same with another word.
        target: The answer to the first; None: the model's prediction.
        foil: The answer to the second; None: the model's prediction.
    """

    clean: str
    corrupt: str
    target: Any = None
    foil: Any = None

    @property
    def answers(self) -> tuple[Any, ...]:
        """Both answers as they were given; () if neither was."""
        return () if self.target is None and self.foil is None else (self.target, self.foil)


def _answer(trace: Trace, given: Any) -> Any:
    """Return an answer that was given, or the model's prediction."""
    predicted = trace.predictions(1) if given is None else ()
    if given is None and not predicted:
        resolve_target_set(trace, None, None, "claim")  # says why there is none
        raise ValueError("the model predicts no single answer for a text: give both answers of every pair.")
    return given if given is not None else predicted[0].id


def moved(
    claim: Claim,
    others: Others,
    roles: Roles,
    pair: MinimalPair,
    clean: Trace,
    corrupt: Trace,
    tokenizer: Any,
    text: int,
) -> InText:
    """Return which share of the answer comes back as heads are patched at the tokens of a role.

    Raises:
        LeftOut: If the texts are equal, of other lengths or differ elsewhere, or the model does not know the
            answers.
    """
    if pair.clean == pair.corrupt:
        raise LeftOut("twice the same text")
    if len(clean.tokens) != len(corrupt.tokens):
        raise LeftOut("unequal length")
    sample = sample_of(tokenizer, pair.clean)
    source, target = (roles.tokens(name, sample, text) for name in claim.roles)
    for name, tokens in zip(claim.roles, (source, target), strict=True):
        if not tokens:
            raise LeftOut(f"no {name}")
    both = pair_of(clean, corrupt, None, "claim")
    if not set(both.differs) <= set(source):
        raise LeftOut(f"differs outside {claim.source}")
    answer, foil = _answer(clean, pair.target), _answer(corrupt, pair.foil)
    if answer == foil:
        raise LeftOut("same answer to both")
    targets = resolve_target_set(clean, answer, foil, "claim").single("claim")
    with SuffixRuns(both, targets, ("head",), "circuits.claim") as runs:
        knows, other = (recorded.score for recorded in runs.recorded)
        if knows - other <= UNDEFINED * max(1.0, abs(knows), abs(other)) or knows <= 0 or other >= 0:
            raise LeftOut("answer not known")
        heads = [(claim.layer, claim.head), *others.heads]
        patches = [
            [Cell("head", layer, token, head) for token in target if token >= runs.first]
            for layer, head in heads
        ]
        elsewhere = [at for at in range(max(runs.first, both.first), both.n_tokens) if at not in target]
        patches.append([Cell("head", claim.layer, token, claim.head) for token in elsewhere])
        shares = (runs.scores(1, patches, 32) - other) / (knows - other)
    apart = float(shares[-1]) if elsewhere else np.nan
    return InText(float(shares[0]), shares[1:-1], {"other tokens": apart}, source, target)
