"""Saved explanations: safetensors and JSON, checked and opened again without pickle, torch or the model.

`save` writes the JSON and the arrays of `to_description`, and `load` reads both. Before an explanation is
restored, `require_described` compares the JSON with the typed dictionaries below, so that the error about a
damaged file names the field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Protocol,
    TypedDict,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as dump_tensors

from attnwidgets._files import write_bytes
from attnwidgets.explanations.explanation import Explanation, restore
from attnwidgets.explanations.viewable import FOR_READING, PAGES, Viewable

if TYPE_CHECKING:
    from attnwidgets.explanations.results.arrays import Array

VERSION = 1
_KEY = "attnwidgets"
_LENGTH_BYTES = 8
_DESCRIPTION = "explanation.json"
_TENSORS = "values.safetensors"
_OTHER_TABLES = (".tsv", ".json")

Texts = tuple[str, ...]
Indices = tuple[int, ...]


class ArchiveError(ValueError):
    """A file or folder that is not an explanation saved by this package, or is damaged."""


class Described(Protocol):
    """A result that can be saved."""

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and its arrays."""


def save(explanation: Described, path: str | Path) -> Path:
    """Write an explanation; lazy layers are computed first.

    Args:
        explanation: A MixingMap, Attributions, Why, ...
        path: A name with a suffix (`map.safetensors`) gives a file with the JSON in its metadata; a name
            without one gives a folder of `explanation.json` and `values.safetensors`, which suits git better.
            `.html`, `.pdf`, `.svg`, `.png` and `.csv` are for reading and are not loaded again.

    Returns:
        The path.

    Raises:
        ValueError: If the suffix is that of another table.
        TypeError: If it is that of a page, and no view shows this kind of result.
        FileNotFoundError: If the folder to write into does not exist.
        FileExistsError: If the folder exists and holds something else.
    """
    path = Path(path)
    if path.suffix.lower() in _OTHER_TABLES:
        raise ValueError(
            f"path {str(path)!r} ends in {path.suffix}, and numbers are saved as .safetensors; a table is "
            "what .to_csv(path) writes."
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"path {str(path)!r} lies in a folder that does not exist; make {str(path.parent)!r} first."
        )
    if path.suffix.lower() in FOR_READING:
        return Viewable.save(cast("Viewable", explanation), path)
    described, arrays = explanation.to_description()
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    described = {"version": VERSION} | described
    if path.suffix and not path.is_dir():
        text = json.dumps(described, separators=(",", ":"))
        write_bytes(path, dump_tensors(tensors, metadata={_KEY: text}))
        return path
    if path.exists() and not (path.is_dir() and (_is_ours(path) or not any(path.iterdir()))):
        raise FileExistsError(
            f"path {str(path)!r} exists and is not a saved explanation; choose another name."
        )
    path.mkdir(exist_ok=True)
    write_bytes(path / _TENSORS, dump_tensors(tensors))
    write_bytes(path / _DESCRIPTION, (json.dumps(described, indent=1) + "\n").encode("ascii"))
    return path


