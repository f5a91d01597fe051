"""Scores kept on disk by what they are of: model, input, method and options, never by a file's name."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLAIN = (str, int, float, bool, tuple, type(None))


def key_of(*parts: Any) -> str:
    """Return a hash of JSON-like parts; functions count by their code and what it refers to."""
    text = json.dumps(parts, sort_keys=True, default=_said)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _said(value: Any) -> Any:
    """Return a value as JSON can say it, the same in every session."""
    if callable(value):
        function = inspect.unwrap(value)
        if not inspect.isfunction(function):
            own = {k: v for k, v in getattr(value, "__dict__", {}).items() if isinstance(v, _PLAIN)}
            return [
                type(value).__module__,
                type(value).__qualname__,
                getattr(value, "__qualname__", ""),
                repr(own),
            ]
        return _function(function, set())
    if hasattr(value, "tolist"):
        return value.tolist()
    return repr(value)


def _function(function: Any, seen: set[str]) -> list[Any]:
    """Return what a function computes by: its code, its defaults, what it closes over, its module's own."""
    code = function.__code__
    seen.add(function.__qualname__)
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    named = [function.__globals__.get(name) for name in code.co_names]
    own = [
        one
        for one in (*held, *named)
        if inspect.isfunction(one) and (one in held or one.__module__ == function.__module__)
    ]
    return [
        code.co_code.hex(),
        repr(code.co_names),
        _constants(code),
        repr(function.__defaults__),
        [repr(one) if isinstance(one, _PLAIN) else type(one).__qualname__ for one in held],
        [_function(one, seen) for one in own if one.__qualname__ not in seen],
    ]


def _constants(code: Any) -> list[str]:
    """Return what a function's code holds, of inner functions their code and not where they lie."""
    return [
        one.co_code.hex() + repr(_constants(one)) if inspect.iscode(one) else repr(one)
        for one in code.co_consts
    ]


class Cache:
    """JSON files in a folder by key; without a folder it remembers nothing.

    A file is written beside its place and moved there, so that an interrupt leaves no half of one.
    """

    def __init__(self, folder: Any) -> None:
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Any:
        """Return what was kept, or None; what cannot be read counts as absent."""
        if self._folder is None:
            return None
        try:
            return json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep a value."""
        if self._folder is None:
            return
        place = self._folder / f"{key}.json"
        beside = place.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(value), encoding="utf-8")
        beside.replace(place)
