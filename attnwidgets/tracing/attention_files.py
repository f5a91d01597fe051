"""Attention weights in files: safetensors for the numbers, JSON for the labels; see docs/file_layout.md.

`read_attention` checks names, types and shapes of all tensors and the labels. A `FileLayer` then reads
weights when they are requested, and checks them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from attnwidgets._errors import suggest
from attnwidgets._tensors import as_array, kept_dtype
from attnwidgets.tracing.attention_sources import OUTPUTS
from attnwidgets.tracing.row_selection import numbers, positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.tracing.row_selection import Chosen

LABELS = "attention.json"
"""The labels in a folder of saved attention; a single file has them in a .json file of the same name."""

_KEY = "attention"  # of the labels in a safetensors file's metadata
_SUFFIX = ".safetensors"
_MAPS = 4  # dimensions of [1, head, query, key]
_MOST_BYTES = 2**26  # of labels: a million tokens take about 10 MB
_MOST_NUMBER = 2**63 - 1
_DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
_LAYER = re.compile(rf"(?P<stack>{'|'.join(OUTPUTS)})\.(?P<layer>0|[1-9]\d{{0,5}})")
# The type of each label, and the types of its entries if it is a list.
_FIELDS: dict[str, tuple[type, tuple[type, ...]]] = {
    "tokens": (list, (str,)),
    "query_tokens": (list, (str,)),
    "key_tokens": (list, (str,)),
    "words": (list, (int, type(None))),
    "input_ids": (list, (int,)),
    "boundary": (int, ()),
    "second_text": (int, ()),
    "model_id": (str, ()),
    "about": (object, ()),
}


@dataclass(frozen=True)
class SavedAttention:
    """The content of a file or folder: layers by stack, which read their weights on access, and labels."""

    stacks: dict[str, list[FileLayer]]
    labels: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FileLayer:
    """A layer whose weights are read from a file, only the rows that are requested.

    Args:
        path: The file.
        name: The tensor.
        sizes: Heads, queries, keys.
        stored: Type of the numbers.
        batched: Whether the tensor is [1, head, query, key].
    """

    path: Path
    name: str
    sizes: tuple[int, int, int]
    stored: str
    batched: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        return self.sizes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the weights: float64 if they were saved in it, else float32."""
        return kept_dtype(self.stored)

    def weights(self, heads: Chosen = None, queries: Chosen = None) -> NDArray[np.floating]:
        """Return [head, query, key], of the selected heads and queries.

        Raises:
            ValueError: If the file is gone or was changed, or holds NaN or infinity there.
            ModuleNotFoundError: If the numbers are bfloat16, which numpy cannot read, and torch is missing.
        """
        chosen = [
            numbers(positions(some, n, axis))
            for some, n, axis in zip((heads, queries), self.sizes, ("head", "query"), strict=False)
        ]
        begins = [min(part, default=0) for part in chosen]
        spans = tuple(slice(low, max(part, default=-1) + 1) for low, part in zip(begins, chosen, strict=True))
        try:
            with safe_open(self.path, framework="pt" if self.stored == "bfloat16" else "np") as file:
                tensor = file.get_slice(self.name)
                read = tensor[:, spans[0], spans[1]][0] if self.batched else tensor[spans]
        except (OSError, SafetensorError, IndexError) as error:
            raise ValueError(
                f"{self.name!r} of {str(self.path)!r} cannot be read any more: {error}"
            ) from error
        head_rows, query_rows = ([n - low for n in part] for part, low in zip(chosen, begins, strict=True))
        weights = as_array(read[head_rows][:, query_rows]).astype(self.dtype)
        bad = ~np.isfinite(weights)
        if bad.any():
            head, query, key = (int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"{self.name!r} of {str(self.path)!r} holds {float(weights[head, query, key])} at head "
                f"{chosen[0][head]}, query {chosen[1][query]}, key {key}; write finite numbers (a fully "
                "masked row is 0/0)"
            )
        return weights


def is_dump(value: object) -> bool:
    """Return whether a value is the path of saved attention: a .safetensors file or a folder with labels."""
    if not isinstance(value, (str, Path)):
        return False
    try:
        path = Path(value)
        return path.suffix == _SUFFIX or (path / LABELS).is_file()
    except (OSError, ValueError):  # a text may be no path
        return False


