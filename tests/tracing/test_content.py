"""The content of a value: equal with equal numbers, another with any other number that counts."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnwidgets.tracing.content import key_of
from tests.tracing import tiny

SCALE = 2


def scaled(trace: Any) -> Any:
    return trace * SCALE


def closed(over: Any) -> Any:
    def method(trace: Any) -> Any:
        return trace @ over

    return method


class Method:
    def __init__(self, weights: Any) -> None:
        self.weights = weights

    def __call__(self, trace: Any) -> Any:
        return trace @ self.weights


def linear(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("make", "other"),
    [
        (lambda: closed(np.ones(3)), lambda: closed(np.zeros(3))),
        (lambda: closed(torch.ones(3)), lambda: closed(torch.ones(3).bfloat16())),
        (lambda: partial(scaled, by=1), lambda: partial(scaled, by=2)),
        (lambda: partial(closed, np.ones(200_000)), lambda: partial(closed, np.arange(200_000))),
        (lambda: Method(linear(0)), lambda: Method(linear(1))),
        (lambda: Method([1, {"a": (2.0, None)}]), lambda: Method([1, {"a": (2, None)}])),
        (lambda: Method(linear(0)).__call__, lambda: Method(linear(1)).__call__),
        (lambda: {"b": 1, "a": {3, 2}}, lambda: {"b": 1, "a": {3, 4}}),
        (lambda: re.compile("a" * 300), lambda: re.compile("a" * 301)),
        (tiny.wordpiece, tiny.byte_level),
    ],
)
def test_content_counts_and_nothing_else(make: Any, other: Any) -> None:
    assert key_of(make()) == key_of(make())
    assert key_of(make()) != key_of(other())


def test_a_global_that_a_function_names_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(scaled)
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert key_of(scaled) != before


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages", "project"])
def test_definitions_count_unless_they_are_installed(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this user, of this environment or of its base environment."""
    name = f"defined_in_{folder.replace('-', '_')}"
    file = tmp_path / folder / f"{name}.py"
    file.parent.mkdir()
    file.write_text("class Tokenizer:\n    scale = 1\n")
    monkeypatch.syspath_prepend(file.parent)
    kind = importlib.import_module(name).Tokenizer
    before = key_of(kind())
    kind.scale = 2
    assert (key_of(kind()) == before) == (folder != "project")


def test_order_and_use_do_not_count() -> None:
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    path = Path("some") / "where"
    before = key_of(path)
    assert str(path)
    assert path.parts
    assert key_of(path) == before


def test_a_cycle_ends_and_what_does_not_pickle_is_like_nothing() -> None:
    cycle: list[Any] = [1]
    cycle.append(cycle)
    assert key_of(cycle) == key_of(cycle)
    lock = threading.Lock()
    assert key_of(lock) != key_of(lock)


OTHER_SESSION = """
from attnwidgets.tracing.content import key_of
VALUES = [{"a", "b", "c"}, {"x": [None, b"1"], "y": (True, 1.5)}, lambda text: text in {"u", "v", "w"}]
print(key_of(*VALUES))
"""


@pytest.mark.slow
def test_keys_are_the_same_in_another_session(capsys: pytest.CaptureFixture[str]) -> None:
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", OTHER_SESSION], env=environment, capture_output=True, text=True, check=True
    )
    exec(OTHER_SESSION, {"__name__": "__main__"})
    assert run.stdout == capsys.readouterr().out != ""
