"""A model's predictions for a traced input: next token, masked token, class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.precision import widened
from attnwidgets.tracing.prediction import Prediction
from attnwidgets.tracing.text.display import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

MOST = 100
"""Number of predictions that a trace keeps."""


def logits_in(outputs: Any) -> Tensor | None:
    """Return the logits of a batch, [batch, class] or [batch, token, vocabulary]; None without a head.

    Of a model that compares pictures with captions (CLIP, SigLIP): how well each picture of the batch fits
    its own caption, [batch, 1].
    """
    logits: Tensor | None = getattr(outputs, "logits", None)
    pairs: Tensor | None = getattr(outputs, "logits_per_image", None)
    return logits if pairs is None else pairs.diagonal().unsqueeze(-1)


def predict(
    logits: Tensor | None,
    config: Any,
    tokenizer: Any,
    ids: Tensor | None,
    *,
    generates: bool,
) -> tuple[str, tuple[Prediction, ...]]:
    """Return a title and the most probable outputs, most probable first.

    Args:
        logits: [token, vocabulary], [class], or None.
        config: The model's config (vocab_size, id2label, problem_type).
        tokenizer: Decodes token ids; None shows the ids.
        ids: [token] input ids, for finding a mask.
        generates: Whether the last position predicts the next token.
    """
    if logits is None or not logits.numel():
        return "", ()
    if logits.dim() == 1:
        multiple = getattr(config, "problem_type", None) == "multi_label_classification"
        if len(logits) == 1:
            return "", ()
        values = widened(logits).sigmoid() if multiple else widened(logits).softmax(-1)
        names = getattr(config, "id2label", None) or {}
        return "class", _most_probable(values, lambda index: str(names.get(index, index)))
    if generates:
        return "next token", _tokens(logits[-1], tokenizer)
    mask = getattr(tokenizer, "mask_token_id", None)
    if ids is None or not isinstance(mask, int) or len(ids) != len(logits) or logits.shape[-1] <= mask:
        return "", ()
    masked = (ids == mask).nonzero().flatten().tolist()
    title = f"{tokenizer.mask_token} at {masked[0]}" if masked else ""
    return title, _tokens(logits[masked[0]], tokenizer) if masked else ()


def _tokens(logits: Tensor, tokenizer: Any) -> tuple[Prediction, ...]:
    return _most_probable(widened(logits).softmax(-1), lambda index: spelled(tokenizer, index))


def _most_probable(probabilities: Tensor, label: Callable[[int], str]) -> tuple[Prediction, ...]:
    best = probabilities.topk(min(MOST, len(probabilities)))
    return tuple(
        Prediction(label(index), probability, index)
        for probability, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )


def spelled(tokenizer: Any, token: int) -> str:
    """Return the display string of a token id; without a tokenizer, the id itself."""
    if tokenizer is None:
        return str(token)
    from attnwidgets.tracing.recording.inputs import display_tokens

    return display_tokens(tokenizer, [token])[0] or visible(str(token))
