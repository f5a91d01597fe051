"""The effect of every sentence on the predictions at all later tokens when others are written instead."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.circuits.sentences.sampled_continuations import Sampling, sampled
from attnwidgets.circuits.sentences.suppression import kl_rows, logits_of
from attnwidgets.tracing.anatomy.forward import can_generate
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.inputs import limit_of, text_tokenizer
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from attnwidgets.circuits.sentences.sentence_units import Sentences
    from attnwidgets.tracing.trace import Trace

TEMPERATURE, TOP_P = 0.6, 0.95  # of Thought Anchors
_END = re.compile(r"[.!?…。！？]['\"”’)\]]*\s*$|\n\s*$")
_LONGER = 8  # tokens beyond twice those of the sentence


def spans_to_write(sentences: Sentences) -> list[tuple[int, int, int]]:
    """Return the sentences that can be written anew: number, first token, token after the last.

    The first sentence has nothing before it to go on from, and the last nothing after it to be changed.
    """
    spans = [(number, min(span), max(span) + 1) for number, span in enumerate(sentences.unit.spans) if span]
    return [(number, start, stop) for number, start, stop in spans if start and stop < len(sentences.axis)]


def said_cost(sentences: Sentences, samples: int) -> str:
    """Return the cost in words."""
    spans = spans_to_write(sentences)
    tokens = samples * sum(_most(stop - start) for _, start, stop in spans)
    return (
        f"up to {tokens:,} new tokens in {len(spans):,} generations of {samples}, and "
        f"{len(spans) * (samples + 1):,} forward passes of up to {len(sentences.axis):,} tokens"
    )


def require_writer(trace: Trace, stack: str, purpose: str, instead: str) -> None:
    """Refuse models that do not write texts.

    Args:
        trace: The trace.
        stack: Its stack.
        purpose: The function, and what it lets a decoder do, for the message.
        instead: What to do instead; may be empty.

    Raises:
        UnsupportedModelError: If the model does not, or reads more than token ids.
    """
    model = unwrap(trace.model)
    others = sorted(set(trace.inputs) - {"input_ids", "attention_mask"})
    if stack != "self" or not trace.is_causal(stack) or not can_generate(model) or others:
        why = f" (this trace has {', '.join(others)})" if others else ""
        raise UnsupportedModelError(
            f"{purpose}, and {type(model).__name__} does not continue texts here{why}{instead}."
        )


def resampled(trace: Trace, sentences: Sentences, samples: int, seed: int) -> np.ndarray:
    """Return KL(as it was || with another sentence) in nats at every token, for every sentence.

    Args:
        trace: A trace with its model and logits.
        sentences: Its sentences.
        samples: Number of sentences that are written instead of each.
        seed: Seed of the draws.

    Returns:
        [sentence, token]: means over samples; 0 where nothing can change.
    """
    base, ids = trace.logits, trace.inputs["input_ids"][0].tolist()
    if base is None:  # checked by the caller
        raise AssertionError
    result = np.zeros((len(sentences), len(ids)))
    reader = text_tokenizer(trace.tokenizer)
    limit = limit_of(unwrap(trace.model), reader)
    room = math.inf if limit is None else limit - len(ids)
    spans = spans_to_write(sentences)
    cuts = [(start, int(min(_most(stop - start), stop - start + room))) for _, start, stop in spans]
    drawn = sampled(trace, cuts, Sampling(samples, TEMPERATURE, TOP_P, seed))
    for (number, start, stop), written in zip(progress(spans, "reading on"), drawn, strict=True):
        for item in written.ids:
            new = _first_sentence(list(item), stop - start, reader)
            logits = logits_of(trace, [*ids[:start], *new, *ids[stop:]])
            result[number, stop:] += kl_rows(base[stop:], logits[start + len(new) :], 1.0) / samples
    return result


def _most(size: int) -> int:
    return 2 * size + _LONGER


def _first_sentence(ids: list[int], size: int, reader: Any) -> list[int]:
    """Return the tokens up to the end of a sentence; all tokens if none ends."""
    if reader is not None:
        for count in range(1, len(ids) + 1):
            if _END.search(reader.decode(ids[:count])):
                return ids[:count]
    return ids[:size]
