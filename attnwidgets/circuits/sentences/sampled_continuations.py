"""Continuations of a text, many from each of several tokens on: drawn together over one cache, and stored."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._files import write_bytes
from attnwidgets._progress import progress, report
from attnwidgets._tensors import widened
from attnwidgets.circuits.sentences.suppression import Suffixes
from attnwidgets.tracing.content import fingerprint_of, key_of
from attnwidgets.tracing.continuations import require_sampling
from attnwidgets.tracing.pass_memory import together
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.continuation import greedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

_DESC = "writing continuations"
_LIKELIEST = 256  # tokens that are sorted first: they mostly hold the share `top_p` of the probability


@dataclass(frozen=True)
class Sampling:
    """How continuations are drawn.

    Attributes:
        draws: Number of continuations from each token.
        temperature: Logits are divided by it.
        top_p: Tokens are drawn among the fewest whose probabilities reach this sum.
        seed: Seed of the random numbers.
    """

    draws: int
    temperature: float
    top_p: float
    seed: int

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"draws must be 1 or more, not {self.draws}.")
        require_sampling(self.temperature, self.top_p)
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, not {self.seed}.")


@dataclass(frozen=True)
class Drawn:
    """The continuations from one token on.

    Attributes:
        ids: The new tokens of each, without the one that ended it.
        ended: Whether the model ended each; otherwise it reached the number of tokens.
    """

    ids: tuple[tuple[int, ...], ...]
    ended: tuple[bool, ...]


def sampled(
    trace: Trace, cuts: Sequence[tuple[int, int]], sampling: Sampling, folder: Any = None
) -> list[Drawn]:
    """Return continuations of a text from several tokens on.

    Continuations of a text share its keys and values where the cache of the model can be cut. Elsewhere each
    row reads the text itself. Torch's random numbers are not used.

    Args:
        trace: A trace with its model and logits, of token ids alone.
        cuts: For each: the number of tokens that are kept, and the largest number of new ones.
        sampling: How continuations are drawn.
        folder: Where finished ones are stored and read; None: nowhere.
    """
    from attnwidgets._version import __version__

    ids = trace.inputs["input_ids"][0].tolist()
    about = None if folder is None else key_of(__version__, fingerprint_of(trace.model), sampling)
    results: list[Drawn] = []
    with ExitStack() as exits:
        done = exits.enter_context(closing(_Done(sampling.draws * len(cuts))))
        writer: _Writer | None = None
        for number, (kept, new) in enumerate(cuts):
            path = None if folder is None else Path(folder) / f"{key_of(about, ids[:kept], number, new)}.json"
            drawn = None if path is None else _stored(path)
            if drawn is None:
                writer = writer or exits.enter_context(_Writer(trace, sampling, done))
                drawn = writer.draw(ids[:kept], new, number)
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_bytes(path, json.dumps([drawn.ids, drawn.ended]).encode())
            else:
                done.add(len(drawn.ids))
            results.append(drawn)
    return results


class _Done:
    """How many continuations are done, on a progress bar, and to an observer at every token.

    Args:
        total: How many there are.
    """

    def __init__(self, total: int) -> None:
        self._count, self._total = 0, total
        self._steps = progress(range(total), _DESC)
        next(self._steps, None)  # a step is reported when the next begins

    def add(self, count: int) -> None:
        """Report that some more are done, or, without any, that the work goes on."""
        for _ in range(count):
            next(self._steps, None)
        self._count += count
        report(self._count, self._total, _DESC)

    def close(self) -> None:
        """Remove the bar."""
        self._steps.close()


def _stored(path: Path) -> Drawn | None:
    """Return continuations from a file; None if there is none that can be read."""
    try:
        ids, ended = json.loads(path.read_bytes())
        return Drawn(tuple(map(tuple, ids)), tuple(ended))
    except (OSError, ValueError, TypeError):
        return None


class _Writer:
    """Context manager: continues a text, many rows at once.

    Args:
        trace: The trace of the text.
        sampling: How continuations are drawn.
        done: Counts the continuations.
    """

    def __init__(self, trace: Trace, sampling: Sampling, done: _Done) -> None:
        self._trace, self._sampling, self._done = trace, sampling, done
        self._model = unwrap(trace.model)
        self._suffixes = Suffixes(trace, trace.default_stack)
        ends = greedy(self._model, 1).eos_token_id
        self._ends = set(ends if isinstance(ends, list) else [ends])

    def __enter__(self) -> Self:
        self._suffixes.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._suffixes.__exit__(*exception)

    def draw(self, ids: list[int], new: int, number: int) -> Drawn:
        """Return continuations of some tokens.

        Args:
            ids: The tokens.
            new: Largest number of new ones.
            number: Continuations of other numbers are drawn independently.
        """
        draws = self._sampling.draws
        uniforms = np.random.default_rng([self._sampling.seed, number]).random((draws, new))
        longer = max(1.0, (len(ids) + new) / len(self._trace.tokens))
        size = max(
            1, int(together(self._model, self._trace, math.ceil(draws * longer), graph=False) / longer)
        )
        texts: list[tuple[int, ...]] = []
        for start in range(0, draws, size):
            texts += self._rows(ids, uniforms[start : start + size])
        ended = tuple(bool(text) and text[-1] in self._ends for text in texts)
        return Drawn(tuple(text[: len(text) - end] for text, end in zip(texts, ended, strict=True)), ended)

    def _rows(self, ids: list[int], uniforms: Float) -> list[tuple[int, ...]]:
        """Return the new tokens of some rows, each with the token that ended it.

        Args:
            ids: The tokens before.
            uniforms: Random numbers from 0 to 1 [row, new token].
        """
        device = self._trace.inputs["input_ids"].device
        cache = self._suffixes.prefix(len(ids) - 1, len(uniforms))
        shared = cache is not None
        cached = len(ids) - 1 if shared else 0
        texts = torch.tensor([ids] * len(uniforms), device=device)
        results: dict[int, tuple[int, ...]] = {}
        rows = np.arange(len(uniforms))  # those that are still run
        for step in range(uniforms.shape[1]):
            logits, cache = self._suffixes.next_logits(texts[:, cached:], cache)
            cached = 0 if cache is None else texts.shape[1]
            texts = torch.cat([texts, draw_tokens(logits, uniforms[rows, step], self._sampling)], dim=1)
            is_last = step + 1 == uniforms.shape[1]
            ended = np.array([is_last or token in self._ends for token in texts[:, -1].tolist()])
            new = [at for at in np.flatnonzero(ended) if rows[at] not in results]
            results |= {rows[at]: tuple(texts[at, len(ids) :].tolist()) for at in new}
            self._done.add(len(new))
            if len(results) == len(uniforms):
                break
            if ended.any() and (shared or cache is None):  # states of other caches cannot be taken apart
                left = torch.from_numpy(np.flatnonzero(~ended)).to(device)
                rows, texts = rows[~ended], texts[left]
                if cache is not None:
                    cache.batch_select_indices(left)
        return [results[row] for row in range(len(uniforms))]


def draw_tokens(logits: torch.Tensor, uniforms: Float, sampling: Sampling) -> torch.Tensor:
    """Return a token for every row [row, 1].

    It is the first whose cumulated probability, from the most probable on, exceeds the random number times
    that of all tokens that may be drawn.

    Args:
        logits: [row, vocabulary].
        uniforms: Random numbers from 0 to 1 [row].
        sampling: Temperature and `top_p`.
    """
    p = (widened(logits) / sampling.temperature).softmax(-1)
    count = p.shape[-1]
    size = min(count, _LIKELIEST)
    values, order = p.topk(size)
    if bool((values.sum(-1) < sampling.top_p).any()) and size < count:
        values, order = p.topk(count)
    total = values.cumsum(-1)
    # The most probable is always kept: the sum before it is 0.
    kept = (total - values < sampling.top_p).sum(-1, keepdim=True)
    shares = torch.tensor(uniforms[:, None], dtype=total.dtype, device=total.device)
    at = torch.searchsorted(total, shares * total.gather(1, kept - 1), right=True)
    return order.gather(1, torch.minimum(at, kept - 1))