def read_attention(path: Path) -> SavedAttention:
    """Return the layers and labels of a file or folder; no weights are read yet.

    Raises:
        FileNotFoundError: If the path does not exist.
        ValueError: If a file is damaged, a tensor's name, shape or type is wrong, a layer is missing, or the
            labels are not those of `aw.from_attentions`.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"attentions {str(path)!r:.200} does not exist: a string is the path of saved attention"
        )
    files, labels = _in_folder(path) if path.is_dir() else ([path], _labels_of_file(path))
    by_layer: dict[str, dict[int, FileLayer]] = {}
    for file in files:
        for layer in _layers(file):
            stack, number = layer.name.split(".")
            layers = by_layer.setdefault(stack, {})
            if int(number) in layers:
                raise ValueError(
                    f"{layer.name!r} is in {layers[int(number)].path.name!r} and in {file.name!r}"
                )
            layers[int(number)] = layer
    if not by_layer:
        raise ValueError(f"{str(path)!r} holds no attention: its tensors are named self.0, self.1, ...")
    for stack, layers in by_layer.items():
        lacking = next((number for number in range(len(layers)) if number not in layers), None)
        if lacking is not None:
            raise ValueError(
                f"{str(path)!r} has {len(layers)} layers of {stack!r}, but no '{stack}.{lacking}'"
            )
    stacks = {stack: [layers[number] for number in sorted(layers)] for stack, layers in by_layer.items()}
    return SavedAttention(stacks, labels)


def _in_folder(folder: Path) -> tuple[list[Path], dict[str, Any]]:
    """Return the files of numbers in a folder, and its labels."""
    files = sorted(folder.glob(f"*{_SUFFIX}"))
    if not files or not (folder / LABELS).is_file():
        raise ValueError(
            f"{str(folder)!r} is not a folder of saved attention: it needs {LABELS} and *{_SUFFIX} files"
        )
    for file in (*files, folder / LABELS):
        if file.resolve().parent != folder.resolve():
            raise ValueError(f"{str(file)!r} is a link out of its folder; put the file itself there")
    return files, _labels(folder / LABELS)


def _labels_of_file(path: Path) -> dict[str, Any]:
    """Return the labels of a single file, from the .json file of the same name or else from its metadata."""
    companion = path.with_suffix(".json")
    if companion.is_file():
        if companion.resolve().parent != path.resolve().parent:
            raise ValueError(f"{str(companion)!r} is a link out of its folder; put the file itself there")
        return _labels(companion)
    metadata = _opened(path)[1]
    if _KEY not in metadata and "attnwidgets" in metadata:
        raise ValueError(f"{str(path)!r} is a saved explanation: aw.load(path) opens it")
    return _parsed(metadata.get(_KEY, "{}"), path)


def _labels(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise ValueError(f"{str(path)!r} is {size:,} bytes of labels; at most {_MOST_BYTES:,} are read")
    return _parsed(path.read_bytes(), path)


def _parsed(text: str | bytes, path: Path) -> dict[str, Any]:
    """Return the labels in a JSON text, each of its type."""
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the labels of {str(path)!r} are not JSON ({error})") from error
    if not isinstance(labels, dict):
        raise ValueError(  # noqa: TRY004 - as for other damage
            f"the labels of {str(path)!r} must be an object with tokens, ..., not {labels!r:.80}"
        )
    for name, value in labels.items():
        if name not in _FIELDS:
            names = ", ".join(_FIELDS)
            raise ValueError(
                f"{name!r:.80} in {str(path)!r} is not a label; the labels are {names}."
                f"{suggest(name[:80], _FIELDS)}"
            )
        kind, entries = _FIELDS[name]
        parts = value if isinstance(value, list) and entries else ()
        fits = kind is object or type(value) is kind  # not isinstance: in Python, a bool is an int
        if not fits or not all(type(part) in entries for part in parts):
            expected = f"a list of {entries[0].__name__}" if entries else kind.__name__
            raise ValueError(f"{name!r} in {str(path)!r} must be {expected}, not {value!r:.80}")
        whole = (part for part in (parts or [value]) if type(part) is int)
        if any(abs(number) > _MOST_NUMBER for number in whole):
            raise ValueError(f"{name!r} in {str(path)!r} has a number beyond 64 bits: {value!r:.80}")
    return labels


def _opened(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the tensors of a file as slices that read nothing yet, and its metadata."""
    try:
        with safe_open(path, framework="np") as file:
            return {name: file.get_slice(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{str(path)!r} is not a safetensors file, or is damaged: {error}") from error


def _layers(path: Path) -> Sequence[FileLayer]:
    """Return the layers in a file; checks names, types and shapes."""
    layers = []
    for name, tensor in _opened(path)[0].items():
        shape, dtype = tuple(tensor.get_shape()), tensor.get_dtype()
        if not _LAYER.fullmatch(name):
            raise ValueError(
                f"{name!r:.80} in {str(path)!r} is not the name of a layer; a layer is called self.0, "
                "encoder.0, decoder.0 or cross.0, and so on"
            )
        if dtype not in _DTYPES:
            raise ValueError(f"{name!r} in {str(path)!r} is {dtype}; weights are {', '.join(_DTYPES)}")
        batched = shape[:1] == (1,) and len(shape) == _MAPS
        sizes = shape[1:] if batched else shape
        if len(sizes) != _MAPS - 1 or 0 in sizes:
            raise ValueError(f"{name!r} in {str(path)!r} has shape {shape}; a layer is [head, query, key]")
        layers.append(FileLayer(path, name, sizes, _DTYPES[dtype], batched))
    return layers
