"""Harvest: the states of a corpus at a hook point, stored on disk for access in any order.

A pass over the corpus writes the states of the tokens that count to a float32 file, which `States` reads as a
memory map, reshuffled in every epoch. Every tenth text is held out for measurements. A description next to
the file says of which model, hook point and texts the states are; a later run reuses them only if all agree.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Sized
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save as dump_tensors

from attnwidgets._files import write_bytes
from attnwidgets._progress import progress
from attnwidgets.sae.corpus import Digest, batches, counted_states, text_of
from attnwidgets.sae.dependencies import require_same
from attnwidgets.tracing.hooks.hook import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from attnwidgets.sae.corpus import Corpus, Window
    from attnwidgets.tracing.hooks.hook_point import HookPoint

HELD_OUT = 8192
"""Number of tokens held out of training for measurements."""
_EVERY = 10  # every tenth text is held out
_FEW = 20  # with fewer texts, windows are held out instead
_BATCH = 4096  # tokens in a batch of the model, with padding
_SORT = 16  # number of batches over which windows are sorted by length
_STATES, _ABOUT = "states.f32", "harvest.safetensors"


class States:
    """States [token, width] in a float32 file, and held-out states in memory.

    Args:
        path: The file.
        tokens: Number of states in it.
        held_out: Held-out states [token, width].
        mean: Mean of the states in the file [width].
        norm: Mean length of the states in the file.
    """

    def __init__(self, path: Path, tokens: int, held_out: Tensor, mean: Tensor, norm: float) -> None:
        self.path, self.tokens, self.held_out, self.mean, self.norm = path, tokens, held_out, mean, norm
        self._rows: NDArray[np.float32] = np.memmap(
            path, dtype=np.float32, mode="r", shape=(tokens, held_out.shape[-1])
        )

    @property
    def width(self) -> int:
        """Width of a state."""
        return int(self.held_out.shape[-1])

    def batch(self, step: int, size: int, seed: int) -> Tensor:
        """Return the batch of a step [size, width]; tokens are reshuffled in every epoch."""
        per_epoch = self.tokens // size
        epoch, index = divmod(step, per_epoch)
        rows = self._order(epoch, seed)[index * size : (index + 1) * size]
        return torch.from_numpy(self._rows[np.sort(rows)])

    def _order(self, epoch: int, seed: int) -> NDArray[np.int64]:
        if getattr(self, "_epoch", None) != (epoch, seed):
            self._epoch = (epoch, seed)
            self._permutation = np.random.default_rng([seed, epoch]).permutation(self.tokens)
        return self._permutation

    def remove(self) -> None:
        """Delete the files."""
        self._rows = np.zeros((0, self.width), dtype=np.float32)  # some systems do not delete a mapped file
        for name in (_STATES, _ABOUT):
            (self.path.parent / name).unlink(missing_ok=True)


def by_windows(texts: Any) -> bool:
    """Return whether windows are held out instead of whole texts, because there are few texts."""
    return isinstance(texts, Sized) and len(texts) < _FEW


def harvest(
    model: nn.Module,
    corpus: Corpus,
    hook_point: HookPoint,
    folder: Path,
    *,
    max_tokens: int | None,
    about: Mapping[str, Any],
) -> States:
    """Return the states of the tokens that count, from the folder if an earlier run stored them.

    Every tenth text is held out (with fewer than twenty texts, every tenth window).

    Args:
        model: The model, borrowed.
        corpus: The texts.
        hook_point: The hook point of the states.
        folder: Folder for the files.
        max_tokens: Largest number of tokens to train on.
        about: Everything the states depend on except the texts; see `attnwidgets.sae.dependencies`.

    Raises:
        OSError: If the disk is full; partial files are removed.
        ValueError: If a state is NaN or infinite, no token counts, or the folder contains other states.
    """
    stored = _load_stored(corpus, folder, about)
    if stored is not None:
        return stored
    path = folder / _STATES
    digest = Digest()
    try:
        states = _write_states(model, corpus, hook_point, path, max_tokens, digest)
        described = json.dumps({
            "about": about,
            "tokens": states.tokens,
            "norm": states.norm,
            "texts": digest.texts,
            "digest": str(digest),
            "ended": max_tokens is None or states.tokens < max_tokens,
        })  # fmt: skip
        tensors = {"held_out": states.held_out, "mean": states.mean}
        write_bytes(folder / _ABOUT, dump_tensors(tensors, metadata={"attnwidgets": described}))
    except OSError as error:
        size = path.stat().st_size if path.exists() else 0
        path.unlink(missing_ok=True)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise OSError(
            error.errno,
            f"the disk of {str(folder)!r} is full: {size / 1e6:.0f} MB of states were written and have been "
            "removed. Pass folder= on another disk, or a smaller max_tokens=",
        ) from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return states


def _load_stored(corpus: Corpus, folder: Path, about: Mapping[str, Any]) -> States | None:
    """Return the states of an earlier run if complete; raise ValueError if these are other states."""
    if not (folder / _ABOUT).is_file() or not (folder / _STATES).is_file():
        return None
    with safe_open(folder / _ABOUT, framework="pt") as file:
        described = json.loads(file.metadata()["attnwidgets"])
        held_out, mean = file.get_tensor("held_out"), file.get_tensor("mean")
    require_same(folder, described["about"], about)
    size = described["tokens"] * held_out.shape[-1] * 4
    if (folder / _STATES).stat().st_size != size:
        return None
    if not _same_texts(corpus, described["texts"], described["digest"], ended=described["ended"]):
        require_same(folder, {**about, "texts": ""}, about)
    return States(folder / _STATES, described["tokens"], held_out, mean, described["norm"])


def _same_texts(corpus: Corpus, count: int, digest: str, *, ended: bool) -> bool:
    """Return whether a corpus begins with the texts read before, and ends there if it had `ended`."""
    texts = iter(progress(corpus.texts, "comparing texts", count))
    read_texts = Digest()
    for row in islice(texts, count):
        read_texts.add(text_of(row, spelled=corpus.tokenizer is not None))
    return str(read_texts) == digest and not (ended and next(texts, None) is not None)


def _write_states(
    model: nn.Module,
    corpus: Corpus,
    hook_point: HookPoint,
    path: Path,
    max_tokens: int | None,
    digest: Digest,
) -> States:
    """Return the states of a corpus, written to a file."""
    tokens, length = 0, 0.0
    total: Tensor | None = None
    held_out_states: list[Tensor] = []
    window_batches = _windows(corpus, lambda: sum(map(len, held_out_states)) < HELD_OUT, max_tokens, digest)
    with path.open("wb") as file, reading(model, hook_point) as read, closing(window_batches):
        for windows, is_held_out in window_batches:
            states = counted_states(read(**corpus.inputs(windows)), windows).float().cpu()
            if not bool(torch.isfinite(states).all()):
                raise ValueError(
                    f"states at {hook_point.name!r} are NaN or infinite; check the model's weights and "
                    "precision."
                )
            if is_held_out:
                held_out_states.append(states)
                continue
            room = len(states) if max_tokens is None else max_tokens - tokens
            states = states[:room]
            file.write(states.numpy().tobytes())
            tokens += len(states)
            length += float(states.norm(dim=-1).double().sum())
            total = states.double().sum(0) if total is None else total + states.double().sum(0)
            if max_tokens is not None and tokens >= max_tokens:
                break
    if total is None or not tokens:
        raise ValueError("texts contain no token that counts; pass at least one text of several words.")
    held_out = torch.cat(held_out_states)[:HELD_OUT] if held_out_states else torch.zeros(0, len(total))
    return States(path, tokens, held_out, total / tokens, length / tokens)


def _windows(
    corpus: Corpus, more_held_out: Callable[[], bool], max_tokens: int | None, digest: Digest
) -> Generator[tuple[list[Window], bool]]:
    """Yield batches of windows, and whether they are held out; those only while more are needed."""
    texts = corpus.texts
    bar = progress(texts, "reading states", len(texts) if isinstance(texts, Sized) else None)
    corpus.texts = digest.reading(text_of(row, spelled=corpus.tokenizer is not None) for row in bar)
    try:
        yield from _pools(corpus, by_windows(texts), more_held_out, max_tokens)
    finally:
        corpus.texts = texts
        bar.close()


def _pools(
    corpus: Corpus, few: bool, more_held_out: Callable[[], bool], max_tokens: int | None
) -> Iterator[tuple[list[Window], bool]]:
    """Yield the batches of `_windows`, sorted by length within pools of windows."""
    size = _BATCH * _SORT if max_tokens is None else min(_BATCH * _SORT, max_tokens)
    numbered = enumerate(corpus.windows())
    more = True
    while more:
        pool: list[Window] = []
        held_out: list[Window] = []
        tokens = 0
        for number, window in numbered:
            is_held_out = (number if few else window.text) % _EVERY == _EVERY - 1
            (held_out if is_held_out else pool).append(window)
            tokens += 0 if is_held_out else len(window.ids)
            if tokens >= size:
                break
        else:
            more = False
        if more_held_out():
            yield from ((batch, True) for batch in batches(held_out, _BATCH, sort=_SORT))
        yield from ((batch, False) for batch in batches(pool, _BATCH, sort=_SORT))
