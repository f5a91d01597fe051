"""User inputs as samples that a model can read: ids, display strings and spans.

`encode` tokenizes texts, `ids_sample` takes ids as they are; both label tokens by `text_of_ids`. A fast
tokenizer reports the span of every token in the text (`_placed`). With others, spans are those in the text
that the tokens spell (`_aligned`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from attnwidgets._selecting import listed
from attnwidgets.tracing.model_state import named_modules
from attnwidgets.tracing.recording.loading import own_tokenizer
from attnwidgets.tracing.text.axes import Text
from attnwidgets.tracing.text.display import UNKNOWN, display, pieces_of, reassemble, scheme_of, well_formed
from attnwidgets.tracing.text.messages import TEMPLATE, owners_of_characters, owners_of_tokens
from attnwidgets.tracing.text.words import STANDARD, join_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.media.picture import Picture
    from attnwidgets.tracing.media.sound import Sound
    from attnwidgets.tracing.text.messages import Chat, Passage

MEDIA = "pass pictures as image=..., sound as audio=..."
_NO_LIMIT = 10**7  # tokenizers without a limit report about 1e30
_OFFSET = 2  # unread rows at the start of position tables, in every family that has some (OPT, BART, YOSO)


@dataclass
class Sample:
    """A user's input: the model's inputs, and how its tokens are shown.

    Args:
        ids: Token ids, or None without a text.
        text: Display strings and spans of the ids.
        types: Token type ids, if the tokenizer returns them.
        others: Further model inputs, in a batch of 1 (pixel_values, input_values, ...).
        decoder_ids: The decoder's input, for encoder-decoder models.
        decoder_text: Display strings and spans of `decoder_ids`.
        warning: Changes to the input that readers must know.
        sound: The user's recording.
        picture: The user's picture, and the part of it that the model sees.
        rule: The rule that splits the text into words: a name in `words.RULES`.
    """

    ids: list[int] | None = None
    text: Text | None = None
    types: list[int] | None = None
    others: dict[str, Any] = field(default_factory=dict)
    decoder_ids: list[int] | None = None
    decoder_text: Text | None = None
    warning: str = ""
    sound: Sound | None = None
    picture: Picture | None = None
    rule: str = STANDARD


def text_tokenizer(tokenizer: Any) -> Any:
    """Return the tokenizer inside a processor; None if it has none (an image processor)."""
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    return inner if hasattr(inner, "convert_ids_to_tokens") else None


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Return the ids of tokens that are not part of the text.

    The unknown token and the mask stand for a word, so they are not among them.
    """
    ids = set(tokenizer.all_special_ids)
    ids |= {
        i for i, t in getattr(tokenizer, "added_tokens_decoder", {}).items() if getattr(t, "special", False)
    }
    ends = {getattr(tokenizer, f"{n}_token_id", None) for n in ("bos", "eos", "pad", "cls", "sep")}
    inside = {getattr(tokenizer, f"{n}_token_id", None) for n in ("unk", "mask")}
    return frozenset(ids - (inside - ends))


def display_tokens(
    tokenizer: Any, ids: Sequence[int], specials: frozenset[int] | None = None
) -> tuple[str, ...]:
    """Return display strings of ids; `specials` as `special_ids` returns them, for many calls."""
    return text_of_ids(tokenizer, ids, specials=specials).tokens


def text_of_ids(
    tokenizer: Any,
    ids: Sequence[int],
    boundary: int | None = None,
    *,
    specials: frozenset[int] | None = None,
) -> Text:
    """Return ids as text with spans, spelled from the tokens themselves; without a tokenizer, as numbers."""
    special: tuple[bool, ...]
    if tokenizer is None:
        labels = tuple(str(i) for i in ids)
        special = (False,) * len(labels)
        text = "".join(f"{label} " for label in labels)
        spans = [match.span() for match in re.finditer(r"\S+", text)]
    else:
        labels, special, pieces = _labelled(tokenizer, ids, specials)
        text, spans = reassemble(pieces)
    return Text(labels, tuple(spans), special, (0,) * len(labels), (text,), (None,), boundary)


