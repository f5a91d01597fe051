"""A corpus as windows of token ids, from rows of a data set, with a mark for the tokens that count."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.anatomy.forward import can_generate, forward_parameters
from attnwidgets.tracing.recording.batch import collate
from attnwidgets.tracing.recording.inputs import Sample, limit_of, special_ids, text_tokenizer
from attnwidgets.tracing.recording.loading import own_tokenizer
from attnwidgets.tracing.text.display import well_formed
from attnwidgets.tracing.text.given_texts import require_no_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor, nn

    Text = str | tuple[int, ...]

CONTEXT = 128
"""Default number of tokens in a window, special tokens included."""

_PROBE = "a"
_BATCHED = 3  # axes of states [window, token, width]


@dataclass(frozen=True)
class Window:
    """Consecutive tokens of a text that the model reads together.

    Args:
        ids: Token ids, special tokens included.
        counts: Which tokens count. Special tokens do not, nor does a decoder's first token if it is not a
            beginning-of-text token (it is an attention sink, and its states are outliers).
        text: Index of the text.
        begin: Position of the first token in its text, not counting special tokens (negative if special
            tokens come first).
    """

    ids: tuple[int, ...]
    counts: tuple[bool, ...]
    text: int
    begin: int


class Corpus:
    """Texts cut into windows; every token is read exactly once.

    Args:
        model: The model, unwrapped; limits the length of a window.
        tokenizer: Tokenizes the texts; None if they are token ids already.
        texts: Strings, lists of token ids (read as they are), or rows of a data set with "text" or
            "input_ids".
        context: Tokens in a window, special tokens included; at most the limit of the model.
        prepend_bos: Whether every window begins with the beginning-of-text token; None leaves that to the
            tokenizer.
        skip_first: Whether the first token of a window is excluded; None excludes it for decoders whose
            windows do not begin with a special token.

    Raises:
        ValueError: If `context` leaves no room for text, or the tokenizer has no token to prepend.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        texts: Iterable[str | Sequence[int] | Mapping[str, Any]],
        *,
        context: int = CONTEXT,
        prepend_bos: bool | None = None,
        skip_first: bool | None = None,
    ) -> None:
        require_texts(texts)
        self.model = model
        self.tokenizer = own_tokenizer(text_tokenizer(tokenizer))
        self.texts = texts
        self.special = frozenset() if self.tokenizer is None else special_ids(self.tokenizer)
        causal = can_generate(model) and "decoder_input_ids" not in forward_parameters(model)
        self.skip_first = causal if skip_first is None else skip_first
        self.always_skip = bool(skip_first)
        self.before, self.after = self._frame(prepend_bos)
        limit = limit_of(model, self.tokenizer)
        self.context = context if limit is None else min(context, limit)
        self.room = self.context - len(self.before) - len(self.after)
        if self.room < 1:
            raise ValueError(
                f"context={context} leaves no room for text: it is surrounded by "
                f"{len(self.before) + len(self.after)} special tokens."
            )

    def _frame(self, prepend_bos: bool | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the special ids before and after every text."""
        if self.tokenizer is None:
            return (), ()
        probe_ids = self._ids(_PROBE)
        framed_ids = list(self.tokenizer(_PROBE)["input_ids"])
        start = next(
            (i for i in range(len(framed_ids)) if framed_ids[i : i + len(probe_ids)] == probe_ids), 0
        )
        before, after = tuple(framed_ids[:start]), tuple(framed_ids[start + len(probe_ids) :])
        bos = getattr(self.tokenizer, "bos_token_id", None)
        if prepend_bos and not before:
            if bos is None:
                raise ValueError(
                    f"prepend_bos=True: {type(self.tokenizer).__name__} has no beginning-of-text token."
                )
            before = (bos,)
        if prepend_bos is False and before == (bos,):  # not an encoder's [CLS]
            before = ()
        return before, after

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(well_formed(text), add_special_tokens=False, verbose=False)["input_ids"])

    def windows(self) -> Iterator[Window]:
        """Yield the windows of all texts in order; an empty text has none.

        Raises:
            ValueError: If a text is a string and `tokenizer` is missing, or a row contains no text.
        """
        for number, row in enumerate(self.texts):
            text = text_of(row, spelled=self.tokenizer is not None)
            if isinstance(text, str):
                if self.tokenizer is None:
                    raise ValueError("texts are strings: pass their tokenizer.")
                ids = self._ids(text)
                for begin in range(0, len(ids), self.room):
                    window_ids = (*self.before, *ids[begin : begin + self.room], *self.after)
                    yield self._window(window_ids, number, begin - len(self.before))
            else:
                for begin in range(0, len(text), self.context):
                    yield self._window(text[begin : begin + self.context], number, begin)

    def _window(self, ids: tuple[int, ...], text: int, begin: int) -> Window:
        counts = [i not in self.special for i in ids]
        if self.skip_first and (counts[0] or self.always_skip):
            counts[0] = False
        return Window(ids, tuple(counts), text, begin)

    def inputs(self, windows: Sequence[Window]) -> dict[str, Any]:
        """Return the model inputs for a batch of windows, padded on the right."""
        samples = [Sample(list(window.ids)) for window in windows]
        if "token_type_ids" in forward_parameters(self.model):
            for sample in samples:
                sample.types = [0] * len(sample.ids or ())
        inputs = collate(self.model, self.tokenizer, samples)
        if "decoder_input_ids" in forward_parameters(self.model):
            start = getattr(self.model.config, "decoder_start_token_id", None) or 0
            inputs["decoder_input_ids"] = inputs["input_ids"].new_full((len(windows), 1), start)
        if "use_cache" in forward_parameters(self.model):
            inputs["use_cache"] = False
        return inputs


def batches(windows: Iterable[Window], tokens: int, *, sort: int = 1) -> Iterator[list[Window]]:
    """Yield batches of windows with at most `tokens` tokens each, padding included.

    Args:
        windows: Windows in order.
        tokens: Most tokens in a batch; a longer window is a batch by itself.
        sort: Reduce padding by sorting windows by length, over the tokens of this many batches. 1 keeps the
            order.
    """
    pool: list[Window] = []
    size = 0
    for window in windows:
        pool.append(window)
        size += len(window.ids)
        if size >= tokens * sort:
            yield from _pack(pool, tokens, sort=sort > 1)
            pool, size = [], 0
    yield from _pack(pool, tokens, sort=sort > 1)


def _pack(pool: list[Window], tokens: int, *, sort: bool) -> Iterator[list[Window]]:
    ordered = sorted(pool, key=lambda window: len(window.ids)) if sort else pool
    batch: list[Window] = []
    widest = 0
    for window in ordered:
        wider = max(widest, len(window.ids))
        if batch and wider * (len(batch) + 1) > tokens:
            yield batch
            batch, wider = [], len(window.ids)
        batch.append(window)
        widest = wider
    if batch:
        yield batch


def by_token(states: Tensor, windows: Sequence[Window]) -> Tensor:
    """Return states as [window, token, width]; some modules flatten the batch into a row of tokens."""
    return states if states.dim() == _BATCHED else states.reshape(len(windows), -1, states.shape[-1])


def counted_states(states: Tensor, windows: Sequence[Window]) -> Tensor:
    """Return the states of the tokens that count [token, width]."""
    states = by_token(states, windows)
    return states[counts_mask(windows, states.shape[1], states.device)]


def counts_mask(windows: Sequence[Window], width: int, device: torch.device) -> Tensor:
    """Return which tokens of a padded batch count [window, token]."""
    rows = [[*window.counts, *[False] * (width - len(window.counts))] for window in windows]
    return torch.tensor(rows, dtype=torch.bool, device=device)


def require_texts(texts: Any) -> None:
    """Raise ValueError for a mapping or string, TypeError for a table: iterating would not yield texts."""
    if isinstance(texts, str):
        raise ValueError("texts must be a collection of texts, not one string; pass [text].")  # noqa: TRY004
    if isinstance(texts, Mapping):
        raise ValueError(  # noqa: TRY004 - as for a string
            f"texts must be one data set, not a mapping of {', '.join(map(repr, texts))}; pass one of them."
        )
    require_no_table(texts, "texts")


def text_of(row: str | Sequence[int] | Mapping[str, Any], *, spelled: bool) -> Text:
    """Return the text of a row, as a string or as token ids.

    Args:
        row: A string, token ids, or a row of a data set with "text" or "input_ids".
        spelled: Whether there is a tokenizer; "text" then takes precedence over "input_ids".

    Raises:
        ValueError: If a row has neither.
    """
    if isinstance(row, Mapping):
        names = ("text", "input_ids") if spelled else ("input_ids", "text")
        column = next((name for name in names if name in row), None)
        if column is None:
            raise ValueError(
                "texts has a row without 'text' or 'input_ids'; its columns are "
                f"{', '.join(map(repr, row))}: rename the one that contains the text."
            )
        row = row[column]
    return row if isinstance(row, str) else tuple(int(number) for number in row)


class Digest:
    """A hash of texts in order, updated text by text."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self.texts = 0

    def add(self, text: Text) -> None:
        """Add a text."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else repr(text).encode()
        self._digest.update(f"{type(text).__name__} {len(data)} ".encode() + data)
        self.texts += 1

    def reading(self, texts: Iterable[Text]) -> Iterator[Text]:
        """Yield texts and add them to the hash."""
        for text in texts:
            self.add(text)
            yield text

    def __str__(self) -> str:
        return self._digest.hexdigest()
