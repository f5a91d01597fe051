"""Marks: cells or tokens that a view outlines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def checked_marks(view: str, kind: str, marks: Sequence[Any], shape: tuple[int, int]) -> list[Any]:
    """Return marks as wire.ts has them.

    Args:
        view: The view's name, for errors.
        kind: "cells", "elements", "both", or "" for a view that marks nothing.
        marks: `(query, key)` pairs or indices.
        shape: Numbers of queries and keys that are shown.

    Raises:
        IndexError: A mark outside what is shown.
        ValueError: Marks of the wrong form.
    """
    found: list[Any] = []
    for mark in marks:
        pair = isinstance(mark, Sequence) and not isinstance(mark, str) and len(mark) == len(("query", "key"))
        if pair and kind in {"cells", "both"}:
            found.append([_index(view, mark[0], shape[0]), _index(view, mark[1], shape[1])])
        elif not pair and kind in {"elements", "both"}:
            found.append(_index(view, mark, max(shape)))
        else:
            wanted = {
                "cells": "pairs (query, key)",
                "elements": "indices of elements",
                "both": "all pairs (query, key) or all indices",
            }.get(kind, "none: this view outlines nothing")
            raise ValueError(f"{view}(marks=...): {mark!r} is not taken; marks are {wanted}.")
    if len({isinstance(mark, list) for mark in found}) > 1:
        raise ValueError(f"{view}(marks=...) mixes pairs and indices; marks are all pairs or all indices.")
    return found


def _index(view: str, value: Any, size: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 0:
        raise ValueError(f"{view}(marks=...): {value!r} is not an index (0, 1, ...).")
    if int(value) >= size:
        raise IndexError(f"{view}(marks=...): {value!r} is out of range: there are 0 to {size - 1}.")
    return int(value)
