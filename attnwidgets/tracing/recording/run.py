"""aw.trace: run a model once on an input and record its attention.

`trace` sorts its arguments into an `Input`, and `samples_of` makes one `Sample` or several. `_run` reads
these in batches with a twin of the model, and divides every recorded pass into traces. If attention cannot be
recorded, it traces the samples without attention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, overload

from attnwidgets._errors import suggests_keywords
from attnwidgets._notebook import prepare_views
from attnwidgets._progress import progress
from attnwidgets._selecting import listed
from attnwidgets.tracing.failed_pass import told_of_pass
from attnwidgets.tracing.free_memory import byte_budget, forced
from attnwidgets.tracing.model_state import modules_of
from attnwidgets.tracing.pass_memory import room_to_record
from attnwidgets.tracing.predictions import predict
from attnwidgets.tracing.recording.asked import TEXT, Asked
from attnwidgets.tracing.recording.batch import collate, traces_of
from attnwidgets.tracing.recording.borrow import borrowed, lacks_padding, unwrap
from attnwidgets.tracing.recording.continuation import with_continuation
from attnwidgets.tracing.recording.inputs import Sample, text_tokenizer
from attnwidgets.tracing.recording.loading import load_named, own_tokenizer
from attnwidgets.tracing.recording.module_calls import keep_pass
from attnwidgets.tracing.recording.recorded_pass import record
from attnwidgets.tracing.recording.user_input import Input, is_ids, require_text, samples_of, spelled_out
from attnwidgets.tracing.recording.without_attention import trace_without_attention
from attnwidgets.tracing.recording.wrappers import PipelineSettings, opened, settings_of, sorted_arguments
from attnwidgets.tracing.text.given_texts import as_sequence
from attnwidgets.tracing.text.words import STANDARD, require_rule
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from torch import nn
    from typing_extensions import Unpack

    from attnwidgets.tracing.trace import Trace

Texts: TypeAlias = "list[str] | tuple[str, ...] | list[tuple[str, str]]"

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


# The input decides between a trace and a list: texts, also as second argument; a single input; texts; or ids,
# of which only the shape tells. Fewer overloads would annotate `tokenizer` differently where several match,
# and mypy then returns Any for an untyped tokenizer, as those of transformers are.
@overload
def trace(model: Any, tokenizer: Texts, **options: Unpack[ListOptions]) -> list[Trace]: ...
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
    model: Any, tokenizer: Any = ..., text: Texts = ..., **options: Unpack[ListOptions]
) -> list[Trace]: ...
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
    text, text_pair, messages = spelled_out(text, as_sequence(text_pair, "text_pair"), messages)
    require_text(text)
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
        needs_reader=input_ids is None and not is_ids(text),
    )
    inner = unwrap(loaded)
    if input_ids is None and is_ids(text):
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
    samples, single = samples_of(
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
        own_text = "" if user_input.kind else text if single else text[number]
        traced.asked = Asked(user_input.kind or TEXT, own_text, options)
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


def _require_count(new: Any) -> None:
    """Raise a ValueError unless the number of new tokens is a whole number, 0 or more."""
    if not isinstance(new, Integral) or new < 0:
        raise ValueError(f"max_new_tokens must be a whole number, 0 or more, not {new!r}")


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