def _labelled(
    tokenizer: Any, ids: Sequence[int], specials: frozenset[int] | None = None
) -> tuple[tuple[str, ...], tuple[bool, ...], Any]:
    """Return display strings of ids, which are special, and the pieces that spell a text."""
    spellings = tokenizer.convert_ids_to_tokens(list(ids))
    # A model may have more ids than its tokenizer has tokens: rows that pad a matrix.
    tokens = [f"⟨#{i}⟩" if token is None else str(token) for i, token in zip(ids, spellings, strict=True)]
    specials = special_ids(tokenizer) if specials is None else specials
    special = tuple(i in specials for i in ids)
    scheme = scheme_of(tokenizer, tokens)
    pieces = pieces_of(tokens, special, scheme)
    return display(pieces, scheme), special, pieces


def is_position_table(name: str) -> bool:
    """Return whether a table of embeddings is one of positions, by its module's name."""
    last = name.rpartition(".")[2].lower()
    return "pos" in last or last == "wpe"


def position_table(model: nn.Module) -> tuple[nn.Embedding, int] | None:
    """Return the table of position embeddings of a model's text, and the row of the first position.

    Some begin with rows that no token reads: up to the padding index (RoBERTa), or an offset (OPT, BART).
    None without such a table: positions are rotations, biases or relative, or are computed (sinusoids).
    """
    from torch import nn

    positions = _positions_in_config(model)
    for name, module in named_modules(model).items():
        if not isinstance(module, nn.Embedding) or not is_position_table(name):
            continue
        rows = module.num_embeddings
        if positions is None or rows == positions:
            return module, 0 if module.padding_idx is None else module.padding_idx + 1
        if rows == positions + _OFFSET:
            return module, _OFFSET
    return None


def _text_config(model: nn.Module) -> Any:
    config: Any = getattr(model, "config", None)
    return getattr(config, "text_config", None) or config


def _positions_in_config(model: nn.Module) -> int | None:
    """Return the number of positions in the config of a model's text, or None."""
    config = _text_config(model)
    limit = getattr(config, "max_position_embeddings", None) or getattr(config, "max_target_positions", None)
    return limit if isinstance(limit, int) and limit > 0 else None  # -1: any number (XLNet)


def limit_of(model: nn.Module, tokenizer: Any) -> int | None:
    """Return how many tokens a model takes, or None without a limit (relative positions).

    The limit is in the config; a padding index in the position table (RoBERTa) costs the positions up to it.
    With relative positions, the tokenizer's limit counts as well.
    """
    limit = _positions_in_config(model)
    if limit is None:
        return None
    table = position_table(model)
    if table is not None:
        limit = table[0].num_embeddings - table[1]
    tokenizer_limit = getattr(tokenizer, "model_max_length", None)
    relative = getattr(_text_config(model), "position_embedding_type", None) or ""
    if "relative" in str(relative) and isinstance(tokenizer_limit, int) and tokenizer_limit < _NO_LIMIT:
        return min(limit, tokenizer_limit)
    return limit


def too_long(length: int, limit: int, extra: int = 0) -> ValueError:
    """Return the error that names both lengths and the remedies."""
    room = f" in addition to {extra} new ones" if extra else ""
    return ValueError(
        f"text is too long: it has {length} tokens, and the model takes {limit}{room}. Shorten it, or pass "
        "truncation=True to cut it (views then say so)."
    )


