"""A model's predictions for a traced input: next token, masked token, class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._tensors import widened
from attnwidgets.tracing.anatomy.answer import ANSWER_SPAN, read_fields
from attnwidgets.tracing.prediction import Prediction
from attnwidgets.tracing.text.display import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnwidgets.tracing.anatomy.answer import Answer

MOST = 100
"""Number of predictions that a trace keeps."""
LONGEST = 15
"""Tokens that an extractive answer has at most."""


def logits_in(outputs: Any) -> Tensor | None:
    """Return the logits of a batch, [batch, class] or [batch, token, vocabulary]; None without a head.

    Of a model that compares pictures with captions (CLIP, SigLIP): how well each picture of the batch fits
    its own caption, [batch, 1]. Of extractive question answering: those of start and end [batch, token, 2].
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
