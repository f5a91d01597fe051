"""A corpus as windows of token ids: what a model reads at once, and which of it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.sae.texts import require_texts, text_of
from attnwidgets.tracing.recording.batch import collate
from attnwidgets.tracing.recording.borrow import own_tokenizer
from attnwidgets.tracing.recording.inputs import Sample, limit_of, special_ids, text_tokenizer
from attnwidgets.tracing.recording.recorder import can_generate, forward_parameters
from attnwidgets.tracing.text.display import well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

CONTEXT = 128
"""Tokens of a window, special ones included."""

_PROBE = "a"
_BATCHED = 3  # axes of states [window, token, width]


@dataclass(frozen=True)
class Window:
    """Consecutive tokens of one text, as a model reads them.

    Args:
        ids: Token ids, special ones included.
        counts: Which tokens count: no special ones, and not the first of a decoder's where it has no
            beginning-of-text token (it draws attention whatever it is, and its states are far out).
        text: Number of the text.
        begin: Place in its text, special tokens not counted, that the first of them has or would have.
    """

    ids: tuple[int, ...]
    counts: tuple[bool, ...]
    text: int
    begin: int


class Corpus:
    """Texts, cut into windows without a token lost or read twice.

    Args:
        model: Without wrappers; says how long a window may be.
        tokenizer: Spells the texts; None where they are token ids already.
        texts: Strings, lists of token ids, which are read as they are, or rows of a data set with "text" or
            "input_ids".
        context: Tokens of a window, special ones included; cut to what the model takes.
        prepend_bos: Whether every window begins with the beginning-of-text token; None leaves that to the
            tokenizer.
        skip_first: Whether the first token of a window counts not; None does so in decoders whose windows
            begin with no special token.

    Raises:
        ValueError: If `context` leaves no room for a token, or the tokenizer has no such token to prepend.
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
                f"context={context} leaves no room for text: {len(self.before) + len(self.after)} special "
                "tokens stand around it."
            )

    def _frame(self, prepend_bos: bool | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids that stand before and after every text."""
        if self.tokenizer is None:
            return (), ()
        inner = self._ids(_PROBE)
        whole = list(self.tokenizer(_PROBE)["input_ids"])
        at = next((i for i in range(len(whole)) if whole[i : i + len(inner)] == inner), 0)
        before, after = tuple(whole[:at]), tuple(whole[at + len(inner) :])
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
        """Yield the windows of every text, in order; texts without tokens have none.

        Raises:
            ValueError: If there is no tokenizer and a text is a string, or a row holds no text.
        """
        for number, row in enumerate(self.texts):
            text = text_of(row, spelled=self.tokenizer is not None)
            if isinstance(text, str):
                if self.tokenizer is None:
                    raise ValueError("texts are strings: pass the tokenizer that spells them.")
                ids = self._ids(text)
                for begin in range(0, len(ids), self.room):
                    cut = (*self.before, *ids[begin : begin + self.room], *self.after)
                    yield self._window(cut, number, begin - len(self.before))
            else:
                for begin in range(0, len(text), self.context):
                    yield self._window(text[begin : begin + self.context], number, begin)

    def _window(self, ids: tuple[int, ...], text: int, begin: int) -> Window:
        counts = [i not in self.special for i in ids]
        if self.skip_first and (counts[0] or self.always_skip):
            counts[0] = False
        return Window(ids, tuple(counts), text, begin)

    def inputs(self, windows: Sequence[Window]) -> dict[str, Any]:
        """Return what the model is called with for a batch of windows, padded on the right."""
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
    """Yield windows together, as many as have at most `tokens` tokens with their padding.

    Args:
        windows: In order.
        tokens: Of a batch; one window may have more.
        sort: Over how many batches' tokens windows may be ordered by length, against padding. 1 keeps the
            order.
    """
    pool: list[Window] = []
    size = 0
    for window in windows:
        pool.append(window)
        size += len(window.ids)
        if size >= tokens * sort:
            yield from _packed(pool, tokens, sort=sort > 1)
            pool, size = [], 0
    yield from _packed(pool, tokens, sort=sort > 1)


def _packed(pool: list[Window], tokens: int, *, sort: bool) -> Iterator[list[Window]]:
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
    """Return states as [window, token, width]; some modules see all tokens of a batch in one row."""
    return states if states.dim() == _BATCHED else states.reshape(len(windows), -1, states.shape[-1])


def counts_mask(windows: Sequence[Window], width: int, device: torch.device) -> Tensor:
    """Return which tokens of a padded batch count [window, token]."""
    rows = [[*window.counts, *[False] * (width - len(window.counts))] for window in windows]
    return torch.tensor(rows, dtype=torch.bool, device=device)