def load(path: str | Path) -> Explanation:
    """Open an explanation saved by `.save(path)`; reads numbers and JSON only, so any file is safe to open.

    Args:
        path: A `.safetensors` file or a folder.

    Returns:
        The explanation: a MixingMap, Attributions, Scorecard, ...; or a `Why`.

    Raises:
        FileNotFoundError: If `path` does not exist.
        ArchiveError: If it is not a saved explanation, is damaged, or comes from a later version.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> path = aw.rollout(trace).save("rollout.safetensors")
        >>> aw.load(path).shape
        (6, 9, 9)
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"path {str(path)!r} does not exist.")
    if path.is_dir():
        if not _is_ours(path):
            raise ArchiveError(
                f"{str(path)!r} is a folder without {_DESCRIPTION} and {_TENSORS}: not a saved explanation."
            )
        described = _parsed(path, (path / _DESCRIPTION).read_bytes())
        return _restored(path, described, _tensors(path, (path / _TENSORS).read_bytes()))
    data = path.read_bytes()
    return _restored(path, _metadata(path, data), _tensors(path, data))


def _metadata(path: Path, data: bytes) -> Any:
    """Return the JSON in a safetensors header: 8 bytes of length (little-endian), then the header."""
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    foreign = f"{str(path)!r} is not a saved explanation; aw.load opens what .save(path) wrote."
    if path.suffix.lower() in PAGES:
        foreign = f"{str(path)!r} is a page, which is for reading; aw.load opens .safetensors files."
    if len(data) < _LENGTH_BYTES or length > len(data) - _LENGTH_BYTES:
        raise ArchiveError(foreign)
    try:
        header = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + length])
        text = header["__metadata__"][_KEY]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArchiveError(foreign) from error
    return _parsed(path, text)


def _parsed(path: Path, text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ArchiveError(f"{str(path)!r} is damaged: its description is not JSON ({error}).") from error


def _tensors(path: Path, data: bytes) -> dict[str, Array]:
    try:
        return load_tensors(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ArchiveError(f"{str(path)!r} is damaged: its numbers cannot be read ({error}).") from error


def _restored(path: Path, described: Any, arrays: Mapping[str, Array]) -> Explanation:
    version = described.get("version") if isinstance(described, dict) else None
    if not isinstance(version, int):
        raise ArchiveError(f"{str(path)!r} is not a saved explanation: its description names no version.")
    if version > VERSION:
        raise ArchiveError(
            f"{str(path)!r} was saved by a later version (format {version} > {VERSION}); update attnwidgets."
        )
    try:
        require_described(described)
        if described.get("dtype") != "float64":
            _require_float32(arrays)
        return restore(described, arrays)
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ArchiveError(f"{str(path)!r} is damaged: {error}") from error


def _require_float32(arrays: Mapping[str, Array]) -> None:
    """Raise ValueError if an array holds numbers that would be infinite in float32."""
    for name, array in arrays.items():
        if array.dtype == np.float64 and (np.abs(array[np.isfinite(array)]) > np.finfo(np.float32).max).any():
            raise ValueError(f"{name!r} holds numbers that are too large for float32")


def _is_ours(folder: Path) -> bool:
    return (folder / _DESCRIPTION).is_file() and (folder / _TENSORS).is_file()


class _Unit(TypedDict):
    name: str
    labels: Texts
    spans: tuple[Indices, ...]
    special: tuple[bool, ...]
    grid: tuple[int, int] | None
    times: tuple[tuple[float, float], ...] | None


class _Axis(TypedDict):
    tokens: Texts
    units: Mapping[str, _Unit]
    segment: Indices
    boundary: int | None
    text: str


class _Provenance(TypedDict, total=False):
    method: str
    options: Mapping[str, Any]
    steps: Texts
    conservation: Mapping[str, Any] | None
    axes: tuple[str, str, str, str, str, str]  # `AxisWords`


class _Facts(TypedDict):
    d_sae: int
    tokens: int
    before: int
    pieces: Mapping[str, str]
    special: Indices
    scheme: str


_Number = float | str | None  # None: NaN; a word: infinity


class _Claim(TypedDict):
    claim: str
    causal: bool
    unit: str
    verdict: str
    control: str
    mean: float
    interval: tuple[_Number, _Number]
    difference: _Number
    difference_interval: tuple[_Number, _Number]
    p_holds: float
    p_fails: float
    heads: Mapping[str, tuple[tuple[int, int, float], ...]]
    baselines: Mapping[str, float | None]
    texts: tuple[tuple[int, str, str, _Number, _Number, Indices, Indices, tuple[Any, ...]], ...]
    given: int
    left_out: tuple[tuple[str, int], ...]
    needed: int


class _Layers(TypedDict, total=False):
    """Fields of all kinds of explanations; a field means the same in each."""

    method: str
    unit: str
    stack: str
    stream: str  # name of `stack` in files saved before 0.1.0
    trace_id: str
    warning: str
    dtype: str | None
    provenance: _Provenance
    predictions: tuple[str, tuple[tuple[str, float, int], ...]]
    layers: Indices
    heads: Indices | None
    causal: bool | None
    stochastic: bool | None
    signed: bool | None
    parallel: bool
    query: _Axis
    key: _Axis | None
    axis: _Axis
    target: str | Texts | None
    foil: str | None
    residual: float | tuple[float, ...] | None
    reach: Indices | None
    d_sae: int
    facts: _Facts
    names: Texts | Mapping[str, str]
    left_out: Mapping[str, str]
    direction: str
    clean: float
    corrupt: float
    clean_tokens: Texts
    corrupt_tokens: Texts
    differs: Indices
    estimate: bool
    checked: tuple[tuple[str, int, int | None, int | None, float, float, str], ...]
    sites: Texts
    answer: str
    answer_id: int | None
    tokens: Texts
    labels: Mapping[str, str]
    results: tuple[_Claim, ...]
    margin: float
    level: float


class _Described(_Layers, total=False):
    map: _Layers


def require_described(described: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first field of a wrong type."""
    _require(described, _Described, "the description")


def _require(value: Any, hint: Any, field: str) -> None:
    """Raise a ValueError if a value from JSON does not have the hinted type."""
    if get_origin(hint) in (Union, UnionType):
        _require_any(value, get_args(hint), field)
    elif not _is(value, hint):
        raise ValueError(f"{field} is {value!r:.60}")
    elif is_typeddict(hint):
        for name, part in get_type_hints(hint).items():
            if name in value or name in hint.__required_keys__:
                _require(value.get(name), part, f"{name!r} of {field}")
    elif get_origin(hint) is Mapping:
        for name, item in value.items():
            _require(item, get_args(hint)[1], f"{name!r:.40} of {field}")
    elif get_origin(hint) is tuple:
        _require_items(value, get_args(hint), field)


def _require_items(values: list[Any], hints: tuple[Any, ...], field: str) -> None:
    hints = hints[:1] * len(values) if hints[-1] is ... else hints
    if len(hints) != len(values):
        raise ValueError(f"{field} has {len(values)} entries instead of {len(hints)}")
    for index, (value, hint) in enumerate(zip(values, hints, strict=True)):
        _require(value, hint, f"{field}[{index}]")


def _require_any(value: Any, hints: tuple[Any, ...], field: str) -> None:
    for hint in hints[:-1]:
        with suppress(ValueError):
            return _require(value, hint, field)
    return _require(value, hints[-1], field)


def _is(value: Any, hint: Any) -> bool:
    if hint in (int, float):
        return not isinstance(value, bool) and isinstance(value, (int, float) if hint is float else int)
    if is_typeddict(hint):
        return isinstance(value, dict)
    json_type = {Mapping: dict, tuple: list}.get(get_origin(hint), hint)
    return json_type is Any or isinstance(value, json_type)
