"""Score a data set shard by shard: finished shards are read from disk, the rest is computed."""

from __future__ import annotations

import json
from collections import deque
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from safetensors import SafetensorError

from attnwidgets._files import write_bytes
from attnwidgets._shards import Finished, run_shards
from attnwidgets.tracing.content import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from attnwidgets.evaluate.arrays import Float

    Keyed = tuple[str, "T"]  # the key of an item's content, and the item

T = TypeVar("T")

_KEY_BYTES = 16
_ABOUT = "attnwidgets"

_UNREADABLE = (OSError, SafetensorError, KeyError, TypeError, ValueError)
_SUFFIX = ".safetensors"


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
    """The scores of a shard that remain to be computed."""

    first: int
    last: int
    groups: tuple[Group[T], ...]


@dataclass(frozen=True)
class Scored:
    """The scores of a data set.

    Attributes:
        values: By family [text, method and then baseline, metric, x].
        notes: Notes for the reader, each once.
        about: Facts that are the same for all texts.
        reused: Number of pairs of text and method that were read from the cache.
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

    A shard is read from the cache, computed, or (if some methods or texts are new) partly both. It is stored
    as soon as it and all shards before it are computed. Only numbers stay in memory.

    Args:
        shards: The texts of every shard; a stream is enough. They must not depend on `jobs`.
        score: Scores texts by methods, in the processes that `jobs` names.
        methods: Keys of the methods, in the order of the result.
        cache: Scores that were stored before.
        jobs: As `run_shards` takes it.
        desc: Text of the progress bar.
        total: Number of shards, or None.
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
            cached = cache.find(keys, methods)
            waiting.append((keys, cached))
            groups = _missing(shard, cached, methods)
            yield _Shard(count, count + len(shard) - 1, groups) if groups else Finished([])
            count += len(shard)

    hint = "" if cache.folder is None else f"What is finished is kept in {str(cache.folder.parent)!r}."
    run = run_shards(
        partial(_score_groups, score), work(), jobs, desc=desc, describe=_name, total=total, hint=hint
    )
    with closing(run) as steps:
        for _, computed in steps:
            keys, cached = waiting.popleft()
            for scores in computed:
                cache.put(scores)
            reused += sum(len(pairs) for pairs in _pairs(keys, cached, methods))
            whole = Scores.assembled(keys, methods, [*cached, *computed])
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


def _pairs(keys: Sequence[str], cached: Sequence[Scores], methods: Sequence[str]) -> list[set[str]]:
    """Return for every text the methods whose scores are cached."""
    by_text: dict[str, set[str]] = {}
    for scores in cached:
        for text in scores.texts:
            by_text.setdefault(text, set()).update(set(scores.methods) & set(methods))
    return [by_text.get(key, set()) for key in keys]


def _missing(
    shard: Sequence[Keyed[T]], cached: Sequence[Scores], methods: Sequence[str]
) -> tuple[Group[T], ...]:
    """Return the unknown scores of a shard, in groups of texts that lack the same methods."""
    groups: dict[tuple[str, ...], dict[str, T]] = {}
    pairs = _pairs([key for key, _ in shard], cached, methods)
    for (key, item), scored in zip(shard, pairs, strict=True):
        if lacking := tuple(method for method in methods if method not in scored):
            groups.setdefault(lacking, {}).setdefault(key, item)
    return tuple(Group(tuple(items.values()), tuple(items), lacking) for lacking, items in groups.items())


@dataclass(frozen=True)
class Scores:
    """Scores of texts and methods, each identified by a hash of its content.

    Attributes:
        texts: Keys of the texts, 32 hexadecimal digits.
        methods: Keys of the methods.
        values: By family [text, method and then baseline, metric, x].
        notes: Notes for the reader, for every text.
        about: Facts that are the same for all texts.
    """

    texts: tuple[str, ...]
    methods: tuple[str, ...]
    values: Mapping[str, Float]
    notes: tuple[tuple[str, ...], ...]
    about: Mapping[str, Any]

    def only(self, texts: Collection[str], methods: Collection[str]) -> Scores:
        """Return some of the texts and methods, with all baselines."""
        rows = [index for index, text in enumerate(self.texts) if text in texts]
        columns = [index for index, method in enumerate(self.methods) if method in methods]
        return Scores(
            tuple(self.texts[row] for row in rows),
            tuple(self.methods[column] for column in columns),
            {
                family: values[rows][:, [*columns, *range(len(self.methods), values.shape[1])]]
                for family, values in self.values.items()
            },
            tuple(self.notes[row] for row in rows),
            self.about,
        )

    @classmethod
    def assembled(cls, texts: Sequence[str], methods: Sequence[str], parts: Sequence[Scores]) -> Scores:
        """Return texts and methods in an order, from parts that hold every pair of them between them.

        If several parts hold a text's baselines, which differ in their last digits by batch, those stored
        with the first method by key count: always the same, however the parts are put together.
        """
        values: dict[str, Float] = {}
        notes: list[dict[str, None]] = [{} for _ in texts]
        positions: dict[str, list[int]] = {}
        for position, text in enumerate(texts):
            positions.setdefault(text, []).append(position)
        for part in sorted(parts, key=lambda part: min(part.methods), reverse=True):
            pairs = [
                (source, position)
                for source, text in enumerate(part.texts)
                for position in positions.get(text, ())
            ]
            method_pairs = [
                (source, methods.index(key)) for source, key in enumerate(part.methods) if key in methods
            ]
            source_rows, rows = ([pair[side] for pair in pairs] for side in (0, 1))
            for family, array in part.values.items():
                count = array.shape[1] - len(part.methods)
                shape = (len(texts), len(methods) + count, *array.shape[2:])
                whole = values.setdefault(family, np.full(shape, np.nan))
                baselines = [(len(part.methods) + at, len(methods) + at) for at in range(count)]
                source_columns, columns = (
                    [pair[side] for pair in [*method_pairs, *baselines]] for side in (0, 1)
                )
                whole[np.ix_(rows, columns)] = array[np.ix_(source_rows, source_columns)]
            for source, position in pairs:
                notes[position] |= dict.fromkeys(part.notes[source])
        return cls(tuple(texts), tuple(methods), values, tuple(map(tuple, notes)), parts[0].about)

    def to_bytes(self) -> bytes:
        """Return the scores as a safetensors file, the keys of texts readable by themselves."""
        from safetensors.numpy import save

        metadata = {"methods": self.methods, "notes": self.notes, "about": self.about}
        keys = np.frombuffer(bytes.fromhex("".join(self.texts)), dtype=np.uint8)
        arrays: dict[str, NDArray[Any]] = {
            f"values.{family}": np.ascontiguousarray(array) for family, array in self.values.items()
        }
        arrays["texts"] = keys.reshape(-1, _KEY_BYTES)
        return save(arrays, metadata={_ABOUT: json.dumps(metadata)})

    @classmethod
    def from_file(cls, path: Any) -> Scores:
        """Return the scores that `to_bytes` wrote; a damaged file raises different errors."""
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            metadata = json.loads(file.metadata()[_ABOUT])
            names = [name for name in file.keys() if name != "texts"]  # noqa: SIM118 - not a mapping
            return cls(
                tuple(row.tobytes().hex() for row in file.get_tensor("texts")),
                tuple(metadata["methods"]),
                {name.removeprefix("values."): file.get_tensor(name) for name in sorted(names)},
                tuple(map(tuple, metadata["notes"])),
                metadata["about"],
            )


def keys_in(path: Any) -> tuple[NDArray[np.uint8], frozenset[str]]:
    """Return the keys of a file's texts [text, byte] and methods, without its scores, as `from_file` does."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        metadata = json.loads(file.metadata()[_ABOUT])
        texts: NDArray[np.uint8] = file.get_tensor("texts")
        return texts.reshape(-1, _KEY_BYTES), frozenset(metadata["methods"])


