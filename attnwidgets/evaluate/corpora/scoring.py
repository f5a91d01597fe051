"""Score a data set shard by shard: read what is kept, compute the rest, return all in order."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from attnwidgets._shards import Finished, run_shards
from attnwidgets.evaluate.corpora.scores import Scores
from attnwidgets.tracing.content import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from attnwidgets.evaluate.arrays import Float
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


class MethodKeys:
    """Methods by the keys of their content: methods that are equal are scored once.

    Args:
        specs: The methods by name.
    """

    def __init__(self, specs: Mapping[str, Any]) -> None:
        self.specs = dict(specs)
        self._keys = {name: key_of(spec) for name, spec in specs.items()}
        self._names = {key: name for name, key in reversed(self._keys.items())}

    @property
    def distinct(self) -> list[str]:
        """The keys, each once."""
        return list(dict.fromkeys(self._keys.values()))

    def specs_of(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return methods with their names, by their keys."""
        return {self._names[key]: self.specs[self._names[key]] for key in keys}

    def rows(self, values: Float) -> Float:
        """Return scores of distinct methods [text, method and then baseline, ...] as those of all methods."""
        methods = [self.distinct.index(key) for key in self._keys.values()]
        return values[:, [*methods, *range(len(self.distinct), values.shape[1])]]


@dataclass(frozen=True)
class _Shard(Generic[T]):
    """What remains to be computed for one shard."""

    first: int
    last: int
    groups: tuple[Group[T], ...]


@dataclass(frozen=True)
class Scored:
    """The scores of a data set.

    Attributes:
        values: By family [text, method and then baseline, metric, x].
        notes: Notes for the reader, each once.
        about: What is the same for all texts.
        reused: Number of pairs of text and method that were kept.
    """

    values: Mapping[str, Float]
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
    """Return the scores of methods on a data set, in its order; None if it is empty.

    A shard is read from the cache, computed, or (if some methods or texts are new) partly both. It is kept as
    soon as it and all shards before it are computed. Only numbers stay in memory.

    Args:
        shards: The texts of every shard; a stream is enough. They must not depend on `jobs`.
        score: Scores texts by methods, in the processes that `jobs` names.
        methods: Keys of the methods, in the order of the result.
        cache: Scores that are kept.
        jobs: As `run_shards` takes it.
        desc: Text of the progress bar.
        total: Number of shards, if known.
    """
    waiting: deque[tuple[list[str], list[Scores]]] = deque()
    collected: dict[str, list[Float]] = {}
    notes: dict[str, None] = {}
    about: Mapping[str, Any] = {}
    reused = 0

    def work() -> Iterator[_Shard[T] | Finished[list[Scores]]]:
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
        partial(_score_groups, score), work(), jobs, desc=desc, describe=_name, total=total, kept=kept
    )
    with closing(run) as steps:
        for _, made in steps:
            keys, known = waiting.popleft()
            for scores in made:
                cache.put(scores)
            reused += sum(len(pairs) for pairs in _pairs(keys, known, methods))
            whole = Scores.assembled(keys, methods, [*known, *made])
            about = about or whole.about
            notes |= dict.fromkeys(note for text_notes in whole.notes for note in text_notes)
            for family, array in whole.values.items():
                collected.setdefault(family, []).append(array)
    if not collected:
        return None
    values = {family: np.concatenate(collected.pop(family)) for family in list(collected)}
    return Scored(values, tuple(notes), about, reused)


def _score_groups(score: Callable[[Group[T]], Scores], shard: _Shard[T]) -> list[Scores]:
    return [score(group) for group in shard.groups]


def _name(shard: Any) -> str:
    """Return the name of a shard in errors."""
    return f"texts {shard.first} to {shard.last}"


def _pairs(keys: Sequence[str], known: Sequence[Scores], methods: Sequence[str]) -> list[set[str]]:
    """Return for every text the methods whose scores are known."""
    by_text: dict[str, set[str]] = {}
    for scores in known:
        for text in scores.texts:
            by_text.setdefault(text, set()).update(set(scores.methods) & set(methods))
    return [by_text.get(key, set()) for key in keys]


def _missing(
    shard: Sequence[Keyed[T]], known: Sequence[Scores], methods: Sequence[str]
) -> tuple[Group[T], ...]:
    """Return the unknown scores of a shard, in groups of texts that lack the same methods."""
    groups: dict[tuple[str, ...], dict[str, T]] = {}
    pairs = _pairs([key for key, _ in shard], known, methods)
    for (key, item), scored in zip(shard, pairs, strict=True):
        if lacking := tuple(method for method in methods if method not in scored):
            groups.setdefault(lacking, {}).setdefault(key, item)
    return tuple(Group(tuple(items.values()), tuple(items), lacking) for lacking, items in groups.items())
