"""aw.trace: run a model once on an input and record its attention."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnwidgets._errors import refuse_unknown
from attnwidgets._progress import progress
from attnwidgets.tracing.free_memory import forced
from attnwidgets.tracing.pass_memory import room_to_record
from attnwidgets.tracing.recording.batch import collate, require_known, traces_of
from attnwidgets.tracing.recording.borrow import borrowed, own_tokenizer, quietly, unwrap
from attnwidgets.tracing.recording.generation import greedy
from attnwidgets.tracing.recording.inputs import (
    MEDIA,
    Sample,
    encode,
    id_rows,
    ids_sample,
    limit_of,
    template,
    text_of_ids,
    text_tokenizer,
    words_text,
)
from attnwidgets.tracing.recording.media import audio_sample, image_sample
from attnwidgets.tracing.recording.recorder import can_generate, forward_parameters, record
from attnwidgets.tracing.text.display import well_formed
from attnwidgets.tracing.text.words import STANDARD, require_rule
from attnwidgets.tracing.trace import Trace, byte_budget

BATCH = 8
"""Texts of a list that run together."""


def trace(
    model: Any,  # a model, a hub id or a folder
    tokenizer: Any = None,
    text: Any = None,
    *,
    text_pair: str | Sequence[str] | None = None,
    words: str | Sequence[str] | tuple[Sequence[str], Sequence[str]] | None = None,
    messages: Sequence[Mapping[str, Any]] | None = None,
    input_ids: Any = None,
    attention_mask: Any = None,
    target_text: str | None = None,
    image: Any = None,
    audio: Any = None,
    sampling_rate: int | None = None,
    max_new_tokens: int = 0,
    truncation: bool = False,
    memory: str | int = "1GB",
    force: bool = False,
    **unknown: object,
) -> Any:
    """Run a model once and record its attention; the model and tokenizer come back exactly as they were.

    Args:
        model: A transformers model (compiled, PEFT-wrapped and dispatched ones too), a hub id or a folder.
        tokenizer: Its tokenizer or processor, a hub id or a folder. None loads it beside a model given by
            name, and is enough for raw ids.
        text: What to read; a list of texts gives a list of traces, run in batches. Token ids are taken as
            well.
        text_pair: The second text of a pair.
        words: The text split into words, instead of `text` or (for scripts without spaces) beside it; a tuple
            of two lists for a pair. Or the rule that words are found by: "standard" (by default; "don't" and
            "state-of-the-art" are words, "U.S." is "U.S" and "."), "abbreviations" ("U.S." and "e.g." are
            words too), "punctuation" (every mark stands alone) or "whitespace" (only blanks divide).
        messages: Chat messages, written out by the tokenizer's template.
        input_ids: Token ids [token] or [batch, token]; several rows give a list of traces.
        attention_mask: 0 where `input_ids` hold padding, on either side.
        target_text: What the decoder of an encoder-decoder model reads; without it and without
            `max_new_tokens` it reads its start token only.
        image: A picture (with a processor) or a float tensor [channel, height, width].
        audio: One channel of samples [time].
        sampling_rate: Of `audio`, in hertz.
        max_new_tokens: Generate so many tokens first, greedily; prompt and continuation are then read in one
            recorded pass, and `trace.boundary` is where the continuation begins.
        truncation: Cut a text that is too long (`trace.warning` says so) instead of refusing it.
        memory: Bytes of attention weights a trace may keep; what does not fit is computed again when asked
            for.
        force: Run a text that takes more memory than is free, too.
        unknown: Refused, with the nearest keyword.

    Returns:
        A Trace, or a list of them for a list of texts or several rows of ids.

    Raises:
        ValueError: If the text is empty, too long (the message names both lengths), or does not fit the
            model or the free memory (names what it takes and what is free).
        UnsupportedModelError: If the model's attention cannot be recorded (a ValueError; says what still
            works).
        TypeError: For an unknown keyword or a model that is none.
    """
    refuse_unknown("trace", unknown, [n for n in inspect.signature(trace).parameters if n != "unknown"])
    _require_text(text)
    _require_count(max_new_tokens)
    rule = STANDARD
    if isinstance(words, str):
        require_rule(words)
        rule, words = words, None
    budget = byte_budget(memory)
    loaded, reader = load_named(model, tokenizer, needs_reader=input_ids is None and not _is_ids(text))
    inner = unwrap(loaded)
    if input_ids is None and _is_ids(text):
        # A tokenizer's output holds the mask of its padding as well.
        encoded = text if isinstance(text, Mapping) else {"input_ids": text}
        input_ids, text = encoded["input_ids"], None
        attention_mask = encoded.get("attention_mask") if attention_mask is None else attention_mask
    if text_pair is not None and text is None and words is None:
        raise ValueError("text_pair is the second text of a pair: give the first as text or words")
    samples, single = _samples(
        inner,
        reader,
        text=text,
        text_pair=text_pair,
        words=words,
        messages=messages,
        ids=input_ids,
        mask=attention_mask,
        media=(image, audio, sampling_rate),
        truncation=truncation,
        room=max_new_tokens,
    )
    samples = [replace(sample, rule=rule) for sample in samples]
    with forced(force):
        traces = _run(inner, loaded, reader, samples, target_text, max_new_tokens, budget)
    return traces[0] if single else traces


def _require_text(text: Any) -> None:
    """Raise a TypeError for what is neither text nor ids."""
    if text is not None and not isinstance(text, (str, Sequence)) and not _is_ids(text):
        raise TypeError(
            f"text must be a string, a list of them, or token ids, not a {type(text).__name__}; {MEDIA}"
        )


def _require_count(new: Any) -> None:
    """Raise a ValueError unless the number of new tokens is a whole number, 0 or more."""
    if not isinstance(new, Integral) or new < 0:
        raise ValueError(f"max_new_tokens must be a whole number, 0 or more, not {new!r}")


def _is_ids(text: Any) -> bool:
    """Return whether what stands in the place of a text is ids: a tensor, an array, or lists of numbers."""
    if isinstance(text, Mapping):
        return "input_ids" in text
    if text is None or isinstance(text, str):
        return False
    if isinstance(text, torch.Tensor) or type(text).__module__ == "numpy":
        return True
    first = text[0] if isinstance(text, Sequence) and len(text) else None
    return isinstance(first, int) or (
        isinstance(first, Sequence) and not isinstance(first, str) and _is_ids(first)
    )


def load_named(model: Any, tokenizer: Any, *, needs_reader: bool) -> tuple[Any, Any]:
    """Load what was given by name: the class the checkpoint was saved with, and its tokenizer."""
    if isinstance(model, (str, Path)):
        if tokenizer is None and needs_reader:
            tokenizer = model
        model = load_model(str(model))
    if isinstance(tokenizer, (str, Path)):
        tokenizer = load_tokenizer(str(tokenizer))
    return model, tokenizer


def load_model(name: str) -> Any:
    """Load a model by hub id or folder, of the class that its checkpoint was saved with.

    Raises:
        ValueError: Where there is none.
    """
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(name)
        saved = (getattr(config, "architectures", None) or [""])[0]
        return getattr(transformers, saved, transformers.AutoModel).from_pretrained(name)
    except OSError as error:
        raise ValueError(
            f"model {name!r} is no folder with a saved model, and could not be had from the hub. "
            "Pass a folder, a hub id that is reachable or cached, or a model object "
            "(aw.demo_model() gives one without a hub)."
        ) from error


def load_tokenizer(name: str) -> Any:
    """Load a tokenizer by hub id or folder.

    Raises:
        ValueError: Where there is none.
    """
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(f"tokenizer {name!r} could not be loaded: {error}") from error


def _samples(
    model: Any,
    tokenizer: Any,
    *,
    text: Any,
    text_pair: Any,
    words: Any,
    messages: Any,
    ids: Any,
    mask: Any,
    media: tuple[Any, Any, int | None],
    truncation: bool,
    room: int,
) -> tuple[list[Sample], bool]:
    """Return the samples of whatever was given, and whether one trace (no list) is wanted."""
    image, audio, rate = media
    kinds = {"text or words": (text, words), "messages": (messages,), "input_ids": (ids,), "audio": (audio,)}
    given = [kind for kind, values in kinds.items() if any(value is not None for value in values)]
    if len(given) > 1:
        raise ValueError(f"give one input, not {' and '.join(given)}")
    if image is not None:
        if text is not None and not isinstance(text, str):
            raise ValueError("text beside an image must be one string")
        return [image_sample(tokenizer, image, None if text is None else well_formed(text))], True
    if audio is not None:
        return [audio_sample(tokenizer, audio, rate)], True
    if not given:
        raise ValueError("nothing to read: give text, words, messages, input_ids, image or audio")
    reader = text_tokenizer(tokenizer)
    limit = _limit(model, reader, room)
    if ids is not None:
        rows, single = id_rows(ids, mask)
        require_known(model, reader, "input_ids", rows)
        samples = [ids_sample(reader, row, limit=limit, truncation=truncation, extra=room) for row in rows]
        return samples, single
    if reader is None:
        raise ValueError(
            "text needs a tokenizer: pass one, or pass token ids (aw.trace(model, None, input_ids))"
        )
    options: dict[str, Any] = {"limit": limit, "truncation": truncation, "extra": room}
    if messages is not None:
        return [encode(reader, template(reader, messages), **options, specials=False)], True
    if words is not None or isinstance(text, str):
        return [_one(reader, text, text_pair, words, options)], True
    return _many(reader, text, text_pair, options), False


def _limit(model: Any, reader: Any, room: int) -> int | None:
    """Return how many tokens a prompt may have, leaving room for the continuation in a decoder."""
    limit = limit_of(model, reader)
    if limit is None or not room or "decoder_input_ids" in forward_parameters(model):
        return limit
    if room >= limit:
        raise ValueError(f"max_new_tokens is {room}, and the model takes {limit} tokens in all")
    return limit - room


def _many(reader: Any, texts: Any, pairs: Any, options: Mapping[str, Any]) -> list[Sample]:
    """Return a list of texts, perhaps with a second text each."""
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(t, str) for t in texts):
        raise ValueError(f"text must be a string, a list of strings or token ids, not {texts!r:.80}")
    seconds = [None] * len(texts) if pairs is None else pairs
    if isinstance(seconds, str) or len(seconds) != len(texts):
        raise ValueError(f"text_pair must be a list of {len(texts)} texts, one for each text")
    return [_one(reader, t, second, None, options) for t, second in zip(texts, seconds, strict=True)]


def _one(reader: Any, text: str | None, pair: str | None, words: Any, options: Mapping[str, Any]) -> Sample:
    """Return one text or pair, perhaps split into words."""
    first = second = None
    if words is not None:
        two = isinstance(words, tuple) and not any(isinstance(w, str) for w in words)
        first, second = words if two else (words, None)
        text = words_text(first, text, "words")
        if second is not None:
            pair = words_text(second, pair, "words[1]")
    return encode(reader, text or "", text_pair=pair, words=first, pair_words=second, **options)


def _run(
    model: Any,
    given: Any,
    tokenizer: Any,
    samples: list[Sample],
    target_text: str | None,
    max_new_tokens: int,
    budget: int,
) -> list[Trace]:
    """Generate where asked to, then record batch by batch."""
    _require_weights(model)
    reader = own_tokenizer(text_tokenizer(tokenizer))
    size = BATCH if all(not sample.others for sample in samples) else 1
    starts = range(0, len(samples), size)
    traces: list[Trace] = []
    with borrowed(model) as twin:
        for start in progress(starts, desc="tracing"):
            part = [
                _with_decoder(twin, reader, sample, target_text, max_new_tokens)
                for sample in samples[start : start + size]
            ]
            inputs = collate(twin, reader, part)
            with room_to_record(twin, inputs):
                done = record(twin, inputs)
            traces += traces_of(twin, given, tokenizer, part, inputs, done, budget)
    return traces


def _require_weights(model: nn.Module) -> None:
    """Raise a ValueError where weights were never loaded; offloaded ones come when they are needed."""
    modules = list(model.modules())
    if any(hasattr(module, "_hf_hook") for module in modules):
        return
    empty = next((name for name, weights in model.named_parameters() if weights.is_meta), None)
    if empty is not None:
        raise ValueError(
            f"{type(model).__name__} has no weights: {empty} is on the meta device, which keeps shapes only. "
            "Load the model with from_pretrained, outside of torch.device('meta')"
        )


def _with_decoder(model: Any, reader: Any, sample: Sample, target: str | None, new: int) -> Sample:
    """Return a sample with its continuation, and with what the decoder reads where there is one."""
    seq2seq = "decoder_input_ids" in forward_parameters(model)
    if target is not None and not seq2seq:
        raise ValueError("target_text is for encoder-decoder models; this model has no decoder of its own")
    if target is not None and not (isinstance(target, str) and reader is not None):
        raise TypeError(
            f"target_text must be a string, which needs the model's tokenizer, not {target!r:.80}"
        )
    if seq2seq:
        config = model.config
        start = getattr(config, "decoder_start_token_id", None)
        start = getattr(getattr(model, "generation_config", None), "decoder_start_token_id", start) or start
        others = (getattr(config, f"{name}_token_id", None) for name in ("bos", "pad"))
        start = next((i for i in (start, *others) if isinstance(i, int)), 0)
        ids = [start]
        boundary = None
        if target is not None:
            ids += [
                i
                for i in reader(text_target=well_formed(target))["input_ids"]
                if i != getattr(reader, "eos_token_id", None)
            ]
        elif new:
            ids, boundary = _generate(model, reader, sample, new)
        return replace(sample, decoder_ids=ids, decoder_text=text_of_ids(reader, ids, boundary))
    if not new:
        return sample
    prompt = list(sample.ids or ())
    ids, _ = _generate(model, reader, sample, new)
    if not prompt or len(ids) <= len(prompt):
        return sample
    shown = text_of_ids(reader, ids, len(prompt))
    types = None if sample.types is None else sample.types + [sample.types[-1]] * (len(ids) - len(prompt))
    return replace(sample, ids=ids, text=shown, types=types)


def _generate(model: Any, reader: Any, sample: Sample, new: int) -> tuple[list[int], int]:
    """Return the ids of a greedy generation: prompt and continuation, or the decoder's side and its begin."""
    if not can_generate(model):
        raise ValueError(
            f"max_new_tokens needs a model that generates, and {type(model).__name__} does not; "
            "load it with a language-model head (AutoModelForCausalLM or AutoModelForSeq2SeqLM)"
        )
    prompt = replace(sample, decoder_ids=None)
    inputs = collate(model, reader, [prompt])
    if "input_ids" in inputs:
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    options = greedy(model, new)
    options.return_dict_in_generate = True
    # There are as many as tokens were written: what a decoder begins with only its model knows.
    options.output_logits = "decoder_input_ids" in forward_parameters(model)
    with quietly():
        produced = model.generate(**inputs, generation_config=options)
    ids = [int(i) for i in produced.sequences[0]]
    return ids, len(ids) - len(produced.logits or ())
