"""A checkpoint of statistics: a folder of shards that are counted."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as dump_tensors

from attnwidgets._files import write_bytes
from attnwidgets.sae.dependencies import require_same

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from attnwidgets.sae.corpus_statistics.counting import Shard
    from attnwidgets.sae.corpus_statistics.tally import Tally

    State = Mapping[str, NDArray[Any]]

FILES = 16
"""Shards whose files become one with those before."""
_ABOUT = "statistics.json"
_KEY = "attnwidgets"


class Checkpoint:
    """A folder of shards that are counted, and what they are about.

    Args:
        path: The folder; it is made where it is not there. None: nothing is kept.
        about: What counts depend on beside the texts; see `attnwidgets.sae.dependencies`.

    Raises:
        ValueError: Where the folder is about something else, or is none.
        FileNotFoundError: Where the folder to make it in does not exist.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self._path = path
        self._digests: list[str] = []  # of the shards from the first on
        self._merged = 0  # how many of them one file holds
        if path is None:
            return
        if path.is_file():
            raise ValueError(
                f"checkpoint {str(path)!r} is a file, as an earlier version wrote it, and cannot be gone on "
                "from; remove it, or name a folder for the shards of the corpus."
            )
        if not path.parent.is_dir():
            raise FileNotFoundError(f"checkpoint {str(path)!r} lies in a folder that does not exist.")
        path.mkdir(exist_ok=True)
        if (path / _ABOUT).is_file():
            self._require(path, about)
            if self._whole.exists():
                self._digests = _digests(self._whole)
                self._merged = len(self._digests)
        elif any(path.iterdir()):
            raise ValueError(f"checkpoint {str(path)!r} is a folder that holds something else; name another.")
        else:
            write_bytes(path / _ABOUT, json.dumps(about, indent=1).encode())

    @staticmethod
    def _require(path: Path, about: Mapping[str, Any]) -> None:
        try:
            kept = json.loads((path / _ABOUT).read_bytes())
        except ValueError as error:
            raise ValueError(f"checkpoint {str(path)!r} is damaged ({_ABOUT}); remove it.") from error
        require_same(path, kept, about)

    @property
    def said(self) -> str:
        """A sentence about what is kept, for errors."""
        return (
            "" if self._path is None else f"What is counted lies in {str(self._path)!r}; call again to go on."
        )

    def holds(self, shard: Shard) -> bool:
        """Return whether a shard is counted.

        Raises:
            ValueError: Where the shard of that number has other texts, or its file is damaged.
        """
        if self._path is None:
            return False
        if shard.number < self._merged:
            digest = self._digests[shard.number]
        elif self._file(shard.number).exists():
            (digest,) = _digests(self._file(shard.number))
        else:
            return False
        if digest != shard.digest:
            self._refuse(f"{shard.name} are not those that were counted")
        return True

    def get(self, shard: Shard) -> State | None:
        """Return the state of a shard that is counted; with the first, that of all that one file holds.

        Shards are got and put in their order, each once.

        Returns:
            The state, or None for one that is in that of the first.
        """
        if shard.number < self._merged:
            return None if shard.number else _state(self._whole)
        self._digests.append(shard.digest)
        return _state(self._file(shard.number))

    def put(self, shard: Shard, state: State, whole: Tally) -> None:
        """Keep the state of a shard.

        Every 16 shards the files of all that are counted become one, so that the folder does not grow with
        the corpus.

        Args:
            shard: The shard.
            state: Its state.
            whole: What is counted of the corpus up to and with it.
        """
        if self._path is None:
            return
        self._digests.append(shard.digest)
        if len(self._digests) % FILES:
            _write(self._file(shard.number), state, [shard.digest])
            return
        _write(self._whole, whole.state(), self._digests)
        for number in range(len(self._digests)):
            self._file(number).unlink(missing_ok=True)

    def remove(self, shards: int) -> None:
        """Remove the folder, once all is counted; files that are not ours stay.

        Args:
            shards: How many there were.

        Raises:
            ValueError: Where more are counted, so that what was merged holds other texts as well.
        """
        if self._path is None:
            return
        if shards < self._merged:
            self._refuse("the corpus ends before those that were counted")
        for file in (*self._path.glob("shard-*.safetensors"), self._whole, self._path / _ABOUT):
            file.unlink(missing_ok=True)
        if not any(self._path.iterdir()):
            self._path.rmdir()

    def _refuse(self, why: str) -> NoReturn:
        raise ValueError(
            f"checkpoint {str(self._path)!r} is of other texts ({why}); remove it, or name another folder."
        )

    def _file(self, number: int) -> Path:
        return self._folder / f"shard-{number:06}.safetensors"

    @property
    def _whole(self) -> Path:
        return self._folder / "merged.safetensors"

    @property
    def _folder(self) -> Path:
        if self._path is None:  # nobody asks then
            raise AssertionError
        return self._path


def _write(path: Path, state: State, digests: Sequence[str]) -> None:
    """Write a state and the digests of its shards."""
    arrays = {name: np.ascontiguousarray(array) for name, array in state.items()}
    write_bytes(path, dump_tensors(arrays, metadata={_KEY: json.dumps(digests)}))


def _digests(path: Path) -> list[str]:
    with _opened(path) as file:
        return [str(digest) for digest in json.loads((file.metadata() or {})[_KEY])]


def _state(path: Path) -> State:
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(
            f"checkpoint: {str(path)!r} is damaged; remove it, and its texts are counted again."
        ) from error