def encode(
    tokenizer: Any,
    text: str,
    *,
    text_pair: str | None = None,
    words: Sequence[str] | None = None,
    pair_words: Sequence[str] | None = None,
    limit: int | None = None,
    truncation: bool = False,
    specials: bool = True,
    extra: int = 0,
    chat: Chat | None = None,
    passages: tuple[Passage, ...] = (),
    private: Any = None,
) -> Sample:
    """Tokenize a text or pair. Half a character (a lone surrogate) becomes U+FFFD, with a warning.

    `private` is what `own_tokenizer` returned, if it was called before, for many texts.

    Without offsets of its tokenizer, a text has neither messages nor passages; a warning says so.

    Raises:
        ValueError: If the text is empty, or longer than `limit` without `truncation`.
    """
    texts = _not_empty(text, text_pair)
    warnings = []
    pair = tuple(map(well_formed, texts))
    if "".join(pair).count(UNKNOWN) > "".join(texts).count(UNKNOWN):
        warnings.append(f"half characters (lone surrogates) in the text are read as {UNKNOWN}")
    word_lists = tuple(None if part is None else [*map(well_formed, part)] for part in (words, pair_words))
    fast = bool(getattr(tokenizer, "is_fast", False))
    arguments: dict[str, Any] = {"add_special_tokens": specials, "verbose": False, "padding": False}
    if fast:
        arguments["return_offsets_mapping"] = True
    private = own_tokenizer(tokenizer) if private is None else private
    encoded = private(*pair, **arguments, truncation=False)
    length = len(encoded["input_ids"])
    if limit is not None and length > limit:
        if not truncation:
            raise too_long(length, limit, extra)
        warnings.append(f"text cut from {length} to {limit} tokens")
        encoded = private(*pair, **arguments, truncation=True, max_length=limit)
    ids = list(encoded["input_ids"])
    if not ids:
        raise ValueError(f"text {text!r} has no tokens in this tokenizer")
    types = encoded.get("token_type_ids")
    if fast:
        labels, special, _ = _labelled(tokenizer, ids)
        places = _placed(special, tokenizer, encoded, apart=chat is None)
        shown = Text(labels, *places, pair, word_lists, chat=chat, passages=passages)
        warnings += [] if chat is None else spelled_specials(chat, shown)
    else:
        shown = text_of_ids(tokenizer, ids)
        if chat is not None or passages:
            units = "messages" if chat is not None else "passages"
            warnings.append(
                f"{units} are not among the units: {type(tokenizer).__name__} reports no offsets; use its "
                "fast version"
            )
        elif words is not None or pair_words is not None or text_pair is not None:
            shown = _aligned(shown, tokenizer, pair, word_lists)
    return Sample(ids, shown, None if types is None else list(types), warning="; ".join(warnings))


def _not_empty(text: str, text_pair: str | None) -> list[str]:
    """Return a text, or two, after checking that they are not empty."""
    if not text.strip():
        raise ValueError("text is empty: give at least one word")
    if text_pair is not None and not text_pair.strip():
        raise ValueError("text_pair is empty: give at least one word, or leave it out")
    return [text] if text_pair is None else [text, text_pair]


def _placed(
    specials: Sequence[bool], tokenizer: Any, encoded: Any, *, apart: bool
) -> tuple[tuple[tuple[int, int], ...], tuple[bool, ...], tuple[int, ...]]:
    """Return the spans of tokens as a fast tokenizer reports them, which are special, and their segments.

    Args:
        specials: Whether each token is special by its id.
        tokenizer: The tokenizer.
        encoded: Its output.
        apart: Whether special tokens have no span: nobody wrote them.
    """
    ids = list(encoded["input_ids"])
    ends = {"bos", "eos", "cls", "sep", "pad"}
    outer = {getattr(tokenizer, f"{name}_token_id", None) for name in ends} - {None}
    sides = encoded.sequence_ids(0) if hasattr(encoded, "sequence_ids") else [0] * len(ids)
    # A special token spelled in the text itself (a chat template) is special too.
    special = tuple(
        side is None or is_special or i in outer
        for side, is_special, i in zip(sides, specials, ids, strict=True)
    )
    spans = tuple(
        (0, 0) if is_special and apart else (begin, end)
        for (begin, end), is_special in zip(encoded["offset_mapping"], special, strict=True)
    )
    return spans, special, _segments(sides)


def spelled_specials(chat: Chat, text: Text) -> list[str]:
    """Return which messages wrote special tokens, in words: a model reads them as its template's."""
    whole = text.texts[0]
    owners, _ = owners_of_tokens(
        whole, text.spans, text.special, owners_of_characters(whole, [part.runs for part in chat.parts])
    )
    written: dict[str, list[str]] = {}
    for token, special, owner in zip(text.tokens, text.special, owners, strict=True):
        if special and owner != TEMPLATE:
            part = chat.parts[owner]
            who = part.name if part.message is None else f"message {part.message} ({part.role})"
            written.setdefault(who, []).append(token)
    return [
        f"{who} wrote {len(tokens)} special token{'s' * (len(tokens) > 1)} ({listed(sorted({*tokens}))}), "
        "which the model reads as it reads those of its template"
        for who, tokens in written.items()
    ]


def _segments(sides: Sequence[int | None]) -> tuple[int, ...]:
    """Return the text each token belongs to; a special token closes the text before it."""
    return tuple(accumulate((side or 0 for side in sides), max))