class ScoreCache:
    """A folder with a file for every shard; without a folder nothing is stored.

    A file is written under another name and then moved, so that an interrupt leaves no partial file and any
    number of processes may share the folder. An unreadable file counts as absent.

    Args:
        folder: The folder, or None.
        about: A hash of all that scores depend on except texts and methods.
    """

    def __init__(self, folder: Any, about: str) -> None:
        self.folder = None if folder is None else Path(folder) / about
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        self._read = lru_cache(maxsize=4)(_read)  # shards cut otherwise share files

    def find(self, texts: Sequence[str], methods: Sequence[str]) -> list[Scores]:
        """Return the stored scores of texts and methods, by their keys."""
        if self.folder is None:
            return []
        whole = _read(self._path(texts, methods))
        if whole is not None and set(whole.texts) == set(texts) and set(whole.methods) == set(methods):
            return [whole]
        missing = {text: set(methods) for text in texts}
        parts = []
        for path, stored in self._index.files_of(texts):
            needed = [text for text in missing if missing[text] & stored]
            scores = self._read(path) if needed else None
            if scores is None:
                continue
            parts.append(scores.only(needed, methods))
            for text in parts[-1].texts:
                missing[text] -= stored
        return parts

    def put(self, scores: Scores) -> None:
        """Keep a shard's scores."""
        if self.folder is not None:
            path = self._path(scores.texts, scores.methods)
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, scores.to_bytes())

    def _path(self, texts: Sequence[str], methods: Sequence[str]) -> Path:
        """Return a shard's file, in one of 256 folders: file systems are slow with too many files in each."""
        if self.folder is None:  # never called then
            raise AssertionError
        name = key_of(sorted(set(texts)), sorted(methods))
        return self.folder / name[:2] / f"{name[2:]}{_SUFFIX}"

    @cached_property
    def _index(self) -> _Index:
        return _Index(sorted(self.folder.rglob(f"*{_SUFFIX}")) if self.folder is not None else [])


class _Index:
    """The files that hold a text: 24 bytes per text and file, read once, for shards without a file."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files: list[tuple[Path, frozenset[str]]] = []
        keys, files = [np.empty((0, 16), dtype=np.uint8)], [np.empty(0, dtype=np.int64)]
        for path in paths:
            try:
                texts, methods = keys_in(path)
            except _UNREADABLE:
                continue
            keys.append(texts)
            files.append(np.full(len(texts), len(self._files)))
            self._files.append((path, methods))
        comparable = _comparable(np.concatenate(keys))
        order = np.argsort(comparable, kind="stable")
        self._keys, self._numbers = comparable[order], np.concatenate(files)[order]

    def files_of(self, texts: Sequence[str]) -> list[tuple[Path, frozenset[str]]]:
        """Return the files that hold any of some texts, and the methods in each."""
        keys = np.frombuffer(bytes.fromhex("".join(texts)), dtype=np.uint8).reshape(-1, 16)
        left, right = (np.searchsorted(self._keys, _comparable(keys), side) for side in ("left", "right"))
        numbers = {int(number) for a, b in zip(left, right, strict=True) for number in self._numbers[a:b]}
        return [self._files[number] for number in sorted(numbers)]


def _comparable(keys: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    """Return keys [text, byte] as strings of bytes [text]."""
    return np.ascontiguousarray(keys).view("S16").reshape(-1)


def _read(path: Path) -> Scores | None:
    """Return a file's scores; None if it cannot be read."""
    try:
        return Scores.from_file(path)
    except _UNREADABLE:
        return None
