"""Induction heads: at a repeated token, they attend to the token that followed it before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._progress import progress
from attnwidgets.explanations.registry.several_traces import takes_lists
from attnwidgets.statistics.row_shares import Float, Roles, means, source_of
from attnwidgets.statistics.rows import places_compare
from attnwidgets.statistics.statistic import Statistic, register
from attnwidgets.statistics.table import HeadStatistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.statistics.row_shares import Rows, Sums

Over = Literal["sum", "mean"]
OVER: tuple[Over, ...] = ("sum", "mean")
PAPER = "Olsson et al. 2022, In-context Learning and Induction Heads (prefix matching)"
_SEVERAL = 2
_LENGTH, _REPEATS = 25, 4  # the authors'
# Vocabularies are in the order of merges: the most common tokens come first, the least common last.
_COMMON, _RARE = 0.1, 0.9

INDUCTION = register(
    Statistic(
        "induction",
        "induction",
        "Share of a repeated token's query that goes to the tokens that followed it before (random tokens).",
        "0 to 1, a share of the query's attention",
        "an induction head: looks up what came next the last time",
        PAPER,
        made_by="aw.statistics.induction_score(model, tokenizer)",
    )
)


def induction_score(
    model: Any,
    tokenizer: Any = None,
    *,
    length: int = 25,
    repeats: int = 4,
    sequences: int = 4,
    start: int | bool = True,
    vocabulary: Sequence[int] | None = None,
    over: Over = "sum",
    seed: int = 0,
    stack: str | None = None,
) -> HeadStatistics:
    """Return the induction score of every head, on sequences of repeated random tokens.

    `length` tokens are drawn without replacement and repeated `repeats` times after a start token. If a query
    is a token that occurred before, a head with prefix matching attends to the token *after* that earlier
    occurrence. The score is the mean of this share over all queries from the second copy on, and over
    `sequences` such sequences. The model runs once on each of them, and is left unchanged.

    Args:
        model: A transformers model; the score is meant for decoders, but encoders work as well.
        tokenizer: Its tokenizer, which defines the start token and the special tokens; None for raw ids.
        length: Tokens in a copy (the authors use 25).
        repeats: Number of copies (the authors use 4).
        sequences: Number of sequences to average over.
        start: Id of a start token; True: the tokenizer's, if it has one; False: none.
        vocabulary: Ids to draw from; by default the middle eight tenths of the vocabulary, without special
            tokens (the authors leave out the most and the least common tokens, which are at the ends of
            byte-pair and WordPiece vocabularies).
        over: A query in the third copy has two earlier occurrences, and so on. "sum" adds the shares of all
            of them, so that the maximum is 1 for any number of copies; "mean" averages over them, which is
            the authors' mean over all entries (at most 1/2 for four copies). Equal for two copies.
        seed: Seed of the random tokens.
        stack: "encoder" or "decoder" of an encoder-decoder.

    Returns:
        HeadStatistics with the statistic "induction" [layer, head], a share from 0 to 1. High: an induction
        head, see `.top("induction")`. Low: attends elsewhere.
        `aw.statistics.head_statistics(trace).join(...)` adds it to other statistics.

    Raises:
        ValueError: If an option is out of range, or there are too few tokens to draw from.

    Source: Olsson et al. 2022, "Head activation evaluators: prefix matching". They write that the pattern
    attends "to the tokens that preceded", but describe and plot heads that attend to the tokens that
    followed; these are measured here, and by TransformerLens.

    Example:
        >>> model, tokenizer = aw.demo_model("encoder")
        >>> scores = aw.statistics.induction_score(model, tokenizer, length=8, repeats=2, sequences=1)
        >>> scores["induction"].shape
        (6, 12)
    """
    from attnwidgets.tracing.recording.run import trace

    drawing = {"length": length, "repeats": repeats, "sequences": sequences, "seed": seed}
    rows = repeated_tokens(model, tokenizer, start=start, vocabulary=vocabulary, **drawing)
    require_choice("over", over, OVER)
    scores: list[Float] = []
    for row in progress(rows, desc="induction: sequences"):
        traced = trace(model, tokenizer, input_ids=row)
        scores.append(prefix_matching(traced, length, over=over, stack=stack))
    of = source_of(traced, stack, None, None, "induction_score")[0]
    return HeadStatistics(
        (np.add.reduce(scores) / len(rows))[None],
        names=(INDUCTION.name,),
        layers=of.layers,
        heads=of.heads,
        stack=of.stack,
        method="induction_score",
        provenance={
            "options": drawing | {"over": over},
            "model": of.provenance.get("model", ""),
            "paper": PAPER,
            "title": f"induction score on {len(rows)} sequences of random tokens",
        },
    )


def repeated_tokens(
    model: Any,
    tokenizer: Any = None,
    *,
    length: int = 25,
    repeats: int = 4,
    sequences: int = 4,
    start: int | bool = True,
    vocabulary: Sequence[int] | None = None,
    seed: int = 0,
) -> list[list[int]]:
    """Return sequences of token ids: a start token, then `length` random ones `repeats` times.

    Args:
        model: A transformers model, which defines the size of the vocabulary.
        tokenizer: Its tokenizer, which defines the start token and the special tokens; None for raw ids.
        length: Tokens in a copy, at least 2.
        repeats: Number of copies, at least 2.
        sequences: Number of sequences.
        start: Id of a start token; True: the tokenizer's, if it has one; False: none.
        vocabulary: Ids to draw from; by default the middle eight tenths of the vocabulary, without special
            tokens.
        seed: Seed of the random tokens.

    Raises:
        ValueError: If an option is out of range, or there are too few tokens to draw from.

    Example:
        >>> rows = aw.statistics.repeated_tokens(*aw.demo_model("encoder"), length=5, repeats=3, sequences=2)
        >>> [len(row) for row in rows]
        [16, 16]
    """
    for name, value, least in (
        ("length", length, _SEVERAL),
        ("repeats", repeats, _SEVERAL),
        ("sequences", sequences, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number from {least}, not {value!r}.")
    choices = list(_vocabulary(model, tokenizer) if vocabulary is None else dict.fromkeys(vocabulary))
    if len(choices) < length:
        raise ValueError(f"length is {length}, but there are only {len(choices)} different tokens to draw.")
    before = _start(tokenizer, start)
    draws = np.random.default_rng(seed)
    chosen = (draws.choice(choices, length, replace=False).tolist() for _ in range(sequences))
    return [before + [int(token) for token in row] * repeats for row in chosen]


def fitting(model: Any, tokenizer: Any) -> tuple[int, int]:
    """Return the authors' `length` and `repeats`; less where the vocabulary or the longest text is small."""
    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.recording.inputs import limit_of

    positions = limit_of(unwrap(model), tokenizer)
    room = _LENGTH * _REPEATS if positions is None else positions - 1
    length = max(_SEVERAL, min(_LENGTH, len(_vocabulary(model, tokenizer)), room // _SEVERAL))
    return length, max(_SEVERAL, min(_REPEATS, room // length))


def _vocabulary(model: Any, tokenizer: Any) -> list[int]:
    table = getattr(model, "get_input_embeddings", lambda: None)()
    size = getattr(table, "num_embeddings", None)
    special: frozenset[int] = frozenset()
    if tokenizer is not None:
        from attnwidgets.tracing.recording.inputs import special_ids

        special = special_ids(tokenizer)
        size = min(len(tokenizer), size or len(tokenizer))
    if size is None:
        raise ValueError(
            "vocabulary is required: neither the model nor a tokenizer says how many tokens there are."
        )
    return [i for i in range(int(_COMMON * size), int(_RARE * size)) if i not in special]


def _start(tokenizer: Any, start: int | bool) -> list[int]:
    if start is False:
        return []
    if start is not True:
        return [int(start)]
    ids = (getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "cls"))
    return [number for number in ids if number is not None][:1]


@takes_lists
def prefix_matching(
    shown: Any, length: int, *, over: Over = "sum", stack: str | None = None, layers: Any = None
) -> Float:
    """Return the share of repeated tokens that goes to the tokens that followed them before [layer, head].

    Args:
        shown: A trace or map of a sequence that repeats every `length` tokens, perhaps after a start token
            (see `repeated_tokens`).
        length: Tokens in a copy.
        over: "sum" or "mean" over earlier copies; see `aw.statistics.induction_score`.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Numbers of some layers; all by default.

    Returns:
        Shares from 0 to 1 [layer, head] in float64. High: an induction head. Low: attends elsewhere.

    Raises:
        ValueError: If there are fewer than two copies, or queries and keys are different sequences.

    Example:
        >>> model, tokenizer = aw.demo_model("encoder")
        >>> row = aw.statistics.repeated_tokens(model, tokenizer, length=8, repeats=2, sequences=1)[0]
        >>> aw.statistics.prefix_matching(aw.trace(model, tokenizer, input_ids=row), 8).shape
        (6, 12)
    """
    source, unit = source_of(shown, stack, layers, None, "prefix_matching")
    roles = Roles(source)
    before = roles.queries % length
    copies = roles.queries // length
    reason = places_compare(roles) or ("" if copies >= _SEVERAL else f"it has {copies} copies of {length}")
    if reason:
        raise ValueError(f"prefix matching needs a repeated sequence: {reason} (n = {roles.queries}).")
    positions = np.arange(roles.queries)
    # The key after an earlier copy of the query's token, a whole number of copies back.
    distance = positions[:, None] - (positions[None, :] - 1)
    targets = (distance > 0) & (distance % length == 0) & (positions[None, :] > before)
    rows = positions >= before + length
    counts = np.maximum(targets.sum(axis=1), 1)
    weights = np.where(rows, counts if over == "mean" else 1, 0)

    def towards_targets(part: Rows) -> Sums:
        total = (part.mass(targets[part.queries]) * rows[part.queries]).sum(axis=1, dtype=np.float64)
        return total, np.full_like(total, weights[part.queries].sum())

    [scores] = means(source, unit, roles, "induction", [towards_targets])
    return scores if source.heads is not None else scores[:, 0]
