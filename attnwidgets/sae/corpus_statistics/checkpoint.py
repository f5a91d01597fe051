"""Checkpoint of corpus statistics: a folder with the counts of finished shards."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as dump_tensors

from attnwidgets._files import write_bytes
from attnwidgets.sae.dependencies import require_same

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.sae.corpus_statistics.counting import Shard
    from attnwidgets.sae.corpus_statistics.tally import Tally

    State = Mapping[str, NDArray[Any]]

FILES = 16
"""After this many shards, their files are merged into one with the earlier ones."""
_ABOUT = "statistics.json"
_KEY = "attnwidgets"


class Checkpoint:
    """A folder with the counts of finished shards, and a description of what was counted.

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
            kept = json.loads((path / _ABOUT).read_bytes())
        except ValueError as error:
            raise ValueError(f"checkpoint {str(path)!r} is damaged ({_ABOUT}); remove it.") from error
        require_same(path, kept, about)

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
        """Return the state of a stored shard; for the first one, that of all merged shards together.

        `get` and `put` are called in the order of the shards, once for each.

        Returns:
            The state, or None for a shard that is part of the first one's.
        """
        if shard.number < self._merged:
            return None if shard.number else _state(self._whole)
        self._digests.append(shard.digest)
        return _state(self._file(shard.number))

    def put(self, shard: Shard, state: State, whole: Tally) -> None:
        """Store the state of a shard.

        Every 16 shards all files are merged into one, so that the folder does not grow with the corpus.

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
