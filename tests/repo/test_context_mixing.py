"""The notebook on context mixing runs, and every number in its text appears in its outputs."""

from __future__ import annotations

import json
import re

import pytest

from tests.repo import notebooks

pytestmark = pytest.mark.slow

METRICS = {"dot product": 0, "average precision": 1}


@pytest.fixture(scope="module")
def executed(root, minilm, tmp_path_factory):
    """The notebook, run from top to bottom in a scratch folder."""
    path = root / "notebooks" / "context_mixing.ipynb"
    return notebooks.run(path, tmp_path_factory.mktemp("context_mixing"), timeout=600)


def tables(notebook) -> list[list[dict[str, list[float]]]]:
    """The displayed scorecards: for each, its tables as rows of numbers by name."""
    pages = [o.data["text/html"] for o in notebooks.outputs(notebook) if "text/html" in o.get("data", {})]
    scorecards = []
    for page in (page for page in pages if "<table" in page):
        metrics = []
        for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
            rows = re.findall(r"<tr><th scope='row'[^>]*>(.*?)</th>(.*?)</tr>", table, re.DOTALL)
            metrics.append(
                {name: [float(n) for n in re.findall(r">([\d.]+)</td>", row)] for name, row in rows}
            )
        scorecards.append(metrics)
    return scorecards


def test_its_sentences_are_those_of_blimp_with_the_same_marks(root, shared):
    text = (root / "notebooks" / "context_mixing.ipynb").read_text()
    assert "CC BY 4.0" in text
    block = next(
        "".join(cell["source"])
        for cell in json.loads(text)["cells"]
        if cell["cell_type"] == "code" and "BLIMP = " in "".join(cell["source"])
    )
    lines = block.split('"""')[1].strip().splitlines()
    uids = {}
    for line in (shared / "data" / "blimp" / "number_agreement_cues.jsonl").read_text().splitlines():
        row = json.loads(line)
        words = list(row["words"])
        for cue in row["cue_indices"]:
            words[cue] = f"*{words[cue]}*"
        words[row["target_index"]] = f"[{words[row['target_index']]}]"
        uids[" ".join(words)] = row["uid"]
    assert len(lines) == len(set(lines)) == 20
    assert sorted(uids[line] for line in lines) == sorted(["ana", "dna", "dnaa", "darn", "rpsv"] * 4)


def test_it_runs_without_a_complaint_and_shows_an_explorer(executed):
    assert notebooks.complaints(executed) == []
    assert any("Explorer(" in output.data["text/plain"] for output in notebooks.widgets(executed))


def test_the_numbers_of_one_sentence_are_those_of_the_prose(executed):
    assert re.search(r"\[CLS\] 0\.90 ▇", notebooks.printed(executed))
    tokens = ["[CLS]", "the", "sketch", "of", "those", "trucks", "[MASK]"]
    (row,) = tables(executed)[0]
    stated = {
        ("attention", "[CLS]"): 0.90,
        ("attention norm (res ln)", "[MASK]"): 0.82,
        ("attention norm (res ln)", "[CLS]"): 0.05,
        ("alti", "[MASK]"): 0.98,
        ("value zeroing", "[CLS]"): 0.44,
        ("value zeroing", "trucks"): 0.29,
        ("value zeroing", "sketch"): 0.09,
    }
    assert {(name, token): row[name][tokens.index(token)] for name, token in stated} == stated
    assert sorted(row["value zeroing"])[-3:] == [0.09, 0.29, 0.44]


def test_the_last_layer_is_as_the_prose_has_it(minilm):
    import attnwidgets as aw

    sentence = {"text": "The sketch of those trucks has not hurt Alan.", "target": 5, "cues": [1]}
    card = aw.evaluate.example_scores(*minilm, sentence, layer=5)
    for method, leaders in (("attention", 1), ("rollout", 1)):
        order = card.of(method)[0, 0].argsort()[::-1]
        assert [card.x[index] for index in order[:leaders]] == ["[CLS]"]
    order = card.of("value_zeroing")[0, 0].argsort()[::-1]
    assert card.x[order[0]] == "[MASK]"
    assert {card.x[index] for index in order[1:3]} == {"sketch", "alan"}
    assert card.x[order[3]] == "trucks"


def test_the_numbers_of_twenty_sentences_are_those_of_the_prose(executed):
    share, precision = tables(executed)[1]
    finders = [f"{name}, trained" for name in ("attention norm (res ln)", "globenc", "alti", "value zeroing")]
    ends = [precision[name][layer] for name in finders for layer in (0, 5)]
    assert (min(ends), max(ends)) == (0.53, 0.69)
    lows = [precision[f"{name}, trained"][layer] for name in ("attention", "rollout") for layer in (0, 5)]
    assert (min(lows), max(lows)) == (0.20, 0.30)
    assert set(precision["random"]) == {0.34}
    fresh = [n for name, row in precision.items() if name.endswith("random weights") for n in row]
    assert 0.34 - 0.07 <= min(fresh) < max(fresh) <= 0.34 + 0.07
    inner = {name: precision[name][1:5] for name in finders}
    assert min(inner.pop("globenc, trained")) > 0.6
    assert all(min(row) < 0.4 for row in inner.values())

    assert set(share["random"]) == {0.12}
    assert max(max(share[name]) for name in share if name.endswith(", trained")) <= 0.14
    assert max(share["alti, trained"]) <= 0.03
    assert min(share["attention, random weights"]) > max(share["attention, trained"])
    assert "oracle" in share


def test_attention_and_rollout_rank_cls_first_in_the_last_layer(executed, minilm):
    import attnwidgets as aw

    cell = next(cell.source for cell in executed.cells if cell.source.startswith("BLIMP"))
    world = {}
    exec(cell, world)
    for example in world["sentences"]:
        card = aw.evaluate.example_scores(*minilm, example, methods=["attention", "rollout"])
        for method in ("attention", "rollout"):
            scores = card.of(method)[0, 0].copy()
            scores[[note == "target" for note in card.x_notes]] = -1
            assert card.x[scores.argmax()] == "[CLS]"


def test_the_mistake_in_the_rollout_is_found_and_its_correction_passes(executed):
    text = notebooks.printed(executed)
    first, second = text.index("fails  equals:rollout"), text.index("holds  equals:rollout")
    assert first < second
    assert "holds  rows_sum_to_one" in text[:first]
    assert "layer 1, query" in text[first:second]
    assert "as rollout does: True" in text
    assert tables(executed)[2][1]["my rollout"] == tables(executed)[2][1]["rollout"]
