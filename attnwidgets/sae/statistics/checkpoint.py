"""A checkpoint of statistics: a folder of shards that are counted."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as dump_tensors

from attnwidgets._files import write_bytes
from attnwidgets.sae.about import require_same

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from attnwidgets.sae.statistics.counting import Shard

    State = Mapping[str, NDArray[Any]]

_ABOUT = "statistics.json"
_KEY = "attnwidgets"


class Checkpoint:
    """A folder of shards that are counted, and what they are about.

    Args:
        path: The folder; it is made where it is not there. None: nothing is kept.
        about: What counts depend on beside the texts; see `attnwidgets.sae.about`.

    Raises:
        ValueError: Where the folder is about something else, or is none.
        FileNotFoundError: Where the folder to make it in does not exist.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self._path = path
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
        if self._path is None or not self._file(shard).exists():
            return False
        with self._opened(shard) as file:
            digest = (file.metadata() or {})[_KEY]
        if digest != shard.digest:
            raise ValueError(
                f"checkpoint {str(self._path)!r} is of other texts ({shard.name} are not those that were "
                "counted); remove it, or name another folder."
            )
        return True

    def get(self, shard: Shard) -> State:
        """Return the state of a shard that is counted."""
        with self._opened(shard) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping

    @contextmanager
    def _opened(self, shard: Shard) -> Iterator[Any]:
        path = self._file(shard)
        try:
            with safe_open(path, framework="numpy") as file:
                yield file
        except (SafetensorError, KeyError, OSError) as error:
            raise ValueError(
                f"checkpoint: {str(path)!r} is damaged; remove it, and its texts are counted again."
            ) from error

    def put(self, shard: Shard, state: State) -> None:
        """Keep the state of a shard."""
        if self._path is None:
            return
        arrays = {name: np.ascontiguousarray(array) for name, array in state.items()}
        write_bytes(self._file(shard), dump_tensors(arrays, metadata={_KEY: shard.digest}))

    def remove(self) -> None:
        """Remove the folder, once all is counted; files that are not ours stay."""
        if self._path is None:
            return
        for file in (*self._path.glob("shard-*.safetensors"), self._path / _ABOUT):
            file.unlink(missing_ok=True)
        if not any(self._path.iterdir()):
            self._path.rmdir()

    def _file(self, shard: Shard) -> Path:
        if self._path is None:  # nobody asks then
            raise AssertionError
        return self._path / f"shard-{shard.number:06}.safetensors"
