"""The authors' numbers, file by file, within the tolerances that docs/accuracy.md states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.explanations.mixing.comparing import measured, stated
from tests.explanations.mixing.comparisons import COMPARISONS

if TYPE_CHECKING:
    from pathlib import Path

# Quantities that follow from compared ones, and checks of the authors' code.
IMPLIED = {
    "logits", "pooler_norm", "sum_over_tokens_minus_hidden_maxabs", "aggregated_vectors_last",  # DecompX
    "tokens_target_foil", "logits_last", "logit_aff_x_j", "logit_contrastive_nomix",  # ALTI-Logit
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_are_the_authors_within_what_is_stated(shared: Path, dtype: str) -> None:
    beyond = [
        f"{item.file} {item.quantity} by {item.ours}: {off:.2e} > {bound:.0e}"
        for item, off in measured((item for item in COMPARISONS if not item.slow), shared, dtype)
        if not off <= (bound := item.single if dtype == "float32" else item.double)
    ]
    assert not beyond


def test_every_number_of_every_file_is_compared(shared: Path) -> None:
    compared = {(item.file, item.quantity) for item in COMPARISONS}
    for path in sorted((shared / "reference" / "mixing").glob("*.npz")):
        file = path.name.rsplit("__float", 1)[0]
        in_file = {key.split("/", 1)[1] for key in np.load(path) if "/" in key}
        result = {quantity for name, quantity in compared if name == file}
        assert in_file - result <= (IMPLIED if file.startswith(("decompx", "tiny_gpt2_alti")) else set()), (
            file
        )
        assert result <= in_file, file


def test_the_page_states_what_is_tested(root: Path) -> None:
    page = (root / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert [item.quantity for item in COMPARISONS if stated(item) not in page] == []
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) == len(COMPARISONS)
