"""The table of docs/architectures.md says what the code does."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def script(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(root / "benchmarks")
    return importlib.import_module("architectures")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ModernBERT", "GPT-2", "T5", "YOLOS", "MPNet"])
def test_the_table_is_what_the_code_does(root: Path, script: Any, family: str) -> None:
    page = (root / "docs" / "architectures.md").read_text(encoding="utf-8").splitlines()
    head = [line for line in page if line.startswith("| family")]
    assert head == [script.heading()], "a measure is new: python benchmarks/architectures.py --write"
    notes = dict(line[3:].split("*: ", 1) for line in page if line.startswith("- *"))
    known = dict(notes)
    assert script.rows([family], notes) == [line for line in page if line.startswith(f"| {family} |")]
    assert notes == known, "a reason is new: python benchmarks/architectures.py --write"


def test_every_family_that_is_tested_is_in_the_table(root: Path, script: Any) -> None:
    page = (root / "docs" / "architectures.md").read_text(encoding="utf-8")
    assert [family for family in script.EVERY if f"| {family} |" not in page] == []
