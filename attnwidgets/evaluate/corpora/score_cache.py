"""Scores kept on disk as finished shards, looked up by the content of texts and methods."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from attnwidgets._files import write_bytes
from attnwidgets.evaluate.corpora.scores import Scores, keys_in
from attnwidgets.tracing.content import key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_UNREADABLE = (OSError, SafetensorError, KeyError, TypeError, ValueError)
_SUFFIX = ".safetensors"


class ScoreCache:
    """A folder with a file for every shard; without a folder nothing is kept.

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
        """Return the kept scores of texts and methods, by their keys."""
        if self.folder is None:
            return []
        whole = _read(self._path(texts, methods))
        if whole is not None and set(whole.texts) == set(texts) and set(whole.methods) == set(methods):
            return [whole]
        wanted = {text: set(methods) for text in texts}
        parts = []
        for path, known in self._index.files_of(texts):
            needed = [text for text in wanted if wanted[text] & known]
            scores = self._read(path) if needed else None
            if scores is None:
                continue
            parts.append(scores.only(needed, methods))
            for text in parts[-1].texts:
                wanted[text] -= known
        return parts

    def put(self, scores: Scores) -> None:
        """Keep a shard's scores."""
        if self.folder is not None:
            path = self._path(scores.texts, scores.methods)
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, scores.to_bytes())

    def _path(self, texts: Sequence[str], methods: Sequence[str]) -> Path:
        """Return a shard's file, in one of 256 folders: file systems are slow with very many in one."""
        if self.folder is None:  # never called then
            raise AssertionError
        name = key_of(sorted(set(texts)), sorted(methods))
        return self.folder / name[:2] / f"{name[2:]}{_SUFFIX}"

    @cached_property
    def _index(self) -> _Index:
        return _Index(sorted(self.folder.rglob(f"*{_SUFFIX}")) if self.folder is not None else [])


class _Index:
    """Which files hold a text: 24 bytes per text and file, read once, for shards without their own file."""

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
