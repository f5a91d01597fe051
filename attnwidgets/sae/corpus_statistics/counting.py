"""Counting a corpus in shards: how texts are grouped, and what is counted on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._progress import progress
from attnwidgets.sae.check import corpus_for, require_width
from attnwidgets.sae.corpus import batches, by_token
from attnwidgets.sae.corpus_statistics.tally import Chunk, Tally
from attnwidgets.sae.texts import Digest, text_of
from attnwidgets.tracing.hooks.hook import reading
from attnwidgets.tracing.recording.borrow import borrowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from attnwidgets.sae.corpus import Corpus, Window
    from attnwidgets.sae.sae import SAE
    from attnwidgets.sae.texts import Text
    from attnwidgets.tracing.hooks.hook_point import HookPoint

TEXTS = 1000
"""Largest number of texts in a shard."""
CHARACTERS = 2**20
"""Number of characters after which a shard also ends; a token id counts as four."""
_PER_ID = 4
_ACTIVATIONS = 2**22  # in a chunk, and so in memory at once
_TOKENS = (256, 4096)  # bounds of the tokens in a chunk
_BATCH = 2048  # tokens in a batch of the model, with padding


@dataclass(frozen=True)
class Shard:
    """Texts counted together; the counts do not depend on what else is counted in parallel.

    Args:
        number: Index of the shard.
        name: Name for messages.
        digest: A hash of its texts.
        texts: The texts in order.
    """

    number: int
    name: str
    digest: str
    texts: tuple[Text, ...]

    @property
    def head(self) -> Shard:
        """The shard without its texts."""
        return replace(self, texts=())


def shards_of(texts: Iterable[Any], *, spelled: bool) -> Iterator[Shard]:
    """Yield the shards of a corpus, which may be a stream; they depend only on the texts.

    Args:
        texts: Strings, token ids, or rows of a data set.
        spelled: Whether there is a tokenizer.
    """
    stream = (text_of(row, spelled=spelled) for row in texts)
    first = 0
    for number, shard_texts in enumerate(iter(lambda: _next_shard(stream), ())):
        digest = Digest()
        for text in shard_texts:
            digest.add(text)
        yield Shard(number, f"texts {first:,} to {first + len(shard_texts) - 1:,}", str(digest), shard_texts)
        first += len(shard_texts)


def shards_in(texts: Iterable[Any]) -> int | None:
    """Return the number of shards of a corpus; None if that cannot be told without reading it."""
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str | list | tuple) for text in texts):
        return None
    stream = iter(texts)
    return sum(1 for _ in iter(lambda: _next_shard(stream), ()))


def _next_shard(stream: Iterator[Any]) -> tuple[Any, ...]:
    """Return the texts of the next shard; empty at the end of the stream."""
    texts = []
    size = 0
    for text in stream:
        texts.append(text)
        size += len(text) * (1 if isinstance(text, str) else _PER_ID)
        if len(texts) == TEXTS or size >= CHARACTERS:
            break
    return tuple(texts)


@dataclass(frozen=True)
class CountRequest:
    """What to count on a corpus.

    Args:
        hook_point: Where the states are read.
        features: The features to count.
        corpus_options: Options of `Corpus`.
        tally_options: Options of `Tally`.
    """

    hook_point: HookPoint
    features: tuple[int, ...]
    corpus_options: Mapping[str, Any]
    tally_options: Mapping[str, int]

    def tally(self, state: Mapping[str, NDArray[Any]] | None = None) -> Tally:
        """Return an empty tally, or one with a state."""
        tally = Tally(len(self.features), **self.tally_options)
        if state is not None:
            tally.restore(state)
        return tally


@dataclass(frozen=True)
class ShardCounter:
    """Counts the shards of a corpus.

    Args:
        sae: The SAE.
        model: The model, unwrapped.
        tokenizer: Its tokenizer; None if texts are token ids.
        request: What to count.
    """

    sae: SAE
    model: nn.Module
    tokenizer: Any
    request: CountRequest

    def corpus(self, texts: Iterable[Text]) -> Corpus:
        """Return texts as the model reads them."""
        return corpus_for(self.sae, self.model, self.tokenizer, texts, **self.request.corpus_options)

    def __call__(self, shard: Shard) -> dict[str, NDArray[Any]]:
        """Return the state of a shard's tally."""
        tally = self.request.tally()
        corpus = self.corpus(progress(shard.texts, f"feature statistics, {shard.name}"))
        with borrowed(self.model) as twin:
            for windows in _chunks(corpus, len(self.request.features)):
                tally.add(self._encode(twin, corpus, windows))
        tally.texts = len(shard.texts)
        return tally.state()

    def _encode(self, model: nn.Module, corpus: Corpus, windows: list[Window]) -> Chunk:
        """Return windows with the features' activations on all of their tokens."""
        hook_point, features = self.request.hook_point, self.request.features
        sizes = [len(window.ids) for window in windows]
        by_window: dict[int, Tensor] = {}
        with reading(model, hook_point) as read:
            for batch in batches(windows, _BATCH, sort=len(windows)):
                states = by_token(read(**corpus.inputs(batch)), batch)
                require_width(self.sae, states.shape[-1], hook_point, self.model)
                for row, window in zip(states, batch, strict=True):
                    by_window[id(window)] = row[: len(window.ids)].to(self.sae.W_enc)
        in_order = torch.cat([by_window[id(window)] for window in windows])
        some = None if len(features) == self.sae.d_sae else features
        activations = self.sae.encode(in_order, features=some).float()
        if not bool(torch.isfinite(activations).all()):
            raise ValueError(
                f"activations at {hook_point.name!r} are NaN or infinite; check the weights and the "
                "precision of the model and of the SAE."
            )
        return Chunk(
            activations=activations.cpu().numpy(),
            ids=np.array([number for window in windows for number in window.ids]),
            counts=np.array([counts for window in windows for counts in window.counts]),
            window=np.repeat(np.arange(len(windows)), sizes),
            text=np.repeat([window.text for window in windows], sizes),
            place=np.concatenate([window.begin + np.arange(len(window.ids)) for window in windows]),
        )


def _chunks(corpus: Corpus, features: int) -> Iterator[list[Window]]:
    """Yield windows in order, in chunks that fit in memory."""
    size = min(max(_ACTIVATIONS // features, _TOKENS[0]), _TOKENS[1])
    chunk: list[Window] = []
    tokens = 0
    for window in corpus.windows():
        if chunk and tokens + len(window.ids) > size:
            yield chunk
            chunk, tokens = [], 0
        chunk.append(window)
        tokens += len(window.ids)
    if chunk:
        yield chunk
