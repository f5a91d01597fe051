"""Checks of saved descriptions: each field must have its type, or the file is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import UnionType
from typing import Any, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

Texts = tuple[str, ...]
Indices = tuple[int, ...]


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


def _require(value: Any, hint: Any, place: str) -> None:
    """Raise a ValueError if a value from JSON does not have the hinted type."""
    if get_origin(hint) in (Union, UnionType):
        _require_any(value, get_args(hint), place)
    elif not _is(value, hint):
        raise ValueError(f"{place} is {value!r:.60}")
    elif is_typeddict(hint):
        for name, part in get_type_hints(hint).items():
            if name in value or name in hint.__required_keys__:
                _require(value.get(name), part, f"{name!r} of {place}")
    elif get_origin(hint) is Mapping:
        for name, item in value.items():
            _require(item, get_args(hint)[1], f"{name!r:.40} of {place}")
    elif get_origin(hint) is tuple:
        _require_items(value, get_args(hint), place)


def _require_items(values: list[Any], hints: tuple[Any, ...], place: str) -> None:
    hints = hints[:1] * len(values) if hints[-1] is ... else hints
    if len(hints) != len(values):
        raise ValueError(f"{place} has {len(values)} entries instead of {len(hints)}")
    for index, (value, hint) in enumerate(zip(values, hints, strict=True)):
        _require(value, hint, f"{place}[{index}]")


def _require_any(value: Any, hints: tuple[Any, ...], place: str) -> None:
    for hint in hints[:-1]:
        with suppress(ValueError):
            return _require(value, hint, place)
    return _require(value, hints[-1], place)


def _is(value: Any, hint: Any) -> bool:
    if hint in (int, float):
        return not isinstance(value, bool) and isinstance(value, (int, float) if hint is float else int)
    if is_typeddict(hint):
        return isinstance(value, dict)
    json_type = {Mapping: dict, tuple: list}.get(get_origin(hint), hint)
    return json_type is Any or isinstance(value, json_type)
