"""aw.why: why does this head look there?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.circuits.scores.cell import NAME, OTHERS, WORDS, Cell, foil_of, read_cell
from attnwidgets.circuits.scores.features import (
    FEATURE,
    FeatureParts,
    caveat_of,
    feature_parts,
    leaves_special_out,
)
from attnwidgets.circuits.scores.result import Why
from attnwidgets.tracing.algebra.residual_parts import ComponentParts, SourceParts, Written
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from attnwidgets.explanations.mixing.attention import Float
    from attnwidgets.sae.corpus_statistics.stats import FeatureStats
    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.algebra.residual_parts import StateParts

PAPER = "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits"
BY = ("component", "token", "word")
AUTO = "auto"
_RAW = (
    "The score itself was split: whatever is added to the scores of all keys alike, such as a bias of the "
    "keys, changes these parts and leaves attention as it is."
)


def why(
    trace: Any,
    query: int | str,
    key: int | str,
    *,
    layer: int,
    head: int,
    foil: int | str | None = AUTO,
    by: str | SAE = "component",
    stats: FeatureStats | None = None,
    stack: str | None = None,
) -> Why:
    """Return why a head reads a token: its score as pairs of a part of the query and a part of the key.

    A score is bilinear in the states of both tokens once the deviations of norms are held fixed:

        score(i, j) = sum over a, b of  scaling * q_a(i) . k_b(j)

    where q_a and k_b are the query and the key of a part of each state, after any norm of queries and
    keys and any rotation by position. Softmax only sees differences of scores, so that a key is compared with
    others: the foil's keys are subtracted from it, and terms shared by all keys drop out.

    Sums are checked on the recorded attention in every call. They are exact for shares with norms held fixed;
    `.without(parts)` measures attention with a part removed and the norms recomputed.

    Args:
        trace: A trace made by `aw.trace`.
        query: The token that reads: its number, or its label if no other has it. A word of several tokens
            asks with its last.
        key: The token that is read. Of a word of several tokens, that which the query reads most.
        layer: Number of the layer.
        head: Number of the head.
        foil: The contrast of the key: "others", all other keys by the attention that they get; "words",
            those of them that are no special tokens; "row", all keys of the row alike; a token; or None, the
            score itself. "auto" is "words" for an SAE that was trained without special tokens, whose states
            it describes badly, else "others".
        by: The kind of parts: "component" (embeddings, every earlier head and MLP, biases); "token" or
            "word": those from which states come, as DecompX follows them (exact sums, by its rules for
            activations and biases); or an SAE of the states that the head reads: its features that are
            active on any of the tokens, "decoder bias", and "error", its reconstruction error. The last part,
            "constant", holds biases and the shifts of norms.
        stats: With an SAE, the result of `aw.feature_stats` for it: features are called by their names in
            it, or by the tokens on which they fire most, instead of by their number alone.
        stack: Stack of a model that has several.

    Returns:
        Why: `.pairs` [query part, key part], their margins `.asks` and `.offers` [part], `.total`, `.given`
        (position bias, soft cap), `.place`, `.described` (of an SAE); `.top(k)`, `.to(groups)`,
        `.without(parts)`. In nats.

    Raises:
        ValueError: If the key or the foil is masked, the query reads no other token, several tokens have
            the label, the SAE reads other states than the head, or `stats` are given without an SAE.
        IndexError: If a number is out of range.
        UnsupportedModelError: If queries and keys were not recorded, no description fits the blocks, they
            read another sequence, or parts do not give the recorded attention.

    Source: Elhage et al. 2021, QK circuits; Kamath et al. 2025, Tracing Attention Computation Through Feature
    Interactions (pairs of features). The foil by attention is ours: its total is the log-odds of the weight
    plus the entropy of the others.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> trace = aw.trace(model, tokenizer, "fadebcfadeb")
        >>> why = aw.why(trace, 11, 6, layer=1, head=0, foil=3)
        >>> why.top(1)
        [Share(query='token', key='head 0.0', value=77.18...)]
    """
    if isinstance(by, str):
        require_choice("by", by, BY)
        if stats is not None:
            raise ValueError(f"stats name the features of an SAE: pass by=sae with them, not by={by!r}.")
    cell = read_cell(trace, query, key, layer, head, stack)
    states = states_of(cell, by, stats)
    foil = usual_foil(sae_of(states)) if foil == AUTO else foil_of(cell, foil)
    return split_cell(cell, foil, by if isinstance(by, str) else FEATURE, states)


def usual_foil(sae: SAE | None) -> str:
    """Return the foil of "auto": "words" for an SAE trained without special tokens, else "others"."""
    return WORDS if sae is not None and leaves_special_out(sae) else OTHERS


def sae_of(states: StateParts) -> SAE | None:
    """Return the SAE whose features are parts of states; None for other parts."""
    return states.sae if isinstance(states, FeatureParts) else None


def split_cell(cell: Cell, foil: int | str | None, by: str, states: StateParts) -> Why:
    """Return the score of a cell by the parts of `states`, which are those of all cells of a layer."""
    weights = cell.foil_weights(foil)
    states = states.of([cell.query, cell.key, *np.flatnonzero(weights).tolist()])
    asks, whole, offers = cell.split(states, weights)
    written = (*states.names, Written("constant", "constant"))
    row = cell.row
    pairs = (row.scaling * asks @ offers.T).numpy()
    notes = cell.note, _RAW if foil is None else "", caveat_of(cell, sae_of(states), weights)
    result = Why(
        cell.layer,
        cell.head,
        cell.query,
        cell.key,
        cell.words,
        foil,
        weights,
        by,
        float(row.recorded[cell.key]),
        float(row.scores[cell.key]),
        tuple(part.name for part in written),
        pairs,
        (row.scaling * whole @ asks.sum(0)).numpy(),
        _given(cell, weights),
        " ".join(filter(None, notes)),
        written,
        cell,
        states,
        sae=sae_of(states),
        stats=states.stats if isinstance(states, FeatureParts) else None,
    )
    expected = float(row.scores[cell.key] - weights[weights > 0] @ row.scores[weights > 0])
    lengths = row.scaling * float(asks.sum(0).norm() * (whole.sum(0).norm() + offers.sum(0).norm()))
    if not abs(result.total - expected) <= cell.allowed * max(1.0, lengths):
        raise UnsupportedModelError(
            f"{NAME}: parts of layer {cell.layer} sum to {result.total:.6g} instead of {expected:.6g}, so "
            "that something that the head reads is unknown."
        )
    groups = words_of(cell) if by == "word" else None
    return result if groups is None else replace(result.to(groups), is_grouped=False)


def states_of(cell: Cell, by: str | SAE, stats: FeatureStats | None = None) -> StateParts:
    """Return the states that a cell's head reads as sums of parts."""
    if not isinstance(by, str):
        return feature_parts(cell, by, stats)
    if by == "component":
        return ComponentParts(cell.trace, cell.stack, cell.blocks)
    names = [f"{label.strip(' ␣▁')} [{number}]" for number, label in enumerate(cell.labels[0])]
    return SourceParts(cell.trace, cell.stack, len(cell.blocks) - 1, cell.reader.states, names, NAME)


def _given(cell: Cell, weights: Float) -> dict[str, float]:
    """Return the terms that no pair of parts makes, less those of the foil."""
    row, some = cell.row, weights > 0

    def contrast(values: Float) -> float:
        return float(values[cell.key] - weights[some] @ values[some])

    given = {}
    if row.bias is not None:
        given["position bias"] = contrast(row.bias)
    if row.softcap is not None:
        given["soft cap"] = contrast(row.capped - row.scaled)
    return given


def words_of(cell: Cell) -> dict[str, str]:
    """Return the word of each token's part.

    Raises:
        ValueError: If the text has no words.
    """
    axis = cell.trace.axes(cell.stack)[0]
    require_choice("by", "word", ("component", *axis.units))
    unit = axis.units["word"]
    tokens = [f"{label.strip(' ␣▁')} [{number}]" for number, label in enumerate(cell.labels[0])]
    return {
        tokens[token]: f"{label} [{number}]"
        for number, (label, span) in enumerate(zip(unit.labels, unit.spans, strict=True))
        for token in span
    }
