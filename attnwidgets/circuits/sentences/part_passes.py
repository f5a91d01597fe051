"""The loss of an answer's tokens without parts of the text: passes that are distributed and stored."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from attnwidgets._shards import workers_of
from attnwidgets.circuits.sentences.suppression import Suffixes
from attnwidgets.evaluate.scoring import ScoreCache, Scores, score_shards
from attnwidgets.intervene.edit_attention import suppress
from attnwidgets.tracing.content import fingerprint_of, key_of
from attnwidgets.tracing.model_parcel import Reader
from attnwidgets.tracing.recording.run import trace as record
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets.circuits.sentences.answer_parts import AnswerParts
    from attnwidgets.evaluate.scoring import Group
    from attnwidgets.tracing.model_parcel import Carried
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

How = Literal["hidden", "removed"]
PLAIN = {"input_ids", "attention_mask"}
_SHARD = 16
"""Passes of a shard in other processes, each of which records the text first."""
_FAMILY = "nats"
_DESC = {"hidden": "hiding parts", "removed": "removing parts"}


@dataclass(frozen=True)
class Lost:
    """The loss of the tokens of an answer.

    Attributes:
        nats: log p less log p without the tokens [set of tokens, token of the answer].
        note: Why every pass read the whole text; "" if it read the rest after the tokens.
    """

    nats: Float
    note: str


def lost(
    parts: AnswerParts,
    absent: Sequence[tuple[int, ...]],
    how: How,
    jobs: int | Executor = 1,
    cache: Any = None,
) -> Lost:
    """Return the loss of an answer's tokens without each of some sets of tokens; 0 for a token in the set.

    Args:
        parts: The answer.
        absent: The sets, in ascending order each.
        how: "hidden": no token after the first of a set reads it. "removed": it is taken out of the text.
        jobs: As `run_shards` takes it.
        cache: A folder for finished passes, or None.

    Raises:
        ValueError: If a set leaves nothing that predicts the answer, or a trace with other inputs than tokens
            is to leave this process.
        UnsupportedModelError: If a part is to be removed from a trace with other inputs than tokens.
    """
    from attnwidgets._version import __version__

    trace = parts.trace
    workers_of(jobs)
    _require_plain(parts, absent, how, jobs)
    about = ""
    if cache is not None:
        about = key_of(__version__, fingerprint_of(trace.model), parts.ids, parts.stack, parts.tokens)
    size = 1 if jobs == 1 else _SHARD
    keyed = [(key_of(tokens), tokens) for tokens in absent]
    shards = [keyed[at : at + size] for at in range(0, len(keyed), size)]
    with ExitStack() as exits:
        score: Any
        if jobs == 1:
            score = exits.enter_context(_Here(trace, parts.stack, parts.tokens))
        else:
            carried = exits.enter_context(Reader(trace.model, trace.tokenizer).carried(jobs))
            score = _Elsewhere(carried, tuple(parts.ids), parts.stack, parts.tokens)
        scored = score_shards(
            shards, score, [how], ScoreCache(cache, about), jobs, desc=_DESC[how], total=len(shards)
        )
    if scored is None:
        return Lost(np.zeros((0, len(parts.tokens))), "")
    return Lost(scored.values[_FAMILY][:, 0], "; ".join(scored.notes))


def _require_plain(
    parts: AnswerParts, absent: Sequence[tuple[int, ...]], how: How, jobs: int | Executor
) -> None:
    others = sorted(set(parts.trace.inputs) - PLAIN)
    if how == "removed":
        if others:
            raise UnsupportedModelError(
                f'method="removed" takes tokens out of a text, and this trace has other inputs '
                f'({", ".join(others)}): method="hidden" leaves all in its place.'
            )
        first = parts.tokens[0]
        if any(set(tokens) >= set(range(first)) for tokens in absent):
            raise ValueError(
                'method="removed": a part holds all tokens before the answer, so that nothing is left to '
                'predict it; method="hidden" leaves the last token.'
            )
    if jobs != 1 and others:
        raise ValueError(
            f"jobs: other processes read tokens, and this trace has {', '.join(others)}: jobs=1."
        )


class _Here:
    """Context manager: passes of the trace in this process, prepared at the first."""

    def __init__(self, trace: Trace, stack: str, tokens: tuple[int, ...]) -> None:
        self._trace, self._stack, self._tokens = trace, stack, tokens
        self._suffixes: Suffixes | None = None
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def __call__(self, group: Group[tuple[int, ...]]) -> Scores:
        if self._suffixes is None:
            self._suffixes = self._exits.enter_context(Suffixes(self._trace, self._stack))
        return _scores(group, self._trace, self._stack, self._suffixes, self._tokens)


@dataclass(frozen=True)
class _Elsewhere:
    """Passes in any process, which records the text anew."""

    carried: Carried
    ids: tuple[int, ...]
    stack: str
    tokens: tuple[int, ...]

    def __call__(self, group: Group[tuple[int, ...]]) -> Scores:
        model, tokenizer = self.carried.open()
        trace = record(model, tokenizer, input_ids=list(self.ids))
        with Suffixes(trace, self.stack) as suffixes:
            return _scores(group, trace, self.stack, suffixes, self.tokens)


def _scores(
    group: Group[tuple[int, ...]], trace: Trace, stack: str, suffixes: Suffixes, tokens: tuple[int, ...]
) -> Scores:
    (how,) = group.methods
    take = _hidden if how == "hidden" else _removed
    rows = [take(trace, stack, suffixes, absent, tokens) for absent in group.items]
    notes = tuple((suffixes.whole,) if suffixes.whole else () for _ in rows)
    return Scores(group.keys, group.methods, {_FAMILY: np.array(rows)[:, None]}, notes, {})


def _hidden(
    trace: Trace, stack: str, suffixes: Suffixes, absent: tuple[int, ...], tokens: tuple[int, ...]
) -> Float:
    """Return the nats that tokens lose where no token after the first of a set reads the set."""
    members, n = set(absent), len(trace.tokens)
    readers = [at for at in range(absent[0] + 1, n) if at not in members]
    changed = suffixes.logits(suppress(trace, list(absent), readers, stack=stack), readers[0])
    left = [token for token in tokens if token not in members]
    after = log_p_of(trace, changed, readers[0], left, [token - 1 for token in left])
    return _difference(trace, tokens, left, after)


def _removed(
    trace: Trace, stack: str, suffixes: Suffixes, absent: tuple[int, ...], tokens: tuple[int, ...]
) -> Float:
    """Return the nats that tokens lose in the text without a set; 0 for those in it."""
    del stack
    members = set(absent)
    left = [token for token in tokens if token not in members]
    order = [at for at in range(len(trace.tokens)) if at not in members]
    number = {token: at for at, token in enumerate(order)}
    after = log_p_of(trace, suffixes.without(members), absent[0], left, [number[token] - 1 for token in left])
    return _difference(trace, tokens, left, after)


def _difference(trace: Trace, tokens: Sequence[int], left: Sequence[int], after: Float) -> Float:
    before = log_p_of(trace, torch.zeros(0), len(trace.tokens), left, [token - 1 for token in left])
    result = np.zeros(len(tokens))
    result[[tokens.index(token) for token in left]] = before - after
    return result


def log_p_of(
    trace: Trace, changed: torch.Tensor, start: int, tokens: Sequence[int], rows: Sequence[int]
) -> Float:
    """Return log p of tokens in nats [token].

    Args:
        trace: The trace, whose logits are those of the rows before `start`.
        changed: Logits of the rows from `start` on [row, vocabulary].
        start: The first of these.
        tokens: The tokens.
        rows: The rows that predict them.
    """
    if trace.logits is None or trace.input_ids is None:  # checked by `answer_parts`
        raise AssertionError
    if not tokens:
        return np.zeros(0)
    logits = torch.stack([trace.logits[row] if row < start else changed[row - start] for row in rows])
    log_p = logits.double().log_softmax(-1).cpu()
    result: Float = log_p[range(len(rows)), trace.input_ids[list(tokens)].cpu()].numpy()
    return result
