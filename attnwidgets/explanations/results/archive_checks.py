"""What the description of a saved explanation holds: a file that someone has changed is refused in words."""

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


class _Facts(TypedDict):
    d_sae: int
    tokens: int
    before: int
    pieces: Mapping[str, str]
    special: Indices
    scheme: str


class _Layers(TypedDict, total=False):
    """Fields of the kinds of explanations; a field means the same in all of them."""

    method: str
    unit: str
    stack: str
    stream: str  # what `stack` was called in files saved before it had this name
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


class _Described(_Layers, total=False):
    map: _Layers


def require_described(described: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first field of another type than what is saved."""
    _require(described, _Described, "the description")


def _require(value: Any, hint: Any, place: str) -> None:
    """Raise a ValueError where a value from JSON is not of a type."""
    if get_origin(hint) in (Union, UnionType):
        _require_any(value, get_args(hint), place)
    elif not _is(value, hint):
        raise ValueError(f"{place} is {value!r:.60}")
    elif is_typeddict(hint):
        for name, part in get_type_hints(hint).items():
            if name in value or name in hint.__required_keys__:
                _require(value.get(name), part, f"{name!r} of {place}")
    elif get_origin(hint) is Mapping:
        for name, one in value.items():
            _require(one, get_args(hint)[1], f"{name!r:.40} of {place}")
    elif get_origin(hint) is tuple:
        _require_each(value, get_args(hint), place)


def _require_each(values: list[Any], hints: tuple[Any, ...], place: str) -> None:
    of = [hints[0]] * len(values) if hints[-1] is ... else hints
    if len(of) != len(values):
        raise ValueError(f"{place} has {len(values)} entries instead of {len(of)}")
    for at, (one, part) in enumerate(zip(values, of, strict=True)):
        _require(one, part, f"{place}[{at}]")


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
    held = {Mapping: dict, tuple: list}.get(get_origin(hint), hint)
    return held is Any or isinstance(value, held)
