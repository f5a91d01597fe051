"""The input of `aw.trace` in all its kinds, and the samples that a model reads.

An `Input` holds the arguments of `trace` after `spelled_out`. `samples_of` makes a `Sample` of it, or one for
each of a list of texts, rows of ids or captions: `inputs.py` tokenizes, `media.py` reads pictures and sound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.anatomy.forward import forward_parameters
from attnwidgets.tracing.chat.passages import given_passages, headed_passages
from attnwidgets.tracing.chat.rendering import rendered
from attnwidgets.tracing.recording.batch import require_known
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
from attnwidgets.tracing.recording.loading import own_tokenizer
from attnwidgets.tracing.recording.media import audio_sample, image_sample
from attnwidgets.tracing.text.display import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.tracing.text.messages import Passage


_PAIRS = (("text", "text_pair"), ("question", "context"))


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
        """The kind of input, in words; "" for a text or several."""
        kinds = {
            "a picture": self.image,
            "sound": self.audio,
            "token ids": self.ids,
            "chat messages": self.messages,
            "a pair of texts": self.text_pair,
            "a list of words": self.words,
        }
        return next((kind for kind, value in kinds.items() if value is not None), "")

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


def spelled_out(text: Any, text_pair: Any, messages: Any) -> tuple[Any, Any, Any]:
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


def require_text(text: Any) -> None:
    """Raise a TypeError unless the argument is text or ids."""
    if text is not None and not isinstance(text, (str, Sequence)) and not is_ids(text):
        raise TypeError(
            f"text must be a string, a list of them, or token ids, not a {type(text).__name__}; {MEDIA}"
        )


def is_ids(text: Any) -> bool:
    """Return whether the `text` argument holds ids: a tensor, an array, or lists of numbers."""
    if isinstance(text, Mapping):
        return "input_ids" in text
    if text is None or isinstance(text, str):
        return False
    if isinstance(text, torch.Tensor) or type(text).__module__ == "numpy":
        return True
    first = text[0] if isinstance(text, Sequence) and len(text) else None
    return isinstance(first, int) or (
        isinstance(first, Sequence) and not isinstance(first, str) and is_ids(first)
    )


def samples_of(
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
