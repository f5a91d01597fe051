"""A model's predictions for a traced input: next token, masked token, class; and its largest logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._tensors import widened
from attnwidgets.tracing.anatomy.answer import ANSWER_SPAN, read_fields
from attnwidgets.tracing.prediction import Prediction
from attnwidgets.tracing.recording.inputs import text_tokenizer
from attnwidgets.tracing.text.display import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.anatomy.answer import Answer
    from attnwidgets.tracing.trace import Trace

MOST = 100
"""Number of predictions that a trace keeps."""

LONGEST = 15
"""Tokens that an extractive answer has at most."""

TEMPERATURES = tuple(round(0.05 * step, 2) for step in range(1, 41))
"""Temperatures at which the other outcomes are summed: 0.05 to 2."""

MOST_LOGITS = 200


def logits_in(outputs: Any) -> Tensor | None:
    """Return the logits of a batch, [batch, class] or [batch, token, vocabulary]; None without a head.

    Of a model that compares pictures with captions (CLIP, SigLIP): how well each picture of the batch fits
    its caption, [batch, 1]. Of extractive question answering: those of start and end [batch, token, 2].
    For one logit per token (ELECTRA's discriminator): [batch, token, 1].
    """
    names = read_fields(outputs)
    if not names:
        return None
    logits: Tensor
    logits, *end = (getattr(outputs, name) for name in names)
    if names == ("logits_per_image",):
        return logits.diagonal().unsqueeze(-1)
    if end:
        import torch

        return torch.stack([logits, *end], dim=-1)
    is_replaced = type(outputs).__name__ == "ElectraForPreTrainingOutput"
    return logits.unsqueeze(-1) if is_replaced else logits


def predict(
    answer: Answer, logits: Tensor | None, tokenizer: Any, ids: Tensor | None
) -> tuple[Prediction, ...]:
    """Return the most probable outputs, most probable first; numbers in their order, without probability.

    Args:
        answer: The meaning of the logits.
        logits: [token, vocabulary], [class], or None.
        tokenizer: Decodes token ids; None shows the ids.
        ids: [token] input ids, of which an extractive answer is part.
    """
    if logits is None or not answer.title:
        return ()
    if answer.title == ANSWER_SPAN:
        return _spans(answer, widened(logits), tokenizer, ids)
    if answer.reading == "none":
        return tuple(
            Prediction(f"{name} {number:.4g}", float("nan"), index)
            for index, (name, number) in enumerate(zip(answer.names, logits.tolist(), strict=True))
        )
    row = logits if answer.row is None else logits[answer.row]
    values = answer.probabilities(widened(row))
    if answer.names:
        return _most_probable(values, lambda index: answer.names[index])
    from attnwidgets.tracing.recording.inputs import special_ids

    specials = None if tokenizer is None else special_ids(tokenizer)
    return _most_probable(values, lambda index: spelled(tokenizer, index, specials))


def _spans(answer: Answer, logits: Tensor, tokenizer: Any, ids: Tensor | None) -> tuple[Prediction, ...]:
    """Return the most probable answers of at most `LONGEST` tokens, p(start) p(end) (Devlin et al. 2019)."""
    rows = list(answer.candidates)
    if not rows:
        return ()
    compared = [*rows, *(row for row in answer.compared if row not in rows)]
    start, end = logits[compared].softmax(0)[: len(rows)].double().unbind(-1)
    both = (start[:, None] * end[None]).triu().tril(LONGEST - 1)
    best = both.flatten().topk(min(MOST, both.numel()))
    predictions = []
    for probability, flat in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        first, last = rows[flat // len(rows)], rows[flat % len(rows)]
        if probability > 0:
            label = spelled_span(tokenizer, ids, first, last)
            predictions.append(Prediction(label, probability, first * len(logits) + last))
    return tuple(predictions)


def spelled_span(tokenizer: Any, ids: Tensor | None, first: int, last: int) -> str:
    """Return the text of tokens, first to last; their numbers without a tokenizer."""
    if tokenizer is None or ids is None:
        return f"{first} to {last}"
    return str(tokenizer.decode(ids[first : last + 1].tolist())).strip()


def _most_probable(probabilities: Tensor, label: Callable[[int], str]) -> tuple[Prediction, ...]:
    best = probabilities.topk(min(MOST, len(probabilities)))
    return tuple(
        Prediction(label(index), probability, index)
        for probability, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )


def spelled(tokenizer: Any, token: int, specials: frozenset[int] | None = None) -> str:
    """Return the display string of a token id; without a tokenizer, the id itself.

    `specials` are the tokenizer's special ids, which take longer to list than a token to spell.
    """
    if tokenizer is None:
        return str(token)
    from attnwidgets.tracing.recording.inputs import display_tokens

    return display_tokens(tokenizer, [token], specials)[0] or visible(str(token))


@dataclass(frozen=True)
class Outcomes:
    """The largest logits at a position.

    Attributes:
        title: "class", "next token", "token 7", "[MASK] at 6".
        ids: Their classes or tokens, the largest first.
        labels: Their names.
        logits: [outcome].
        rest: logsumexp(logit / T) of all others, for every T of `TEMPERATURES`; -inf if there are none.
        count: Number of all outcomes.
        multiple: Whether several classes may be true at once: probabilities are sigmoids.
        actual: The token in the text: its id, name, logit, and the number of more probable tokens.
    """

    title: str
    ids: tuple[int, ...]
    labels: tuple[str, ...]
    logits: NDArray[np.float32]
    rest: NDArray[np.float64]
    count: int
    multiple: bool = False
    actual: tuple[int, str, float, int] | None = None


def outcomes(trace: Trace, position: int | None = None, *, most: int = MOST_LOGITS) -> Outcomes:
    """Return a model's possible outputs at a position, without running it.

    Args:
        trace: Trace returned by `aw.trace`, of a model that predicts tokens or classes.
        position: For a model that generates, the token that is predicted from those before it: 1 up to the
            number of tokens, which is the next token. None: the position of `trace.predictions()`.
        most: The number of outcomes to return.

    Raises:
        ValueError: If the model predicts nothing there; the message says why.
    """
    logits, title = trace.logits, trace.predictions_title
    if logits is None or not trace.answer.is_distribution:
        raise ValueError("the model of this trace predicts neither tokens nor classes here")
    reader = text_tokenizer(trace.tokenizer)
    if position is None or logits.dim() == 1:
        chosen = predicted_logits(trace, logits)
        return _largest(chosen, title, most, lambda i: label_of(trace, i), multiple=trace.answer.several)
    ids = read_ids(trace)
    if not _generates(trace):
        raise ValueError("this model fills in masks: it does not predict tokens that it sees")
    if len(logits) != len(ids):
        raise ValueError("only the last logits were kept; aw.trace(..., memory='4GB') keeps all")
    if not 1 <= position <= len(ids):
        raise ValueError(f"position {position} is out of range: 1 to {len(ids)} are predicted")
    actual = ids[position] if position < len(ids) else None
    name = title if actual is None else f"token {position}"
    return _largest(logits[position - 1], name, most, lambda i: spelled(reader, i), actual=actual)


def predicted_values(trace: Trace, logits: Tensor) -> Tensor:
    """Return the probabilities [outcome] of a trace's prediction by given logits, or its numbers, in float64.

    Args:
        trace: A trace that predicts tokens, classes or numbers.
        logits: Its logits, or others for the same input.
    """
    return trace.answer.values(predicted_logits(trace, logits).double())


def predicted_logits(trace: Trace, logits: Tensor) -> Tensor:
    """Return the logits [outcome] of a trace's prediction, out of its logits or others for the same input."""
    return logits if trace.answer.row is None else logits[trace.answer.row]


def label_of(trace: Trace, outcome: int) -> str:
    """Return the name of a class or token that a trace's model predicts."""
    names = trace.answer.names
    return names[outcome] if outcome < len(names) else spelled(text_tokenizer(trace.tokenizer), outcome)


def _generates(trace: Trace) -> bool:
    from attnwidgets.tracing.anatomy.forward import can_generate
    from attnwidgets.tracing.recording.borrow import unwrap

    return can_generate(unwrap(trace.model))


def read_ids(trace: Trace) -> list[int]:
    """Return the ids of the text whose tokens are predicted: the decoder's in an encoder-decoder."""
    ids = trace.inputs.get("decoder_input_ids")
    ids = trace.input_ids if ids is None else ids
    return [] if ids is None else [int(i) for i in ids.reshape(-1)]


def _largest(
    logits: Tensor, title: str, most: int, name: Any, *, multiple: bool = False, actual: int | None = None
) -> Outcomes:
    values = logits.double()
    best = values.topk(min(most, len(values)))
    others = values.clone()
    others[best.indices] = -np.inf
    others = others[others > -np.inf]
    rest = [float((others / t).logsumexp(0)) if len(others) else -np.inf for t in TEMPERATURES]
    ids = tuple(best.indices.tolist())
    token = None
    if actual is not None:
        token = (actual, name(actual), float(values[actual]), int((values > values[actual]).sum()))
    labels, logits_of_best = tuple(map(name, ids)), best.values.numpy().astype(np.float32)
    return Outcomes(title, ids, labels, logits_of_best, np.array(rest), len(values), multiple, token)
