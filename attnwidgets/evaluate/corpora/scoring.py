"""A data set scored shard by shard: what is kept is read, the rest computed, all of it in order."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from attnwidgets._shards import Finished, run_shards
from attnwidgets.evaluate.corpora.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from attnwidgets.evaluate.corpora.score_cache import ScoreCache

    Keyed = tuple[str, "T"]  # the key of an item's content, and the item

T = TypeVar("T")


@dataclass(frozen=True)
class Group(Generic[T]):
    """Texts of a shard that lack the same methods.

    Attributes:
        items: The texts, each once.
        keys: The keys of their content.
        methods: The keys of the methods.
    """

    items: tuple[T, ...]
    keys: tuple[str, ...]
    methods: tuple[str, ...]


@dataclass(frozen=True)
class _Shard(Generic[T]):
    """What is computed of one shard."""

    first: int
    last: int
    groups: tuple[Group[T], ...]


@dataclass(frozen=True)
class Scored:
    """The scores of a data set.

    Attributes:
        values: By family [text, method and then baseline, metric, x].
        notes: What a reader must know, each once.
        about: What else is the same for all texts.
        reused: How many pairs of text and method were kept.
    """

    values: Mapping[str, NDArray[np.float64]]
    notes: tuple[str, ...]
    about: Mapping[str, Any]
    reused: int


def score_shards(
    shards: Iterable[Sequence[Keyed[T]]],
    score: Callable[[Group[T]], Scores],
    methods: Sequence[str],
    cache: ScoreCache,
    jobs: int | Executor,
    *,
    desc: str,
    total: int | None = None,
) -> Scored | None:
    """Return what methods score on a data set, in its order; None where it is empty.

    A shard is read from the cache, computed, or (where some methods or texts are new) in parts both. It is
    kept as soon as it is computed and all before it are. Only numbers stay in memory.

    Args:
        shards: The texts of every shard; a stream is enough. What they are must not depend on `jobs`.
        score: Scores texts by methods. It runs where `jobs` says.
        methods: Keys of the methods, in the order of the result.
        cache: What is kept, and will be.
        jobs: As `run_shards` takes it.
        desc: What is being done.
        total: How many shards there are, where known.
    """
    waiting: deque[tuple[list[str], list[Scores]]] = deque()
    collected: dict[str, list[NDArray[np.float64]]] = {}
    notes: dict[str, None] = {}
    about: Mapping[str, Any] = {}
    reused = 0

    def asked() -> Iterator[_Shard[T] | Finished[list[Scores]]]:
        count = 0
        for shard in shards:
            keys = [key for key, _ in shard]
            known = cache.find(keys, methods)
            waiting.append((keys, known))
            groups = _missing(shard, known, methods)
            yield _Shard(count, count + len(shard) - 1, groups) if groups else Finished([])
            count += len(shard)

    kept = "" if cache.folder is None else f"What is finished is kept in {str(cache.folder.parent)!r}."
    run = run_shards(
        partial(_score_groups, score), asked(), jobs, desc=desc, describe=_said, total=total, kept=kept
    )
    with closing(run) as steps:
        for _, made in steps:
            keys, known = waiting.popleft()
            for one in made:
                cache.put(one)
            reused += sum(len(pairs) for pairs in _pairs(keys, known, methods))
            whole = Scores.assembled(keys, methods, [*known, *made])
            about = about or whole.about
            notes |= dict.fromkeys(note for own in whole.notes for note in own)
            for family, array in whole.values.items():
                collected.setdefault(family, []).append(array)
    if not collected:
        return None
    values = {family: np.concatenate(collected.pop(family)) for family in list(collected)}
    return Scored(values, tuple(notes), about, reused)


def _score_groups(score: Callable[[Group[T]], Scores], shard: _Shard[T]) -> list[Scores]:
    return [score(group) for group in shard.groups]


def _said(shard: Any) -> str:
    """Return what a shard is called in errors."""
    return f"texts {shard.first} to {shard.last}"


def _pairs(keys: Sequence[str], known: Sequence[Scores], methods: Sequence[str]) -> list[set[str]]:
    """Return for every text the methods that are known."""
    found: dict[str, set[str]] = {}
    for one in known:
        for text in one.texts:
            found.setdefault(text, set()).update(set(one.methods) & set(methods))
    return [found.get(key, set()) for key in keys]


def _missing(
    shard: Sequence[Keyed[T]], known: Sequence[Scores], methods: Sequence[str]
) -> tuple[Group[T], ...]:
    """Return what is not known of a shard, in groups of texts that lack the same methods."""
    groups: dict[tuple[str, ...], dict[str, T]] = {}
    pairs = _pairs([key for key, _ in shard], known, methods)
    for (key, item), own in zip(shard, pairs, strict=True):
        if lacking := tuple(method for method in methods if method not in own):
            groups.setdefault(lacking, {}).setdefault(key, item)
    return tuple(Group(tuple(items.values()), tuple(items), lacking) for lacking, items in groups.items())
