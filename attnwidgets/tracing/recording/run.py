"""aw.trace: run a model once on an input and record its attention.

`trace` sorts its arguments into an `Input`, from which `_samples` makes one `Sample` or several. `_run` reads
these in batches with a twin of the model, and divides every recorded pass into traces. If attention cannot be
recorded, it traces the samples without attention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, overload

import torch
from torch import nn

from attnwidgets._errors import suggests_keywords
from attnwidgets._notebook import prepare_views
from attnwidgets._progress import progress
from attnwidgets._selecting import listed
from attnwidgets.tracing.chat.passages import given_passages, headed_passages
from attnwidgets.tracing.chat.rendering import rendered
from attnwidgets.tracing.failed_pass import told_of_pass
from attnwidgets.tracing.free_memory import byte_budget, forced
from attnwidgets.tracing.model_state import modules_of
from attnwidgets.tracing.pass_memory import room_to_record
from attnwidgets.tracing.predictions import predict
from attnwidgets.tracing.recording.asked import TEXT, Asked
from attnwidgets.tracing.recording.batch import collate, require_known, traces_of
from attnwidgets.tracing.recording.borrow import borrowed, lacks_padding, unwrap
from attnwidgets.tracing.recording.continuation import with_continuation
from attnwidgets.tracing.recording.inputs import (
    MEDIA,
    Sample,
    encode,
    id_rows,
    ids_sample,
    limit_of,
    text_tokenizer,
    words_text,
)
from attnwidgets.tracing.recording.loading import load_named, own_tokenizer
from attnwidgets.tracing.recording.media import audio_sample, image_sample
from attnwidgets.tracing.recording.module_calls import keep_pass
from attnwidgets.tracing.recording.recorder import forward_parameters, record
from attnwidgets.tracing.recording.without_attention import trace_without_attention
from attnwidgets.tracing.recording.wrappers import PipelineSettings, opened, settings_of, sorted_arguments
from attnwidgets.tracing.text.display import well_formed
from attnwidgets.tracing.text.given_texts import as_sequence
from attnwidgets.tracing.text.words import STANDARD, require_rule
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from attnwidgets.tracing.text.messages import Passage
    from attnwidgets.tracing.trace import Trace

Texts: TypeAlias = "list[str] | tuple[str, ...] | list[tuple[str, str]]"

_PAIRS = (("text", "text_pair"), ("question", "context"))
BATCH = 8
"""Number of texts of a list that run together, whatever their length."""
MOST = 64
"""Number of short texts that run together."""
TOGETHER = 1024
"""Tokens of short texts that run together, with padding."""


class PassOptions(TypedDict, total=False):
    """Options of `trace` for every input."""

    target_text: str | None
    max_new_tokens: int
    truncation: bool
    memory: str | int
    force: bool


class ListOptions(PassOptions, total=False):
    """Options for a list of texts."""

    text_pair: Sequence[str] | None
    words: str | None


class RowOptions(PassOptions, total=False):
    """Options for token ids."""

    text_pair: str | Sequence[str] | None
    words: str | None


class TextOptions(PassOptions, total=False):
    """Options for a single input."""

    text_pair: str | None
    words: str | Sequence[str] | tuple[Sequence[str], Sequence[str]] | None
    messages: Sequence[Mapping[str, Any]] | None
    tools: Sequence[Any] | None
    documents: Sequence[Mapping[str, Any]] | None
    chat_template_kwargs: Mapping[str, Any] | None
    passages: Sequence[tuple[str, str]] | None
    image: Any
    audio: Any
    sampling_rate: int | None


@dataclass(frozen=True)
class Input:
    """The input of `trace`, its arguments sorted; see `trace`.

    Attributes:
        text: A text, or several.
        text_pair: The second text of each.
        words: A text as words, or a pair of them.
        messages: Chat messages.
        template: Arguments of their template.
        passages: Passages of the text or the messages.
        ids: Token ids, in one row or several.
        mask: Their padding mask.
        image: A picture.
        audio: A sound.
        rate: Its sampling rate.
    """

    text: Any
    text_pair: Any
    words: Any
    messages: Any
    template: Mapping[str, Any]
    passages: Any
    ids: Any
    mask: Any
    image: Any
    audio: Any
    rate: int | None

    @property
    def kind(self) -> str:
        """The kind of input, in words; `TEXT` for a text or several."""
        kinds = {
            "a picture": self.image,
            "sound": self.audio,
            "token ids": self.ids,
            "chat messages": self.messages,
            "a pair of texts": self.text_pair,
            "a list of words": self.words,
        }
        return next((kind for kind, value in kinds.items() if value is not None), TEXT)

    def require_single(self) -> None:
        """Raise a ValueError if several inputs were given, or none."""
        kinds: dict[str, tuple[Any, ...]] = {"text or words": (self.text, self.words)}
        kinds = kinds if self.image is None else {"image": (self.image,), "words": (self.words,)}
        kinds |= {"messages": (self.messages,), "input_ids": (self.ids,), "audio": (self.audio,)}
        inputs = [kind for kind, values in kinds.items() if any(value is not None for value in values)]
        if len(inputs) > 1:
            raise ValueError(f"give one input, not {' and '.join(inputs)}")
        if not inputs:
            raise ValueError("nothing to read: give text, words, messages, input_ids, image or audio")

    def require_chat(self) -> None:
        """Raise a ValueError for arguments of a template without messages, and passages of several texts."""
        if self.messages is not None:
            return
        unused = [name for name, value in self.template.items() if value is not None]
        if unused:
            name = "chat_template_kwargs" if unused[0] == "variables" else unused[0]
            raise ValueError(f"{name}= is for the chat template of messages=: give messages, too")
        if self.passages is not None and not (isinstance(self.text, str) and self.text_pair is None):
            raise ValueError("passages= are parts of one text: give it as text=, or as messages=")


# A list of texts, as second or third argument, gives a list of traces; ids, a trace or a list.
@overload
def trace(model: Any, tokenizer: Texts, **options: Unpack[ListOptions]) -> list[Trace]: ...
@overload
def trace(model: Any, tokenizer: Any, text: Texts, **options: Unpack[ListOptions]) -> list[Trace]: ...
@overload
def trace(model: Any, *, text: Texts, **options: Unpack[ListOptions]) -> list[Trace]: ...
@overload
def trace(
    model: Any,
    tokenizer: Any = ...,
    text: str | list[int] | None = ...,
    *,
    input_ids: list[int] | None = ...,
    **options: Unpack[TextOptions],
) -> Trace: ...
@overload
def trace(
    model: Any,
    tokenizer: Any = ...,
    text: Any = ...,
    *,
    input_ids: Any = ...,
    attention_mask: Any = ...,
    **options: Unpack[RowOptions],
) -> Trace | list[Trace]: ...


@suggests_keywords
def trace(
    model: Any,  # a hub id, a folder, a model, a pipeline, ...
    tokenizer: Any = None,
    text: Any = None,
    *,
    text_pair: str | Sequence[str] | None = None,
    words: str | Sequence[str] | tuple[Sequence[str], Sequence[str]] | None = None,
    messages: Sequence[Mapping[str, Any]] | None = None,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    passages: Sequence[tuple[str, str]] | None = None,
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
) -> Trace | list[Trace]:
    """Run a model once and record its attention; the model and tokenizer are left exactly as they were.

    Args:
        model: A hub id or a folder; a transformers model (also compiled, PEFT-wrapped or dispatched) or
            pipeline; a model of nnsight or nnterp; a TransformerBridge of TransformerLens.
        tokenizer: Its tokenizer or processor, a hub id or a folder. None takes that saved with a model
            given by name, or that of a pipeline or wrapper; raw ids need none. May be left out:
            `aw.trace("gpt2", "The cat")`.
        text: The text to read; several texts (a list, a column of a table, an array, a generator), or pairs
            of them, return a list of traces, run in batches. Token ids, chat messages, and a pipeline's
            dictionary of two texts are accepted as well.
        text_pair: The second text of a pair. A model that compares choices reads a question with each:
            `aw.trace(model, tokenizer, [(question, choice), ...])` gives a trace of each, whose logit is its
            score; the softmax over all scores is the model's answer.
        words: The text split into words, instead of `text` or (for scripts without spaces) together with it;
            a tuple of two lists for a pair. Or the rule that splits texts: "standard" (by default;
            "don't" and "state-of-the-art" are words, "U.S." is "U.S" and "."), "abbreviations" ("U.S." and
            "e.g." are words too), "punctuation" (every mark is separate) or "whitespace" (only blanks
            divide).
        messages: Chat messages, formatted by the tokenizer's template, each with a "role" and a "content" or
            "tool_calls". Maps are then read by message, role and turn as well as by words
            (`trace.messages`); `trace.warning` names parts that the template dropped.
        tools: Tools for the template of `messages`: functions or their JSON schemas.
        documents: Documents for the template of `messages`: dictionaries with "title" and "text".
        chat_template_kwargs: Further variables of the template, as {"enable_thinking": False}.
        passages: Passages in `text` or `messages` as pairs (title, text), in their order: the unit passage.
            Without them, `documents` are passages, or texts after headings of the same kind ("[1]",
            "Document 1", "# Title", "Title: ...", "<doc>").
        input_ids: Token ids [token] or [batch, token]; several rows return a list of traces, one row a
            Trace.
        attention_mask: 0 where `input_ids` are padding, on either side.
        target_text: The decoder's text of an encoder-decoder model; without it and without `max_new_tokens`
            the decoder reads its start token only.
        image: A picture or its path (with a processor), or a float tensor [channel, height, width].
        audio: One channel of samples [time] or [1, time], the path of a sound file, or an entry of a data set
            ("array" and "sampling_rate", or a decoder).
        sampling_rate: The sampling rate of `audio`, in hertz; by default that of the file or entry, or of the
            processor.
        max_new_tokens: Generate this many tokens first, greedily; prompt and continuation are then read in
            one recorded pass, and `trace.boundary` is the index where the continuation begins.
        truncation: Cut a text that is too long (`trace.warning` says so) instead of raising an error.
        memory: Bytes of attention weights that a trace may keep; the rest is computed again on demand.
        force: Also run a text that needs more memory than is free.

    Returns:
        A Trace; for a list of texts, several captions of a picture or several rows of ids, a list of them.

    Raises:
        ValueError: If the text is empty, too long (the message names both lengths), or does not fit the
            model or the free memory (names the memory needed and the memory free); if the model fails at the
            input (names its shapes), or draws at random in every pass.
        UnsupportedModelError: If the model's attention cannot be recorded (a ValueError; says what still
            works). A picture is traced all the same, without attention (`trace.no_attention` says why), and
            so is a text by a model that never attends (Mamba, RWKV) or not by anything like weights (YOSO):
            gradients, removal and, for pictures, `aw.vision.grad_cam` explain them.
        TypeError: For an unknown keyword (names the nearest), arguments out of order, a `model` that holds no
            torch module, or a model of TransformerLens that computes by itself (names its cache).

    Example:
        >>> model, tokenizer = aw.demo_model("encoder")
        >>> trace = aw.trace(model, tokenizer, "The cat sat.")
        >>> trace.tokens
        ('[CLS]', 'the', 'cat', 'sat', '.', '[SEP]')
        >>> trace.attention_layer(0).shape  # head, query, key
        torch.Size([12, 6, 6])
    """
    others = (words if not isinstance(words, str) else None, messages, input_ids, image, audio)
    has_input = any(other is not None for other in others)
    tokenizer, text = sorted_arguments(model, tokenizer, text, has_input=has_input)
    text, text_pair, messages = _spelled_out(text, as_sequence(text_pair, "text_pair"), messages)
    _require_text(text)
    _require_count(max_new_tokens)
    rule = STANDARD
    if isinstance(words, str):
        require_rule(words)
        rule, words = words, None
    budget = byte_budget(memory)
    settings = settings_of(model)
    if settings.needs_pair and text_pair is None and not isinstance(text, tuple):
        raise ValueError(
            "text_pair is missing: a zero-shot pipeline asks whether a hypothesis follows from the text, as "
            'aw.trace(pipeline, text, text_pair="This example is about sports.")'
        )
    truncation = truncation or settings.truncation
    inside, own_reader = opened(model)
    loaded, reader = load_named(
        inside,
        own_reader if tokenizer is None else tokenizer,
        needs_reader=input_ids is None and not _is_ids(text),
    )
    inner = unwrap(loaded)
    if input_ids is None and _is_ids(text):
        # A tokenizer's output holds the padding mask as well.
        encoded = text if isinstance(text, Mapping) else {"input_ids": text}
        input_ids, text = encoded["input_ids"], None
        attention_mask = encoded.get("attention_mask") if attention_mask is None else attention_mask
    if text_pair is not None and text is None and words is None:
        raise ValueError("text_pair is the second text of a pair: give the first as text or words")
    template = {"tools": tools, "documents": documents, "variables": chat_template_kwargs}
    user_input = Input(
        text,
        text_pair,
        words,
        messages,
        template,
        passages,
        ids=input_ids,
        mask=attention_mask,
        image=image,
        audio=audio,
        rate=sampling_rate,
    )
    user_input.require_chat()
    most = settings.max_length if truncation else None
    samples, single = _samples(
        inner, reader, user_input, truncation=truncation, room=max_new_tokens, most=most
    )
    samples = [replace(sample, rule=rule) for sample in samples]
    with forced(force):
        traces = _run(inner, loaded, reader, samples, target_text, max_new_tokens, budget)
    options = {
        "words": rule,
        "target_text": target_text,
        "max_new_tokens": max_new_tokens,
        "truncation": truncation,
        "memory": memory,
    }
    for number, traced in enumerate(traces):
        _follow(settings, traced)
        own_text = text if single else text[number] if user_input.kind == TEXT else ""
        traced.asked = Asked(user_input.kind, own_text if user_input.kind == TEXT else "", options)
    prepare_views()
    return traces[0] if single else traces


def _follow(settings: PipelineSettings, traced: Trace) -> None:
    """Let a trace read probabilities as its pipeline does, and warn of options that it does not follow."""
    if settings.reading:
        reading: Any = settings.reading
        title = traced.answer.title or ("class" if reading != "none" else "number")
        traced.answer = replace(traced.answer, reading=reading, title=title)
        reader = text_tokenizer(traced.tokenizer)
        traced.predicted = predict(traced.answer, traced.logits, reader, traced.input_ids)
    if settings.unused:
        warning = f"options of the pipeline that the trace does not follow: {listed(settings.unused)}"
        traced.warning = "; ".join(filter(None, (traced.warning, warning)))


def _spelled_out(text: Any, text_pair: Any, messages: Any) -> tuple[Any, Any, Any]:
    """Return text, second text and messages, also if `text` holds pairs, a pipeline's input or a chat."""
    if text_pair is None and isinstance(text, (list, tuple)) and text and all(map(_is_pair, text)):
        return [first for first, _ in text], [second for _, second in text], messages
    if isinstance(text, Mapping):
        names = next((names for names in _PAIRS if set(text) == set(names)), None)
        if names is not None and text_pair is None:
            return text[names[0]], text[names[1]], messages
    is_chat = (
        isinstance(text, Sequence) and text and all(isinstance(m, Mapping) and "role" in m for m in text)
    )
    return (None, text_pair, text) if is_chat and messages is None else (text, text_pair, messages)


