"""Counting a corpus in shards: how texts are grouped and counted, and a folder with the finished counts."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as dump_tensors

from attnwidgets._files import write_bytes
from attnwidgets._progress import progress
from attnwidgets.sae.check import corpus_for, require_width
from attnwidgets.sae.corpus import Digest, batches, by_token, text_of
from attnwidgets.sae.corpus_statistics.tally import Chunk, Tally
from attnwidgets.sae.dependencies import require_same
from attnwidgets.tracing.hooks.hook import reading
from attnwidgets.tracing.recording.borrow import borrowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from attnwidgets.sae.corpus import Corpus, Text, Window
    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.hooks.hook_point import HookPoint

    State = Mapping[str, NDArray[Any]]

TEXTS = 1000
"""Largest number of texts in a shard."""

CHARACTERS = 2**20
"""Number of characters after which a shard also ends; a token id counts as four."""

_PER_ID = 4
_ACTIVATIONS = 2**22  # in a chunk, and so in memory at once
_TOKENS = (256, 4096)  # bounds of the tokens in a chunk
_BATCH = 2048  # tokens in a batch of the model, with padding

FILES = 16
"""Number of shards after which their files are merged with the earlier files."""

_ABOUT = "statistics.json"
_KEY = "attnwidgets"


@dataclass(frozen=True)
class Shard:
    """Texts counted together; the counts do not depend on other shards that are counted in parallel.

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
    """The counts requested of a corpus.

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
        """Return an empty tally, or a tally with a state."""
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
        request: The requested counts.
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


class Checkpoint:
    """A folder with the counts of finished shards, and a description of the counts.

    Args:
        path: The folder; created if needed. None: nothing is stored.
        about: Everything the counts depend on except the texts; see `attnwidgets.sae.dependencies`.

    Raises:
        ValueError: If the folder belongs to something else, or is a file.
        FileNotFoundError: If its parent folder does not exist.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self._active = path is not None
        self._folder = path or Path()
        self._digests: list[str] = []  # of all finished shards, in order
        self._merged = 0  # number of shards in the merged file
        if path is None:
            return
        if path.is_file():
            raise ValueError(
                f"checkpoint {str(path)!r} is a file, written by an earlier version, and cannot be resumed; "
                "remove it, or name a folder."
            )
        if not path.parent.is_dir():
            raise FileNotFoundError(f"checkpoint {str(path)!r} is in a folder that does not exist.")
        path.mkdir(exist_ok=True)
        if (path / _ABOUT).is_file():
            self._require(path, about)
            if self._whole.exists():
                self._digests = _digests(self._whole)
                self._merged = len(self._digests)
        elif any(path.iterdir()):
            raise ValueError(f"checkpoint {str(path)!r} is a folder with other contents; name another.")
        else:
            write_bytes(path / _ABOUT, json.dumps(about, indent=1).encode())

    @staticmethod
    def _require(path: Path, about: Mapping[str, Any]) -> None:
        try:
            described = json.loads((path / _ABOUT).read_bytes())
        except ValueError as error:
            raise ValueError(f"checkpoint {str(path)!r} is damaged ({_ABOUT}); remove it.") from error
        require_same(path, described, about)

    @property
    def hint(self) -> str:
        """A sentence for error messages that says how to resume; "" if nothing is stored."""
        return f"Finished shards are in {str(self._folder)!r}; call again to resume." if self._active else ""

    def holds(self, shard: Shard) -> bool:
        """Return whether a shard is stored.

        Raises:
            ValueError: If the stored shard of that number has other texts, or its file is damaged.
        """
        if not self._active:
            return False
        if shard.number < self._merged:
            digest = self._digests[shard.number]
        elif self._file(shard.number).exists():
            (digest,) = _digests(self._file(shard.number))
        else:
            return False
        if digest != shard.digest:
            self._refuse(f"{shard.name} differ")
        return True

    def get(self, shard: Shard) -> State | None:
        """Return the state of a stored shard; for the first shard, that of all merged shards together.

        `get` and `put` are called in the order of the shards, once for each.

        Returns:
            The state, or None for a shard that was merged into the first.
        """
        if shard.number < self._merged:
            return None if shard.number else _state(self._whole)
        self._digests.append(shard.digest)
        return _state(self._file(shard.number))

    def put(self, shard: Shard, state: State, whole: Tally) -> None:
        """Store the state of a shard.

        Every 16 shards all files are merged, so that the folder does not grow with the corpus.

        Args:
            shard: The shard.
            state: Its state.
            whole: The counts of the corpus up to and including this shard.
        """
        if not self._active:
            return
        self._digests.append(shard.digest)
        if len(self._digests) % FILES:
            _write(self._file(shard.number), state, [shard.digest])
            return
        _write(self._whole, whole.state(), self._digests)
        for number in range(len(self._digests)):
            self._file(number).unlink(missing_ok=True)

    def remove(self, shards: int) -> None:
        """Remove the folder when everything is counted; files of others stay.

        Args:
            shards: Number of shards of the corpus.

        Raises:
            ValueError: If more shards are stored, so that the merged file contains other texts as well.
        """
        if not self._active:
            return
        if shards < self._merged:
            self._refuse("the corpus is shorter")
        for file in (*self._folder.glob("shard-*.safetensors"), self._whole, self._folder / _ABOUT):
            file.unlink(missing_ok=True)
        if not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _refuse(self, why: str) -> NoReturn:
        raise ValueError(
            f"checkpoint {str(self._folder)!r} is of other texts ({why}); remove it, or name another folder."
        )

    def _file(self, number: int) -> Path:
        return self._folder / f"shard-{number:06}.safetensors"

    @property
    def _whole(self) -> Path:
        return self._folder / "merged.safetensors"


def _write(path: Path, state: State, digests: Sequence[str]) -> None:
    """Write a state and the digests of its shards."""
    arrays = {name: np.ascontiguousarray(array) for name, array in state.items()}
    write_bytes(path, dump_tensors(arrays, metadata={_KEY: json.dumps(digests)}))


def _digests(path: Path) -> list[str]:
    with _opened(path) as file:
        return [str(digest) for digest in json.loads((file.metadata() or {})[_KEY])]


def _state(path: Path) -> State:
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(
            f"checkpoint: {str(path)!r} is damaged; remove it, and its texts will be counted again."
        ) from error
