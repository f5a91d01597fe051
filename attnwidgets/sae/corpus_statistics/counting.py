"""Counting of a corpus in shards: which texts belong together, and what is counted on them."""

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
"""Texts of a shard, at most."""
CHARACTERS = 2**20
"""Characters after which a shard ends as well (of token ids four times as many as there are)."""
_PER_ID = 4
_ACTIVATIONS = 2**22  # of a chunk: what is held at once
_TOKENS = (256, 4096)  # of a chunk, at least and at most
_BATCH = 2048  # tokens the model reads at once, with padding


@dataclass(frozen=True)
class Shard:
    """Texts that are counted together: whatever runs beside them, their numbers are the same.

    Args:
        number: Of the shard.
        name: What it is called in messages.
        digest: A hash of its texts.
        texts: In order.
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
    """Yield the shards of a corpus, which may be a stream; they depend on nothing but the texts.

    Args:
        texts: Strings, token ids, or rows of a data set.
        spelled: Whether there is a tokenizer.
    """
    stream = (text_of(row, spelled=spelled) for row in texts)
    first = 0
    for number, held in enumerate(iter(lambda: _taken(stream), ())):
        digest = Digest()
        for text in held:
            digest.add(text)
        yield Shard(number, f"texts {first:,} to {first + len(held) - 1:,}", str(digest), held)
        first += len(held)


def shards_in(texts: Iterable[Any]) -> int | None:
    """Return how many shards a corpus has, where that is seen without reading it."""
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str | list | tuple) for text in texts):
        return None
    stream = iter(texts)
    return sum(1 for _ in iter(lambda: _taken(stream), ()))


def _taken(stream: Iterator[Any]) -> tuple[Any, ...]:
    """Return the texts of the next shard; none at the end of the stream."""
    held = []
    size = 0
    for text in stream:
        held.append(text)
        size += len(text) * (1 if isinstance(text, str) else _PER_ID)
        if len(held) == TEXTS or size >= CHARACTERS:
            break
    return tuple(held)


@dataclass(frozen=True)
class Asked:
    """What is asked about a corpus.

    Args:
        site: Where the states are.
        features: Which features.
        reading: Options of `Corpus`.
        options: Options of `Tally`.
    """

    site: HookPoint
    features: tuple[int, ...]
    reading: Mapping[str, Any]
    options: Mapping[str, int]

    def tally(self, state: Mapping[str, NDArray[Any]] | None = None) -> Tally:
        """Return a tally of nothing, or with a state."""
        tally = Tally(len(self.features), **self.options)
        if state is not None:
            tally.restore(state)
        return tally


@dataclass(frozen=True)
class Count:
    """Counts the shards of a corpus.

    Args:
        sae: Whose features.
        model: Without wrappers.
        tokenizer: None where texts are token ids.
        asked: What is asked.
    """

    sae: SAE
    model: nn.Module
    tokenizer: Any
    asked: Asked

    def corpus(self, texts: Iterable[Text]) -> Corpus:
        """Return texts as the model reads them."""
        return corpus_for(self.sae, self.model, self.tokenizer, texts, **self.asked.reading)

    def __call__(self, shard: Shard) -> dict[str, NDArray[Any]]:
        """Return the state of a tally of a shard."""
        tally = self.asked.tally()
        corpus = self.corpus(progress(shard.texts, f"feature statistics, {shard.name}"))
        with borrowed(self.model) as twin:
            for windows in _chunks(corpus, len(self.asked.features)):
                tally.add(self._encoded(twin, corpus, windows))
        tally.texts = len(shard.texts)
        return tally.state()

    def _encoded(self, model: nn.Module, corpus: Corpus, windows: list[Window]) -> Chunk:
        """Return windows with the features' activations on all of their tokens."""
        ends = np.cumsum([len(window.ids) for window in windows])
        states: Tensor | None = None
        order = {id(window): number for number, window in enumerate(windows)}
        with reading(model, self.asked.site) as read:
            for batch in batches(windows, _BATCH, sort=len(windows)):
                found = by_token(read(**corpus.inputs(batch)), batch)
                if states is None:
                    require_width(self.sae, found.shape[-1], self.asked.site, self.model)
                    states = torch.empty(
                        int(ends[-1]), found.shape[-1], dtype=self.sae.dtype, device=self.sae.device
                    )
                for row, window in enumerate(batch):
                    end = int(ends[order[id(window)]])
                    states[end - len(window.ids) : end] = found[row, : len(window.ids)]
        if states is None:  # chunks are not empty
            raise AssertionError
        some = None if len(self.asked.features) == self.sae.d_sae else self.asked.features
        activations = self.sae.encode(states, features=some).float()
        if not bool(torch.isfinite(activations).all()):
            raise ValueError(
                f"activations at {self.asked.site.name!r} are NaN or infinite; check the weights and the "
                "precision of the model and of the SAE."
            )
        sizes = [len(window.ids) for window in windows]
        return Chunk(
            activations=activations.cpu().numpy(),
            ids=np.array([number for window in windows for number in window.ids]),
            counts=np.array([counts for window in windows for counts in window.counts]),
            window=np.repeat(np.arange(len(windows)), sizes),
            text=np.repeat([window.text for window in windows], sizes),
            place=np.concatenate([window.begin + np.arange(len(window.ids)) for window in windows]),
        )


def _chunks(corpus: Corpus, features: int) -> Iterator[list[Window]]:
    """Yield windows in order, as many as are held at once."""
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