def _aligned(shown: Text, tokenizer: Any, pair: tuple[str, ...], word_lists: Any) -> Text:
    """Assign tokens without offsets to their segments: the second text begins after a separator."""
    segment = [0] * len(shown.tokens)
    if len(pair) > 1:
        separators = [i for i, special in enumerate(shown.special) if special and 0 < i < len(segment) - 1]
        start = separators[-1] + 1 if separators else len(segment)
        segment = [int(i >= start) for i in range(len(segment))]
        first = shown.spans[start][0] if start < len(segment) else len(shown.texts[0])
        texts = (shown.texts[0][:first], shown.texts[0][first:])
        spans = tuple((b - first * s, e - first * s) for (b, e), s in zip(shown.spans, segment, strict=True))
        return Text(shown.tokens, spans, shown.special, tuple(segment), texts, (None, None))
    words = word_lists[0]
    if words is not None and all(shown.texts[0].find(word) >= 0 for word in words):
        return Text(shown.tokens, shown.spans, shown.special, tuple(segment), shown.texts, (words,))
    raise ValueError(
        f"words cannot be placed: {type(tokenizer).__name__} reports no offsets and spells the text "
        "differently. Use its fast version (use_fast=True)."
    )


def id_rows(ids: Any, mask: Any = None) -> tuple[list[list[int]], bool]:
    """Return token ids as rows without padding, and whether there is a single row.

    Args:
        ids: [token] or [batch, token].
        mask: Of the same shape, 0 at padding on either side; None keeps every id.

    Raises:
        ValueError: If ids are empty, or they are not integers of this shape.
    """
    import torch

    table = _table(ids, "input_ids")
    if not table.numel():
        raise ValueError("input_ids are empty: give at least one token")
    if (
        table.dim() not in (1, 2)
        or table.is_floating_point()
        or table.is_complex()
        or table.dtype == torch.bool
    ):
        raise ValueError(
            f"input_ids must be integers [token] or [batch, token], not {table.dtype} {tuple(table.shape)}; "
            f"{MEDIA}"
        )
    single = table.dim() == 1
    if mask is None:
        return table.reshape(-1, table.shape[-1]).tolist(), single or len(table) == 1
    kept_mask = _table(mask, "attention_mask")
    if [n for n in kept_mask.shape if n > 1] != [n for n in table.shape if n > 1]:
        raise ValueError(
            f"attention_mask is {list(kept_mask.shape)}, and input_ids are {list(table.shape)}: give one "
            "number for each id, 0 where it is padding"
        )
    table = table.reshape(1, -1) if single else table
    rows = [
        row[keep.bool()].tolist() for row, keep in zip(table, kept_mask.reshape(table.shape), strict=True)
    ]
    if not all(rows):
        raise ValueError(f"attention_mask hides every token of row {rows.index([])}: give at least one token")
    return rows, single or len(rows) == 1


def _table(values: Any, argument: str) -> Tensor:
    """Return ids or a mask as a tensor on the CPU; ValueError names an entry that is not a number."""
    import torch

    try:
        return torch.as_tensor(values).to_dense().cpu()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(
            f"{argument} must be integers [token] or [batch, token], rows of one length, not {values!r:.80} "
            f"({error})"
        ) from error


def ids_sample(tokenizer: Any, ids: list[int], *, limit: int | None, truncation: bool, extra: int) -> Sample:
    """Return the sample of a row of raw ids, cut to `limit` with `truncation`.

    Raises:
        ValueError: If there are more than `limit` (which leaves room for `extra`) without `truncation`.
    """
    warning = ""
    if limit is not None and len(ids) > limit:
        if not truncation:
            raise too_long(len(ids), limit, extra)
        ids, warning = ids[:limit], f"text cut from {len(ids)} to {limit} tokens"
    return Sample(ids, text_of_ids(tokenizer, ids), warning=warning)


def words_text(words: Sequence[str], text: str | None, argument: str) -> str:
    """Return the text, joined from the words if None, after checking that words are non-empty strings."""
    if isinstance(words, str) or not all(isinstance(w, str) for w in words) or not words:
        raise ValueError(f"{argument} must be a list of words, as ['New', 'York'], not {words!r}")
    for number, word in enumerate(words):
        if not word.strip():
            raise ValueError(f"{argument}[{number}] is empty: leave it out")
    return join_words(words) if text is None else text
