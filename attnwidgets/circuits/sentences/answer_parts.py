"""An answer, sentence by sentence, and the parts of the text before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.results.units import new_unit
from attnwidgets.explanations.targets.resolve import TOKENS
from attnwidgets.tracing.rerun_trace import require_same_model
from attnwidgets.tracing.text.display import is_blank, joined
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.tracing.text.units import TokenAxis, Unit
    from attnwidgets.tracing.trace import Trace


@dataclass(frozen=True)
class AnswerParts:
    """An answer and the parts before it.

    Attributes:
        trace: The trace.
        stack: Its stack.
        unit: Name of the parts' unit.
        labels: Of the parts.
        spans: The tokens of every part.
        roles: "system", "question" or "" of every part, as in `_roles`.
        sentences: The tokens of every sentence of the answer.
        texts: The sentences.
    """

    trace: Trace
    stack: str
    unit: str
    labels: tuple[str, ...]
    spans: tuple[tuple[int, ...], ...]
    roles: tuple[str, ...]
    sentences: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]

    @property
    def ids(self) -> list[int]:
        """All token ids."""
        if self.trace.input_ids is None:  # checked by `answer_parts`
            raise AssertionError
        return [int(index) for index in self.trace.input_ids]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens of the answer."""
        return tuple(token for sentence in self.sentences for token in sentence)

    def __len__(self) -> int:
        return len(self.spans)


def answer_parts(trace: Trace, answer: Any, unit: Any) -> AnswerParts:
    """Return an answer and the parts before it.

    Args:
        trace: The trace.
        answer: Number of the message, its tokens as a pair, or None.
        unit: Name of a unit, a Unit, or spans.

    Raises:
        ValueError: If the text lacks the unit, or the answer or the parts before it have no tokens.
        UnsupportedModelError: If the trace has no model, or it predicts no tokens from those before.
    """
    stack = _stack(trace)
    axis = trace.axes(stack)[0]
    inside = answer_tokens(trace, answer)
    parts = _unit(axis, unit)
    labels: list[str] = []
    spans: list[tuple[int, ...]] = []
    for label, span, special in zip(parts.labels, parts.spans, parts.special, strict=True):
        if not span or special or span[-1] >= inside[0]:
            continue
        follows = bool(spans) and spans[-1][-1] + 1 == span[0]
        if isinstance(unit, str) and is_blank(label) and follows:
            spans[-1] += span  # line ends belong to the part before them
        else:
            labels.append(label)
            spans.append(span)
    if not spans:
        raise ValueError(
            f"nothing before the answer is a {parts.name}: the answer begins at token {inside[0]}."
        )
    sentences = tuple(map(tuple, _sentences(axis, inside)))
    return AnswerParts(
        trace,
        stack,
        parts.name,
        tuple(labels),
        tuple(spans),
        _roles(trace, axis, spans, inside[0]),
        sentences,
        tuple(joined([axis.tokens[i] for i in span], axis.tokens).strip() for span in sentences),
    )


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


def answer_tokens(trace: Trace, answer: Any) -> list[int]:
    """Return the tokens of an answer: a message by number, a pair (start, end), or None for the last."""
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
        if at != last and (not result or not is_blank(unit.labels[at])):
            result.append([])
            last = at
        result[-1].append(token)
    return result


def _roles(trace: Trace, axis: TokenAxis, spans: Sequence[tuple[int, ...]], start: int) -> tuple[str, ...]:
    """Return "system" or "question" for the parts that stand apart, "" for others.

    Passages never stand apart. A system message does as a whole, but its sentences do not. Of the last
    message of a user before the answer, the last sentence does, or all that is not a passage: what a question
    is about is often written above it.
    """
    passages = axis.units.get("passage")
    titled: set[int] = set()
    if passages is not None and passages.titled is not None:
        elements = zip(passages.spans, passages.titled, strict=True)
        titled = {token for span, is_titled in elements if is_titled for token in span}
    system = [set(message.tokens) - titled for message in trace.messages if message.role == "system"]
    users = [message.tokens for message in trace.messages if message.role == "user"]
    last = next((tokens for tokens in reversed(users) if tokens and tokens[-1] < start), ())
    message = set(last) - titled
    question = message
    if message and len(message) == len(last):
        question = set(_sentences(axis, last)[-1])
    roles = []
    for part in map(set, spans):
        if part <= set().union(*system) and all(rest <= part or not rest & part for rest in system):
            roles.append("system")
        else:
            roles.append("question" if part <= message and part & question else "")
    return tuple(roles)