def _is_pair(text: Any) -> bool:
    return isinstance(text, tuple) and [type(part) for part in text] == [str, str]


def _require_text(text: Any) -> None:
    """Raise a TypeError unless the argument is text or ids."""
    if text is not None and not isinstance(text, (str, Sequence)) and not _is_ids(text):
        raise TypeError(
            f"text must be a string, a list of them, or token ids, not a {type(text).__name__}; {MEDIA}"
        )


def _require_count(new: Any) -> None:
    """Raise a ValueError unless the number of new tokens is a whole number, 0 or more."""
    if not isinstance(new, Integral) or new < 0:
        raise ValueError(f"max_new_tokens must be a whole number, 0 or more, not {new!r}")


def _is_ids(text: Any) -> bool:
    """Return whether the `text` argument holds ids: a tensor, an array, or lists of numbers."""
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


def _samples(
    model: Any, tokenizer: Any, user_input: Input, *, truncation: bool, room: int, most: int | None
) -> tuple[list[Sample], bool]:
    """Return the samples of the input, and whether to return a single trace instead of a list.

    `most` is the number of tokens to which a pipeline cuts a text; None if it does not.
    """
    user_input.require_single()
    text = user_input.text
    if user_input.image is not None:
        return _captioned(tokenizer, user_input.image, text), text is None or isinstance(text, str)
    if user_input.audio is not None:
        return [audio_sample(model, tokenizer, user_input.audio, user_input.rate)], True
    reader = text_tokenizer(tokenizer)
    limit = _limit(model, reader, room, most)
    if user_input.ids is not None:
        rows, single = id_rows(user_input.ids, user_input.mask)
        require_known(model, reader, "input_ids", rows)
        samples = [ids_sample(reader, row, limit=limit, truncation=truncation, extra=room) for row in rows]
        return samples, single
    if reader is None and hasattr(tokenizer, "preprocess"):
        raise ValueError(
            f"text needs the model's tokenizer, and {type(tokenizer).__name__} reads pictures: give "
            "aw.trace(model, processor, image=picture)"
        )
    if reader is None:
        raise ValueError(
            "text needs the model's tokenizer: aw.trace(model, tokenizer, text); only a hub id, a folder, a "
            "pipeline or a wrapper has one of its own. Token ids need none: aw.trace(model, None, input_ids)"
        )
    options: dict[str, Any] = {"limit": limit, "truncation": truncation, "extra": room}
    options["private"] = own_tokenizer(reader)
    if user_input.messages is not None:
        return [_chat(reader, user_input.messages, user_input.template, user_input.passages, options)], True
    if user_input.words is not None or isinstance(text, str):
        strings = (well_formed(text),) if text is not None and user_input.text_pair is None else ()
        options["passages"] = _passages(user_input.passages, strings)
        return [_text_sample(reader, text, user_input.text_pair, user_input.words, options)], True
    return _text_samples(reader, text, user_input.text_pair, options), False


