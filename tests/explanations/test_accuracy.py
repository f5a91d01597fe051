"""The authors' numbers, file by file, within the tolerances that docs/accuracy.md states."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

import numpy as np
import pytest

from .comparisons import COMPARISONS, measured, stated

if TYPE_CHECKING:
    from pathlib import Path

# Compared in the tests of their methods.
ELSEWHERE = {
    "decompx__*": "test_decompx.py",
    "tiny_gpt2_alti_logit": "test_alti_logit.py",
    "tiny_gpt2_llmtt_contributions": "test_contribution_graph.py",
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_are_the_authors_within_what_is_stated(shared: Path, dtype: str) -> None:
    beyond = [
        f"{one.file} {one.quantity} by {one.ours}: {off:.2e} > {bound:.0e}"
        for one, off in measured(shared, dtype)
        if not off <= (bound := one.single if dtype == "float32" else one.double)
    ]
    assert not beyond


def test_every_number_of_every_file_is_compared(shared: Path) -> None:
    compared = {(one.file, one.quantity) for one in COMPARISONS}
    for path in sorted((shared / "reference" / "mixing").glob("*.npz")):
        file = path.name.rsplit("__float", 1)[0]
        if any(fnmatch.fnmatch(file, pattern) for pattern in ELSEWHERE):
            continue
        held = {key.split("/", 1)[1] for key in np.load(path)}
        assert held == {quantity for name, quantity in compared if name == file}, file


def test_the_page_states_what_is_tested(root: Path) -> None:
    page = (root / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert [one.quantity for one in COMPARISONS if stated(one) not in page] == []
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) == len(COMPARISONS)
