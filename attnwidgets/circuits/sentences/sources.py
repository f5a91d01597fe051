"""aw.circuits.sources: on which message, passage or sentence each sentence of an answer rests."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnwidgets._progress import progress
from attnwidgets._tables import Table
from attnwidgets.circuits.sentences.sentence_attribution import LONG_WORK
from attnwidgets.circuits.sentences.suppression import Suffixes
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace
from attnwidgets.explanations.results.units import new_unit
from attnwidgets.explanations.targets.resolve import TOKENS
from attnwidgets.explanations.viewable import Viewable
from attnwidgets.intervene.edit_attention import suppress
from attnwidgets.tracing.rerun_trace import require_same_model
from attnwidgets.tracing.text.display import joined
from attnwidgets.tracing.text.units import TokenAxis
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

PAPER = "Cohen-Wang et al. 2024, ContextCite: Attributing Model Generation to Context"
WEAK = 0.6
"""Nats; of planted chats, the largest part was the true one in 20 of 20 above, and in 1 of 4 below."""
_ITSELF = "the answer so far"
_COVER = "parts that say the same cover for each other: each is then small alone"


@dataclass(frozen=True, repr=False)
class Sources(Table, Viewable):
    """How much less likely each sentence of an answer is with a part of the text hidden.

    Attributes:
        scores: Nats [sentence of the answer, part]: Attributions. The last column is the answer's words
            before the sentence. Negative: the sentence is likelier without the part.
        roles: What stands apart: "system", "question" (the last message of a user), "answer"; "" for others.
        spans: The tokens of every part; those of the answer for the last.
        sentences: The tokens of every sentence of the answer.
        by_token: Nats [token of the answer, part], of which `scores` has the sums; None if not measured.
        trace: The text and its model, which the view reads; None without.
    """

    kind: ClassVar[str] = "Sources"
    viewed_by: ClassVar[str] = "circuits.sources_view:SourcesView"

    scores: Attributions
    roles: tuple[str, ...]
    spans: tuple[tuple[int, ...], ...]
    sentences: tuple[tuple[int, ...], ...] = ()
    by_token: NDArray[np.float64] | None = None
    trace: Trace | None = None

    def strongest(self) -> tuple[str | None, ...]:
        """Return the part on which each sentence rests most, of those that do not stand apart.

        None where no part matters much: the largest is below 0.6 nats, or there is none.
        """
        values = np.atleast_2d(np.asarray(self.scores.values, dtype=np.float64))
        inside = [at for at, role in enumerate(self.roles) if not role]
        result: list[str | None] = []
        for row in values:
            best = max(inside, key=lambda at: row[at], default=None)
            result.append(None if best is None or row[best] < WEAK else self.scores.labels[best])
        return tuple(result)

    def _columns(self) -> Iterator[Columns]:
        """Yield sentence, part, role and nats."""
        values = np.atleast_2d(np.asarray(self.scores.values, dtype=np.float64))
        for sentence, row in zip(self._sentences(), values, strict=True):
            yield {
                "sentence": [sentence] * len(row),
                "part": self.scores.labels,
                "role": self.roles,
                "nats": row.tolist(),
            }

    def _sentences(self) -> tuple[str, ...]:
        target = self.scores.target
        return target if isinstance(target, tuple) else (str(target),)

    def __repr__(self) -> str:
        pairs = zip(self._sentences(), self.strongest(), strict=True)
        said = "; ".join(f"{sentence!r} on {part or 'no part much'!r}" for sentence, part in pairs)
        return f"<Sources: {said} ({_COVER})>"


def sources(trace: Any, answer: int | tuple[int, int] | None = None, *, unit: Any = "message") -> Sources:
    """Return on which parts of a text each sentence of an answer rests: by hiding one part after another.

        score[s, j] = sum over tokens t of sentence s of log p(t) - log p(t with part j hidden), in nats

    A hidden part keeps its place: no token after it reads it, in any layer and head. The words of the answer
    before a sentence are one more part. In models whose cache can be cut, a pass reads what follows the part
    alone; others read the whole text again. From about a minute on, the cost is reported before it starts.

    Two parts that say the same cover for each other, and then both scores are small. The question and a
    system message are needed by every answer, so they stand apart (`.roles`).

    Args:
        trace: Trace returned by `aw.trace`, with a model that continues texts.
        answer: Number of the message, or its tokens as a pair (start, end); by default the last message of
            the assistant, or what was generated.
        unit: "message", "passage", "sentence", another unit of the trace, a Unit, or spans of tokens.

    Returns:
        Sources: `.scores` [sentence of the answer, part], `.strongest()`.

    Raises:
        ValueError: If the text lacks the unit (messages are those of `messages=`), or the answer or the parts
            before it have no tokens.
        UnsupportedModelError: If the trace has no model, or it predicts no tokens from those before.
        TypeError: If `trace` is not a trace.

    Source: the leave-one-out scores of Cohen-Wang et al. 2024, ContextCite, with parts hidden as in Bogdan et
    al. 2025, Thought Anchors, section 5.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> trace = aw.trace(model, tokenizer, "fadebcfade")
        >>> parts = [(0, 5), (5, 7), (7, 10), (10, 11)]    # <s>fade, bc, fad, e
        >>> result = aw.circuits.sources(trace, (10, 11), unit=parts)
        >>> result.strongest()
        ('<s> f a d e',)
    """
    require_trace(trace, "sources")
    traced: Trace = trace
    stack = _stack(traced)
    axis = traced.axes(stack)[0]
    inside = _answer(traced, answer)
    parts = _unit(axis, unit)
    chosen = [
        at for at, span in enumerate(parts.spans) if span and not parts.special[at] and span[-1] < inside[0]
    ]
    if not chosen:
        raise ValueError(
            f"nothing before the answer is a {parts.name}: the answer begins at token {inside[0]}."
        )
    sentences = _sentences(axis, inside)
    _say_if_long(traced, len(chosen) + len(sentences) - 1)
    by_token = _scores(traced, stack, [parts.spans[at] for at in chosen], sentences)
    values = np.array([rows.sum(axis=0) for rows in _by(sentences, by_token)])
    labels = [*(parts.labels[at] for at in chosen), _ITSELF]
    target = [joined([axis.tokens[i] for i in span], axis.tokens).strip() for span in sentences]
    common = provenance_of(
        traced,
        stack,
        "circuits.sources",
        paper=PAPER,
        title="nats lost with a part hidden",
        options={"answer": answer, "unit": parts.name},
        notes=[_COVER],
    )
    scores = Attributions(
        values,
        axis=TokenAxis.plain(labels, name=parts.name),
        unit=parts.name,
        target=target,
        **common,
    )
    spans = (*(parts.spans[at] for at in chosen), tuple(inside))
    roles = _roles(traced, spans[:-1], inside[0])
    of_sentences = tuple(map(tuple, sentences))
    return Sources(scores, (*roles, "answer"), spans, of_sentences, by_token, traced)


def _stack(trace: Trace) -> str:
    """Return the stack that is explained, after checking that it can be run again and predicts tokens."""
    if trace.model is None or trace.logits is None or trace.logits.dim() != TOKENS:
        raise UnsupportedModelError("sources needs a trace with a model that predicts tokens.")
    stack = trace.default_stack
    if trace.stacks != ("self",) or not trace.is_causal(stack) or len(trace.logits) != len(trace.tokens):
        raise UnsupportedModelError(
            "sources explains models that continue a text (decoders), with the logits of every token."
        )
    require_same_model(trace, "sources")
    return stack


def _answer(trace: Trace, answer: Any) -> list[int]:
    """Return the tokens of the answer."""
    tokens: Sequence[int] = ()
    if isinstance(answer, tuple):
        start, stop = answer
        if not 0 < start < stop <= len(trace.tokens):
            raise ValueError(
                f"answer is {answer!r}; it is a pair (start, end) of tokens from 1 to {len(trace.tokens)}."
            )
        return list(range(start, stop))
    if answer is not None:
        if not -len(trace.messages) <= answer < len(trace.messages):
            raise ValueError(
                f"answer {answer} is out of range: the trace has {len(trace.messages)} messages."
            )
        tokens = trace.messages[answer].tokens
    elif trace.messages:
        written = [message.tokens for message in trace.messages if message.role == "assistant"]
        tokens = written[-1] if written else ()
    elif trace.boundary is not None:
        special = trace.units["token"].special
        tokens = [at for at in range(trace.boundary, len(trace.tokens)) if not special[at]]
    if not tokens or not tokens[0]:
        raise ValueError(
            "the answer has no tokens: trace with max_new_tokens=..., end messages= with one of the "
            "assistant, or name its tokens, answer=(start, end)."
        )
    return list(tokens)


def _unit(axis: TokenAxis, unit: Any) -> Unit:
    if not isinstance(unit, str):
        return new_unit(unit, axis, "token", "query")
    if unit not in axis.units:
        why = (
            "this trace was made from text; pass messages= to aw.trace, or another unit"
            if unit in ("message", "role", "turn")
            else "pass another unit"
        )
        raise ValueError(
            f"unit {unit!r} is not known of this text, which has {', '.join(axis.units)}: {why}."
        )
    return axis.units[unit]


def _sentences(axis: TokenAxis, inside: Sequence[int]) -> list[list[int]]:
    """Return the tokens of the answer, sentence by sentence; tokens between two belong to the one before."""
    unit = axis.units["sentence"]
    owner = {token: at for at, span in enumerate(unit.spans) for token in span}
    result: list[list[int]] = []
    last: int | None = None
    for token in inside:
        at = owner[token]
        if at != last and (not result or unit.labels[at].strip("␣↵⇥␍ ")):
            result.append([])
            last = at
        result[-1].append(token)
    return result


def _roles(trace: Trace, spans: Sequence[tuple[int, ...]], start: int) -> tuple[str, ...]:
    """Return "system" or "question" for parts of these messages, "" for others."""
    names: dict[int, str] = {}
    question: tuple[int, ...] = ()
    for message in trace.messages:
        if message.role == "system":
            names |= dict.fromkeys(message.tokens, "system")
        if message.role == "user" and message.tokens and message.tokens[-1] < start:
            question = message.tokens
    names |= dict.fromkeys(question, "question")
    kinds = [{names.get(token, "") for token in span} for span in spans]
    return tuple(kind.pop() if len(kind) == 1 else "" for kind in kinds)


def _scores(
    trace: Trace, stack: str, spans: Sequence[tuple[int, ...]], sentences: Sequence[Sequence[int]]
) -> np.ndarray:
    """Return the nats that each token of the answer loses with each part hidden [token, part].

    The last part is the answer before the token's sentence.
    """
    if trace.logits is None or trace.input_ids is None:  # checked by the caller
        raise AssertionError
    ids = trace.input_ids.tolist()
    before = _log_p(trace.logits, 0, ids, sentences)
    result = np.zeros((len(before), len(spans) + 1))
    n = len(ids)
    with Suffixes(trace, stack) as suffixes:

        def lost(span: Sequence[int], readers: list[int]) -> np.ndarray:
            hidden = suppress(trace, list(span), readers, stack=stack)
            after = _log_p(suffixes.logits(hidden, readers[0]), readers[0], ids, sentences)
            return before - np.where(np.isnan(after), before, after)

        for number in progress(range(len(spans)), "hiding parts"):
            members = set(spans[number])
            readers = [at for at in range(spans[number][0] + 1, n) if at not in members]
            result[:, number] = lost(spans[number], readers)
        first = sentences[0][0]
        for number in range(1, len(sentences)):
            # The token before the sentence predicts its first one; it reads itself.
            last = sentences[number][0] - 1
            if last > first:
                changed = lost(range(first, last), list(range(last, n)))
                _by(sentences, result)[number][:, -1] = _by(sentences, changed)[number]
    return result


def _by(sentences: Sequence[Sequence[int]], values: np.ndarray) -> list[np.ndarray]:
    """Return values of the answer's tokens, sentence by sentence."""
    return np.split(values, np.cumsum([len(sentence) for sentence in sentences])[:-1])


