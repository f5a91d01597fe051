"""What writing every sentence anew, by the model itself, does to the predictions at all later tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets.circuits.sentences.suppression import kl_rows
from attnwidgets.tracing.continuations import continuations
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.inputs import limit_of, text_tokenizer
from attnwidgets.tracing.recording.recorder import can_generate, recording
from attnwidgets.tracing.recording.run import trace as record
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from attnwidgets.circuits.sentences.sentence_units import Sentences
    from attnwidgets.tracing.trace import Trace

TEMPERATURE, TOP_P = 0.6, 0.95  # of Thought Anchors
_END = re.compile(r"[.!?…。！？]['\"”’)\]]*\s*$|\n\s*$")
_LONGER = 8  # tokens beyond twice those of the sentence


def spans_to_write(sentences: Sentences) -> list[tuple[int, int, int]]:
    """Return what can be written anew: number of the sentence, its first token, the token after it.

    The first sentence has nothing before it to go on from, and the last nothing after it to be changed.
    """
    spans = [(number, min(span), max(span) + 1) for number, span in enumerate(sentences.unit.spans) if span]
    return [(number, start, stop) for number, start, stop in spans if start and stop < len(sentences.axis)]


def said_cost(sentences: Sentences, samples: int) -> str:
    """Return what it costs, in words."""
    spans = spans_to_write(sentences)
    tokens = samples * sum(_most(stop - start) for _, start, stop in spans)
    return (
        f"up to {tokens:,} new tokens in {len(spans):,} generations of {samples}, and "
        f"{len(spans) * (samples + 1):,} forward passes of up to {len(sentences.axis):,} tokens"
    )


def require_writer(trace: Trace, stack: str) -> None:
    """Refuse models that do not write texts.

    Raises:
        UnsupportedModelError: If the model does not, or reads more than token ids.
    """
    model = unwrap(trace.model)
    plain = set(trace.inputs) <= {"input_ids", "attention_mask"}
    if stack != "self" or not trace.is_causal(stack) or not can_generate(model) or not plain:
        raise UnsupportedModelError(
            f'sentence_attribution: "resample" lets a decoder write sentences anew, and '
            f'{type(model).__name__} does not continue texts here; method="suppress" hides them instead.'
        )


def resampled(trace: Trace, sentences: Sentences, samples: int, seed: int) -> np.ndarray:
    """Return KL(as it was || with another sentence) in nats at every token, for every sentence.

    Args:
        trace: A trace with its model and logits.
        sentences: Its sentences.
        samples: Number of sentences that are written in the place of each.
        seed: Seed of the draws.

    Returns:
        [sentence, token]: means over samples; 0 where nothing can change.
    """
    base, ids = trace.logits, trace.inputs["input_ids"][0].tolist()
    if base is None:  # checked by the caller
        raise AssertionError
    found = np.zeros((len(sentences), len(ids)))
    reader = text_tokenizer(trace.tokenizer)
    limit = limit_of(unwrap(trace.model), reader)
    for number, start, stop in progress(spans_to_write(sentences), "writing sentences anew"):
        size = stop - start
        most = _most(size) if limit is None else min(_most(size), size + limit - len(ids))
        before = record(trace.model, trace.tokenizer, input_ids=ids[:start])
        written = continuations(
            before,
            "sample",
            samples,
            max_new_tokens=most,
            temperature=TEMPERATURE,
            top_p=TOP_P,
            seed=seed + number,
        )
        for one in written:
            new = _first_sentence(list(one.ids[: len(one.ids) - one.ended]), size, reader)
            logits = _logits(trace, [*ids[:start], *new, *ids[stop:]])
            found[number, stop:] += kl_rows(base[stop:], logits[start + len(new) :], 1.0) / samples
    return found


def _most(size: int) -> int:
    return 2 * size + _LONGER


def _first_sentence(ids: list[int], size: int, reader: Any) -> list[int]:
    """Return the tokens up to the end of a sentence; all tokens if none ends."""
    if reader is not None:
        for count in range(1, len(ids) + 1):
            if _END.search(reader.decode(ids[:count])):
                return ids[:count]
    return ids[:size]


def _logits(trace: Trace, ids: list[int]) -> torch.Tensor:
    """Return the logits of a text of token ids [token, vocabulary]."""
    row = trace.inputs["input_ids"].new_tensor([ids])
    inputs = {"input_ids": row, "attention_mask": torch.ones_like(row)}
    inputs = {name: value for name, value in inputs.items() if name in trace.inputs}
    with borrowed(unwrap(trace.model)) as twin, no_grad(), recording(twin):
        outputs = trace.call(twin, inputs, {"return_dict": True}, {})
    logits: torch.Tensor = outputs.logits[0].detach().cpu()
    return logits