def _chat(
    reader: Any, messages: Any, template: Mapping[str, Any], passages: Any, options: Mapping[str, Any]
) -> Sample:
    """Return the sample of a chat, with its messages, and a warning of parts that its template dropped."""
    chat = rendered(reader, messages, **template)
    if passages is not None and chat.chat is None:
        raise ValueError(f"passages= cannot be placed: {chat.notes[0]}; give the rendered text as text=")
    chat_passages = (
        () if chat.chat is None else _passages(passages, chat.strings, chat.places, chat.documents)
    )
    sample = encode(reader, chat.text, **options, specials=False, chat=chat.chat, passages=chat_passages)
    return replace(sample, warning="; ".join(filter(None, (*chat.notes, sample.warning))))


def _passages(
    user_passages: Any,
    strings: Sequence[str],
    locate: Callable[[int, int, int], tuple[tuple[int, int], ...]] = lambda _, start, end: ((start, end),),
    documents: tuple[Passage, ...] = (),
) -> tuple[Passage, ...]:
    """Return the user's passages, or else the documents, or else the passages that headings begin."""
    if user_passages is not None:
        return given_passages(user_passages, strings, locate)
    return documents or headed_passages(strings, locate)


def _captioned(processor: Any, image: Any, text: Any) -> list[Sample]:
    """Return the samples of a picture: without text, with a caption, or with each of several captions."""
    captions = [text] if text is None or isinstance(text, str) else list(text)
    if not captions or not all(isinstance(caption, str) for caption in captions if text is not None):
        raise ValueError(f"text with an image must be a string or a list of captions, not {text!r:.80}")
    return [
        image_sample(processor, image, None if caption is None else well_formed(caption))
        for caption in captions
    ]