def _log_p(
    logits: torch.Tensor, start: int, ids: Sequence[int], sentences: Sequence[Sequence[int]]
) -> np.ndarray:
    """Return log p of the answer's tokens in nats [token]; NaN where their row is before `start`.

    Args:
        logits: Logits of the tokens from `start` on [token, vocabulary].
        start: The first of these.
        ids: All token ids.
        sentences: The answer's tokens.
    """
    tokens = [token for sentence in sentences for token in sentence]
    result = np.full(len(tokens), np.nan)
    rows = [(at, token) for at, token in enumerate(tokens) if token - 1 >= start]
    if rows:
        read = logits[[token - 1 - start for _, token in rows]].double().log_softmax(-1).cpu().numpy()
        result[[at for at, _ in rows]] = read[range(len(rows)), [ids[token] for _, token in rows]]
    return result


def _say_if_long(trace: Trace, passes: int) -> None:
    """Report the cost, where it takes long."""
    n = len(trace.tokens)
    weights = sum(parameter.numel() for parameter in trace.model.parameters())
    if passes / 2 * n * weights >= LONG_WORK:
        warnings.warn(
            f"sources: hiding parts takes {passes:,} passes of up to {n:,} tokens. A coarser unit takes "
            'fewer; aw.lrp(trace, target=...).to("message") takes one backward pass.',
            UserWarning,
            stacklevel=3,
        )
