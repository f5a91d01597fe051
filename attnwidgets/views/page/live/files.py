"""The files next to a page: its script, and models that are too large for the page itself.

All lie in one folder, under names made of their content, so that pages of the same folder share them. Weights
travel as scripts of `PART` bytes each, because these load over file:// as well, where browsers refuse others.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from attnwidgets._files import write_bytes
from attnwidgets.views.page.script import base64_text, json_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FOLDER = "attnwidgets-files"
"""The folder next to a page."""

PART = 4 * 2**20
"""Bytes of weights in a file: browsers read each in less than a second, and hosts accept it."""

_REFERENCE = re.compile(rf"{FOLDER}/(page-[0-9a-f]{{16}}\.js|[0-9a-f]{{16}}(?=/))")
_PARTS = ("part-*.js", "tokenizer.js")


@dataclass(frozen=True)
class ModelFiles:
    """A model in files.

    Attributes:
        weights: Its weights, as `Layout.data` returns them.
        tokenizer: The `PackedReader` of js/src/live/reader.ts, as JSON.
        name: Name of its folder, made of its content.
    """

    weights: bytes
    tokenizer: str
    name: str

    @classmethod
    def of(cls, model: Mapping[str, Any], weights: bytes, reader: Mapping[str, Any]) -> ModelFiles:
        """Return the files of a model.

        Args:
            model: Its `PackedModel`, which the page holds.
            weights: Its weights.
            reader: Its tokenizer.
        """
        tokenizer = json.dumps(reader, ensure_ascii=False, separators=(",", ":"))
        content = sha256(json.dumps(model).encode() + tokenizer.encode())
        content.update(weights)
        return cls(weights, tokenizer, content.hexdigest()[:16])

    def described(self) -> dict[str, Any]:
        """Return the `files` of a `PackedLive`: names, lengths and checksums (CRC-32)."""
        parts = [[f"part-{number:03}.js", *_checked(part)] for number, part in enumerate(self._parts())]
        return {
            "folder": f"{FOLDER}/{self.name}/",
            "parts": parts,
            "tokenizer": ["tokenizer.js", *_checked(self.tokenizer.encode())],
            "bytes": len(self.weights),
        }

    def write(self, folder: Path) -> None:
        """Write the files into the folder next to a page; those that are there already stay as they are."""
        own = folder / FOLDER / self.name
        own.mkdir(parents=True, exist_ok=True)
        for number, part in enumerate(self._parts()):
            call = f'awPart("{self.name}",{number},"{base64_text(part)}")'
            _write_new(own / f"part-{number:03}.js", call.encode())
        _write_new(own / "tokenizer.js", f'awTokenizer("{self.name}",{json_text(self.tokenizer)})'.encode())

    def _parts(self) -> Iterator[bytes]:
        for start in range(0, len(self.weights), PART):
            yield self.weights[start : start + PART]


def write_script(folder: Path, script: str) -> str:
    """Write the script of a page into the folder next to it, and return its address as the page has it."""
    data = script.encode()
    name = f"page-{sha256(data).hexdigest()[:16]}.js"
    (folder / FOLDER).mkdir(exist_ok=True)
    _write_new(folder / FOLDER / name, data)
    return f"{FOLDER}/{name}"


def references(page: Path) -> set[str]:
    """Return the names in the folder next to a page that it refers to; none without a page."""
    if not page.is_file() or not (page.parent / FOLDER).is_dir():
        return set()
    return set(_REFERENCE.findall(page.read_text(encoding="utf-8", errors="replace")))


def remove_stale(folder: Path, names: set[str]) -> None:
    """Remove files that a page referred to before it was written again, unless another page does."""
    if not names:
        return
    used: set[str] = set().union(*map(references, folder.glob("*.htm*")))
    for path in (folder / FOLDER / name for name in names - used):
        if path.is_dir():
            for pattern in _PARTS:
                for part in path.glob(pattern):
                    part.unlink()
            if not any(path.iterdir()):
                path.rmdir()
        else:
            path.unlink(missing_ok=True)


def _checked(data: bytes) -> tuple[int, int]:
    return len(data), zlib.crc32(data)


def _write_new(path: Path, data: bytes) -> None:
    if not path.is_file() or path.read_bytes() != data:
        write_bytes(path, data)