def _limit(model: Any, reader: Any, room: int, most: int | None) -> int | None:
    """Return the largest number of tokens of a prompt; in a decoder, the continuation needs room as well."""
    limits = [limit for limit in (limit_of(model, reader), most) if limit is not None]
    limit = min(limits, default=None)
    if limit is None or not room or "decoder_input_ids" in forward_parameters(model):
        return limit
    if room >= limit:
        raise ValueError(f"max_new_tokens is {room}, but the model takes {limit} tokens in total")
    return limit - room


def _text_samples(reader: Any, texts: Any, pairs: Any, options: Mapping[str, Any]) -> list[Sample]:
    """Return the samples of a list of texts or pairs."""
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(t, str) for t in texts):
        raise ValueError(f"text must be a string, a list of strings or token ids, not {texts!r:.80}")
    seconds = [None] * len(texts) if pairs is None else pairs
    if isinstance(seconds, str) or len(seconds) != len(texts):
        raise ValueError(f"text_pair must be a list of {len(texts)} texts, one for each text")
    return [_text_sample(reader, t, second, None, options) for t, second in zip(texts, seconds, strict=True)]


def _text_sample(
    reader: Any, text: str | None, pair: str | None, words: Any, options: Mapping[str, Any]
) -> Sample:
    """Return the sample of a text or pair, which may be split into words."""
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
    given_model: Any,
    tokenizer: Any,
    samples: list[Sample],
    target_text: str | None,
    max_new_tokens: int,
    budget: int,
) -> list[Trace]:
    """Generate continuations if requested, then record batch by batch."""
    _require_weights(model)
    reader = own_tokenizer(text_tokenizer(tokenizer))
    is_one_length = len({len(sample.ids or ()) for sample in samples}) == 1
    together = all(not sample.others for sample in samples) and (is_one_length or not lacks_padding(model))
    longest = (
        max(len(sample.ids or ()) + len(sample.decoder_ids or ()) for sample in samples) + max_new_tokens
    )
    size = max(BATCH, min(MOST, TOGETHER // max(1, longest))) if together else 1
    starts = range(0, len(samples), size)
    traces: list[Trace] = []
    with borrowed(model) as twin:
        for start in progress(starts, desc="tracing"):
            part = [
                with_continuation(twin, reader, sample, target_text, max_new_tokens)
                for sample in samples[start : start + size]
            ]
            inputs = collate(twin, reader, part)
            try:
                with room_to_record(twin, inputs), told_of_pass(twin, inputs):
                    recorded = record(twin, inputs, watches=len(samples) == 1)
                traces += traces_of(twin, given_model, tokenizer, part, inputs, recorded, budget)
                if recorded.watched is not None:
                    keep_pass(traces[-1], recorded.watched)
            except UnsupportedModelError as error:
                # A prediction can be explained without attention.
                for number, sample in enumerate(part):
                    alone = inputs if len(part) == 1 else collate(twin, reader, [sample])
                    traces.append(
                        trace_without_attention(
                            twin, given_model, tokenizer, sample, alone, budget, error, number
                        )
                    )
    return traces


def _require_weights(model: nn.Module) -> None:
    """Raise a ValueError if weights were never loaded; offloaded ones are loaded when needed."""
    tables = [module._parameters.values() for module in modules_of(model)]  # noqa: SLF001 - `parameters()` takes three times as long
    if not any(weights is not None and weights.is_meta for table in tables for weights in table):
        return
    if not any(hasattr(module, "_hf_hook") for module in modules_of(model)):
        empty = next(name for name, weights in model.named_parameters() if weights.is_meta)
        raise ValueError(
            f"{type(model).__name__} has no weights: {empty} is on the meta device, which keeps shapes only. "
            "Load the model with from_pretrained, outside torch.device('meta'); a model of nnsight loads its "
            "weights with dispatch=True"
        )
