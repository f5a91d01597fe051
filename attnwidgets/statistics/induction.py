"""Induction heads: what looks, at a repeated token, at what followed it before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets.statistics.positional import places_compare
from attnwidgets.statistics.row_shares import Float, Roles, by_layer, source_of
from attnwidgets.statistics.statistic import Statistic, known
from attnwidgets.statistics.table import HeadStatistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.explanations.results.mixing_map import MixingMap

Over = Literal["sum", "mean"]
OVER: tuple[Over, ...] = ("sum", "mean")
PAPER = "Olsson et al. 2022, In-context Learning and Induction Heads (prefix matching)"
_SEVERAL = 2
# Of a vocabulary in the order of merges: the most common tokens stand first, the least common last.
_COMMON, _RARE = 0.1, 0.9

INDUCTION = known(
    Statistic(
        "induction",
        "induction",
        "At a repeated token, what a query draws from the tokens that followed it before (random tokens).",
        "0 to 1, a share of what a query draws",
        "an induction head: looks up what came next the last time",
        PAPER,
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
    """Return the induction score of every head, on sequences of random tokens that are repeated.

    `length` tokens are drawn without replacement and written `repeats` times behind a start token. Where a
    query stands on a token that was there before, a head with prefix matching looks at the token *after*
    that earlier one. The score is the mean of this share over all queries from the second copy on, and over
    `sequences` such sequences. The model is run on them once, and comes back as it was.

    Args:
        model: A transformers model; decoders are what the score is about, encoders are taken too.
        tokenizer: Its tokenizer, which says what the start token is and which tokens are special; None for
            raw ids.
        length: Tokens in a copy (the authors': 25).
        repeats: Copies (the authors': 4).
        sequences: How many sequences are averaged over.
        start: The id of a start token; True: the tokenizer's own, where it has one; False: none.
        vocabulary: The ids to draw from; by default what is not special in the middle eight tenths of the
            vocabulary (the authors leave out the most and the least common tokens, which byte-pair and
            WordPiece vocabularies have at their ends).
        over: A query in the third copy has two earlier tokens to look at, and so on: "sum" counts what goes
            to all of them, so that 1 is the most there is with any number of copies; "mean" takes them one
            by one, which is the authors' mean over all entries (at most 1/2 for four copies). The same for
            two copies.
        seed: Of the draws.
        stack: "encoder" or "decoder" of an encoder-decoder.

    Returns:
        HeadStatistics with one statistic, "induction" [layer, head], 0 to 1; `.top("induction")` names the
        induction heads. `aw.head_statistics(trace).join(...)` puts it beside others.

    Raises:
        ValueError: Where an option is out of its range, or there are too few tokens to draw from.

    Source: Olsson et al. 2022, "Head activation evaluators: prefix matching". They write that the pattern
    attends "to the tokens that preceded", and describe and plot heads that attend to what followed, which is
    what is measured here, and by TransformerLens.
    """
    from attnwidgets.tracing.recording.run import trace

    rows = repeated_tokens(
        model,
        tokenizer,
        length=length,
        repeats=repeats,
        sequences=sequences,
        start=start,
        vocabulary=vocabulary,
        seed=seed,
    )
    if over not in OVER:
        raise ValueError(
            f"over {over!r} is not one of {', '.join(map(repr, OVER))}.{suggest(str(over), OVER)}"
        )
    scores, first = None, None
    for row in progress(rows, desc="induction: sequences"):
        traced = trace(model, tokenizer, input_ids=row)
        first = first or source_of(traced, stack, None, None, "induction_score")[0]
        found = prefix_matching(traced, length, over=over, stack=stack)
        scores = found if scores is None else scores + found
    assert first is not None  # noqa: S101 - there is at least one sequence
    return _table(
        scores, len(rows), first, {"length": length, "repeats": repeats, "over": over, "seed": seed}
    )


def _table(scores: Any, count: int, of: MixingMap, options: dict[str, Any]) -> HeadStatistics:
    return HeadStatistics(
        (scores / count)[None],
        names=(INDUCTION.name,),
        layers=of.layers,
        heads=of.heads,
        stack=of.stack,
        method="induction_score",
        provenance={
            "options": options | {"sequences": count},
            "model": of.provenance.get("model", ""),
            "paper": PAPER,
            "title": f"induction score on {count} sequences of random tokens",
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

    See `induction_score` for the arguments and what is raised.
    """
    for name, value, least in (
        ("length", length, _SEVERAL),
        ("repeats", repeats, _SEVERAL),
        ("sequences", sequences, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number from {least}, not {value!r}.")
    offered = list(_drawn_from(model, tokenizer) if vocabulary is None else dict.fromkeys(vocabulary))
    if len(offered) < length:
        raise ValueError(f"length is {length}, and there are {len(offered)} different tokens to draw from.")
    before = _start(tokenizer, start)
    draws = np.random.default_rng(seed)
    chosen = (draws.choice(offered, length, replace=False).tolist() for _ in range(sequences))
    return [before + [int(token) for token in row] * repeats for row in chosen]


def _drawn_from(model: Any, tokenizer: Any) -> list[int]:
    table = getattr(model, "get_input_embeddings", lambda: None)()
    size = getattr(table, "num_embeddings", None)
    special: frozenset[int] = frozenset()
    if tokenizer is not None:
        from attnwidgets.tracing.recording.inputs import special_ids

        special = special_ids(tokenizer)
        size = min(len(tokenizer), size or len(tokenizer))
    if size is None:
        raise ValueError(
            "vocabulary is needed: neither the model nor a tokenizer says how many tokens there are."
        )
    return [i for i in range(int(_COMMON * size), int(_RARE * size)) if i not in special]


def _start(tokenizer: Any, start: int | bool) -> list[int]:
    if start is False:
        return []
    if start is not True:
        return [int(start)]
    ids = (getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "cls"))
    return [next(i for i in ids if i is not None)] if _has_start(tokenizer) else []


def _has_start(tokenizer: Any) -> bool:
    return any(getattr(tokenizer, f"{name}_token_id", None) is not None for name in ("bos", "cls"))


def prefix_matching(
    shown: Any, length: int, *, over: Over = "sum", stack: str | None = None, layers: Any = None
) -> Float:
    """Return what repeated tokens draw from what followed them before [layer, head], 0 to 1.

    Args:
        shown: A trace or map of a sequence that repeats every `length` tokens from its first token on, or
            from a start token on (what `repeated_tokens` returns).
        length: Tokens in a copy.
        over: See `induction_score`.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Some layers by number; all by default.

    Raises:
        ValueError: Where there are not at least two copies, or queries and keys are different sequences.
    """
    source, unit = source_of(shown, stack, layers, None, "prefix_matching")
    roles = Roles(source)
    before = roles.queries % length
    copies = roles.queries // length
    reason = places_compare(roles) or ("" if copies >= _SEVERAL else f"it has {copies} copies of {length}")
    if reason:
        raise ValueError(
            f"prefix matching needs a sequence that is repeated: {reason} (n = {roles.queries})."
        )
    places = np.arange(roles.queries)
    # The key after an earlier copy of the query's token, a whole number of copies back.
    apart = places[:, None] - (places[None, :] - 1)
    targets = (apart > 0) & (apart % length == 0) & (places[None, :] > before)
    rows = places >= before + length
    counts = np.maximum(targets.sum(axis=1), 1)
    weights = counts[rows] if over == "mean" else np.ones(int(rows.sum()))
    heads = 1 if source.heads is None else len(source.heads)
    found = np.full((len(source.layers), heads), np.nan)
    for layer, head, part in by_layer(source, unit, roles, "induction"):
        share = part.mass(targets)[:, rows]
        found[layer, head : head + len(share)] = share.sum(axis=1) / weights.sum()
    return found if source.heads is not None else found[:, 0]
