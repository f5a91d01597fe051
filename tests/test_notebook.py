"""Events between the cells of a notebook."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from traitlets.config import MultipleInstanceError

from attnwidgets import _notebook

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new thread: Playwright leaves a running loop in that of browser tests."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function, *arguments).result()


def run(needed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, shell: Any) -> list[bool]:
    """Call it in a cell; return whether the modules were there at the end of the cell, and soon after."""
    for name in needed:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(_notebook, "running_shell", lambda: shell)
    monkeypatch.setattr(_notebook, "_NEEDED", needed)
    monkeypatch.setattr(_notebook, "_IDLE", 0.01)

    async def cell() -> list[bool]:
        _notebook.prepare_views()
        there = [all(name in sys.modules for name in needed)]
        await asyncio.sleep(0.1)
        return [*there, all(name in sys.modules for name in needed)]

    return elsewhere(asyncio.run, cell())


def test_what_views_need_is_imported_after_the_cell(monkeypatch):
    assert run(("colorsys", "wave"), monkeypatch, SimpleNamespace()) == [False, True]


def test_nothing_is_imported_outside_a_notebook(monkeypatch):
    assert run(("colorsys", "wave"), monkeypatch, None) == [False, False]
    monkeypatch.setattr(_notebook, "running_shell", SimpleNamespace)
    elsewhere(_notebook.prepare_views)  # a shell without a running loop
    assert "wave" not in sys.modules


def test_readers_are_told_apart_by_their_kernels(monkeypatch):
    running: dict[str, Any] = {"kernel": None}

    class Kernel:
        @staticmethod
        def initialized() -> bool:
            return running["kernel"] is not None

        @staticmethod
        def instance() -> Any:
            if running["kernel"] == "":  # Panel, outside of any reader's session
                raise MultipleInstanceError
            return running["kernel"]

    monkeypatch.delitem(sys.modules, "marimo", raising=False)
    monkeypatch.setitem(sys.modules, "ipykernel.kernelbase", SimpleNamespace(Kernel=Kernel))
    seen = []
    for kernel in (None, "", SimpleNamespace(ident="a"), SimpleNamespace(ident="b")):
        running["kernel"] = kernel
        seen.append(_notebook.session())
    assert seen == [0, 0, "a", "b"]
    monkeypatch.setitem(sys.modules, "marimo", SimpleNamespace())
    assert _notebook.session() == "b"
    running["kernel"] = None
    assert _notebook.session() == threading.get_ident()
