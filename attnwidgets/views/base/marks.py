"""Marks: cells or elements that a view outlines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_FORMS = {
    "cells": "pairs (query, key)",
    "elements": "indices of elements",
    "both": "all pairs (query, key) or all indices",
    "": "none: this view outlines nothing",
}


def checked_marks(view: str, kind: str, marks: Sequence[Any], shape: tuple[int, int]) -> list[Any]:
    """Return marks in the form of wire.ts.

    Args:
        view: The view's name, for errors.
        kind: "cells", "elements", "both", or "" for a view that marks nothing.
        marks: `(query, key)` pairs or indices.
        shape: Numbers of queries and keys that are shown.

    Raises:
        IndexError: A mark lies outside what is shown.
        ValueError: A mark has the wrong form.
    """
    checked: list[Any] = []
    for mark in marks:
        is_pair = isinstance(mark, Sequence) and not isinstance(mark, str) and len(mark) == len(shape)
        if kind not in {"both", "cells" if is_pair else "elements"}:
            raise ValueError(f"{view}(marks=...): {mark!r} is not supported; marks are {_FORMS[kind]}.")
        if is_pair:
            checked.append([_index(view, index, size) for index, size in zip(mark, shape, strict=True)])
        else:
            checked.append(_index(view, mark, max(shape)))
    if len({isinstance(mark, list) for mark in checked}) > 1:
        raise ValueError(f"{view}(marks=...) mixes pairs and indices; marks are all pairs or all indices.")
    return checked


def _index(view: str, value: Any, size: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 0:
        raise ValueError(f"{view}(marks=...): {value!r} is not an index (0, 1, ...).")
    if int(value) >= size:
        raise IndexError(f"{view}(marks=...): {value!r} is out of range: there are 0 to {size - 1}.")
    return int(value)
