"""Studies: assignments, refusals, and data that must not reach the people."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.people.item import gaps
from attnwidgets.people.kinds import KINDS, score
from attnwidgets.people.responses import Schedule, check_positions, digest, hashed, schedule_of_code, turns_of

from .made import items, study


@pytest.mark.parametrize(
    ("kind", "conditions"), [("trust", ("none", "a", "b")), ("forced_choice", ("a", "b", "c"))]
)
def test_over_all_schedules_every_item_stands_in_every_cell_position_and_side_equally_often(kind, conditions):
    made = study(kind, conditions, count=6)
    count, cells = len(made.items), len(made.cells)
    codes = made.codes(4 * count * cells)
    assert len(set(codes)) == len(codes)
    by_position, by_side = Counter(), Counter()
    for code in codes:
        for position, turn in enumerate(made.turns(code)):
            by_position[turn.item, turn.cell, position] += 1
            by_side[turn.item, turn.cell, turn.side] += 1
    assert set(by_position.values()) == {4}
    assert len(by_position) == count * cells * count
    assert set(by_side.values()) == {2 * count}
    assert len(by_side) == count * cells * 2


def test_blocks_of_codes_are_latin_squares_and_nobody_sees_an_item_twice():
    made = study("trust", ("none", "a", "b", "random"))
    codes = made.codes(12, seed=3)
    for start in (0, 4, 8):
        seen = {(turn.item, turn.cell) for code in codes[start : start + 4] for turn in made.turns(code)}
        assert len(seen) == 8 * 4
    for code in codes:
        turns = made.turns(code)
        assert sorted(turn.item for turn in turns) == list(range(8))
        assert set(Counter(turn.cell for turn in turns).values()) == {2}
    assert codes == made.codes(12, seed=3) != made.codes(12, seed=4)


def test_of_an_even_number_every_item_follows_every_other_once():
    """The Williams square is balanced for the condition just before."""
    orders = [
        [turn.item for turn in turns_of(Schedule(0, 0, 0, row), 6, 1, between=False)] for row in range(6)
    ]
    after = Counter(pair for order in orders for pair in pairwise(order))
    assert set(after.values()) == {1}
    assert len(after) == 6 * 5


def test_between_people_everybody_sees_one_condition():
    made = study("trust", ("none", "lrp"), count=5, design="between")
    shown = [{turn.cell for turn in made.turns(code)} for code in made.codes(4)]
    assert shown == [{0}, {1}, {0}, {1}]


def test_the_hash_is_that_of_the_browser():
    """The same numbers stand in js/test/people.test.ts."""
    assert hashed("") == 2872998923
    assert (digest("aw"), digest("שלום 🙂")) == ("f6a0999204a52403", "dbdacc6deb01b9e1")
    schedule = schedule_of_code("k7m2p9qa", "2d2751fa4a56b271", 6, 3)
    assert schedule == (1, 1, 1, 4)
    turns = [tuple(turn) for turn in turns_of(schedule, 6, 3, between=False)]
    assert turns == [(1, 2, 1), (2, 0, 1), (0, 1, 1), (3, 1, 0), (5, 0, 0), (4, 2, 0)]
    assert check_positions(8, 2) == [3, 5]
    assert check_positions(24, 3) == [6, 12, 18]


def test_numbers_are_not_in_the_hash_but_texts_are():
    first, given = study(), items()
    given[0]["explanations"]["lrp"][1][0] = 0.1000001
    assert aw.people.study("forward", given, ["none", "lrp"]).hash == first.hash
    given[0]["text"] += "!"
    assert aw.people.study("forward", given, ["none", "lrp"]).hash != first.hash


def test_the_placebo_has_the_same_numbers_on_other_words():
    made = study("trust", ("lrp", "random"))
    differs = 0
    for (explained,), (placebo,) in made.shown:
        assert sorted(explained.values) == sorted(placebo.values)
        assert explained.words == placebo.words
        differs += explained.values != placebo.values
    assert differs >= 6


@pytest.mark.slow
def test_explanations_of_this_package_are_read_by_words():
    trace = aw.trace(*aw.demo_model("classifier"), "The film wasn't unlikeable.")
    lrp = aw.lrp(trace)
    given = [
        {
            "text": text,
            "prediction": lrp.target,
            "explanations": {"lrp": lrp, "map": aw.attention(trace)},
        }
        for text in (trace.text, "Another film.")
    ]
    made = aw.people.study("trust", given, ["lrp", "map"])
    (words, values, _), (other, amounts, _) = made.shown[0][0][0], made.shown[0][1][0]
    assert words == other == ("The", "film", "wasn't", "unlikeable", ".")
    by_word = np.asarray(lrp.to("word").values)[1:-1]
    np.testing.assert_allclose(values, by_word / np.abs(by_word).max(), atol=5e-4)
    read = np.asarray(aw.attention(trace).to("word").values).mean((0, 1, 2))[1:-1]
    np.testing.assert_allclose(amounts, read / read.max(), atol=5e-4)
    assert gaps(trace.text, words) == [False, True, True, True, False]


# -- refusals ------------------------------------------------------------------------------------------


def refused(error, match, kind="forward", given=None, conditions=("none", "lrp"), **options):
    with pytest.raises(error, match=match):
        aw.people.study(kind, items() if given is None else given, conditions, **options)


def test_a_forward_simulation_refuses_what_gives_the_answer_away():
    given = items()
    given[3]["explanations"] = {"lrp": "Because it is YES, of course."}
    refused(ValueError, r"items\[3\] in condition 'lrp' gives the answer away.*'yes'", given=given)
    given[3]["explanations"] = {"lrp": "Because of yesterday."}
    aw.people.study("forward", given, ["none", "lrp"])
    given[3]["explanations"] = {"lrp": (["a", "yes"], [0.0, 1.0])}
    refused(ValueError, "holds the label 'yes'", given=given)
    given[3]["text"] = "a yes"  # the text may hold the word
    aw.people.study("forward", given, ["none", "lrp"])
    given = items()
    for item in given:
        sign = 1 if item["prediction"] == "yes" else -1
        item["explanations"]["lrp"] = (["a", "b"], [0.9 * sign, -0.1 * sign])
    refused(ValueError, "8 of 8 items .* '(no|yes)', so the colours state the class", given=given)
    assert not any(
        entry.signed for ((entry,),) in aw.people.study("forward", given, ["lrp"], signed=False).shown
    )
    aw.people.study("trust", given, ["none", "lrp"])  # here the answer is shown


def test_right_answers_do_not_travel_with_a_forward_simulation():
    given = items(2)
    given[0]["prediction"], given[1]["prediction"] = "left", "right"
    view = aw.people.study("forward", given, ["none", "lrp"], labels=["left", "right"], checks=0).view()
    sent = json.dumps(view.options["study"]["items"])
    assert "left" not in sent
    assert "right" not in sent
    assert view.options["study"]["items"][0]["truth"] is None


def test_what_makes_a_simulation_easy_is_said():
    given = items(8)
    for item in given:
        item["prediction"] = item["label"] = "yes"
    with pytest.warns(UserWarning, match=r"aw\.people\.study") as told:
        aw.people.study("forward", given, ["none", "lrp"], labels=["no", "yes"])
    words = " ".join(str(entry.message) for entry in told)
    assert "'yes' is right in 8 of 8" in words
    assert "the model is right in every item" in words


def test_a_text_that_comes_twice_is_said_with_its_items():
    given = items(8)
    given[6]["text"] = given[1]["text"].upper() + " "
    with pytest.warns(UserWarning, match=r"items\[1\] and items\[6\] have one text, 'a plain text it was 1'"):
        made = aw.people.study("trust", given, ["none", "lrp"])
    assert len(made.items) == 8  # nothing is dropped
    with pytest.warns(UserWarning, match=r"items\[0\] and practice\[0\] have one text"):
        aw.people.study("trust", items(2), ["none", "lrp"], practice=items(1))
    # A text may be changed in several ways: these are different questions.
    more = {"text": "a text", "changed_prediction": "yes"}
    given = [{**item, **more, "changed": f"text {i}"} for i, item in enumerate(items(2))]
    given[1]["changed_prediction"] = "no"
    assert not aw.people.study("counterfactual", given, ["none", "lrp"]).notes


def test_a_simulation_does_not_ask_what_it_shows_elsewhere():
    refused(ValueError, r"items\[1\] asks .* '.* was 1', and practice\[0\] shows it", practice=items(2)[1:])
    changed = [{**item, "changed": "b", "changed_prediction": "yes"} for item in items(4)]
    changed[2]["changed"] = changed[0]["text"]
    refused(ValueError, r"items\[2\] asks .* items\[0\] shows it", kind="counterfactual", given=changed)
    changed[2]["changed"] = changed[2]["text"]
    refused(ValueError, r"items\[2\]\.changed is its own text", kind="counterfactual", given=changed)


def test_bad_input_is_refused_with_what_to_do():
    refused(ValueError, "7 items in 2 conditions .* add 1 or leave out 1", given=items(7))
    refused(ValueError, "items is empty", given=[])
    refused(ValueError, "not one of 'forced_choice'.*Did you mean 'forward'", kind="forwards")
    refused(ValueError, r"items\[0\].explanations\['ig'\] is missing", conditions=("none", "ig"))
    refused(TypeError, "one name; give a list", conditions="lrp")
    refused(ValueError, "each once", conditions=("lrp", "lrp"))
    refused(ValueError, "2 or more names", kind="forced_choice", conditions=("lrp",))
    refused(ValueError, "'random' shuffles", conditions=("none", "random"))
    refused(ValueError, r"items\[0\] has no changed", kind="counterfactual")
    refused(ValueError, "say which model is better", kind="which_model")
    refused(ValueError, "two or more labels", labels=["yes"])
    refused(ValueError, r"lack the predictions \['no', 'yes'\]", labels=["a", "b"])
    refused(ValueError, "checks=11", checks=11)
    refused(ValueError, "checks='2': give a whole number", checks="2")
    refused(ValueError, "consent is not a text", texts={"consent": " "})
    refused(ValueError, "texts 'questions'.*Did you mean 'question'", texts={"questions": "Why?"})
    refused(ValueError, "design 'both'", design="both")
    refused(TypeError, r"items\[1\] is a str", given=[items(1)[0], "text"])
    refused(TypeError, "no keyword 'txt'. Did you mean 'text'", given=[{"txt": "a"}] * 2)
    refused(ValueError, r"items\[0\] has no text", given=[{"text": " "}] * 2)
    refused(ValueError, "2 items have the id 'a'", given=[{**item, "id": "a"} for item in items(4)[1:3]])
    for wrong, error, words in (
        ((["a"], [float("nan")]), ValueError, "NaN or infinite, for 'a'"),
        ((["a"], [1.0, 2.0]), ValueError, "value for each word"),
        (([], []), ValueError, "0 words"),
        (3, TypeError, "is a int; give Attributions"),
        ("", ValueError, "a sentence of 1 to"),
        (aw.results.Attributions([[1.0], [2.0]], axis=["a"]), ValueError, "has 2 targets"),
    ):
        given = items(4)[1:3]
        given[1]["explanations"]["lrp"] = wrong
        refused(error, words, given=given)
    given = items(2, "a", "b", remove=("nowhere",))
    refused(
        ValueError, "'nowhere' is not one of its 6 words", kind="remove_words", given=given, conditions=("a",)
    )
    given = items(2, "a", "b")
    given[0]["explanations"]["b"] = (["a"], [1.0])
    refused(ValueError, "different words", kind="remove_words", given=given, conditions=("a", "b"))
    with pytest.raises(ValueError, match="code='Eve Smith' is not"):
        study().view(code="Eve Smith")
    with pytest.raises(TypeError, match=r"the result of aw\.people\.study, not list"):
        aw.people.StudyView([])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_view_and_is_simulated(kind):
    conditions = ("a", "b") if kind == "forced_choice" else ("none", "lrp", "random")
    made = study(kind, conditions, count=6)
    effects = dict.fromkeys(conditions, 3.0 if kind == "trust" else 0.5) | {("a", "b"): 0.5}
    responses = made.simulate(aw.people.Agent(effects), people=6)
    assert len(responses.rows) == 6 * (6 + 2)
    assert set(responses.balance().values()) == {6 if kind == "forced_choice" else 2}
    assert len(responses.analyse(resamples=100).means) == len(made.cells)
    view = made.view()
    assert made.question in view.describe()
    assert view.figure().get_size_inches()[1] > 1


def test_scores_follow_the_side_on_which_something_stood():
    assert [
        score("forced_choice", None, answer, side) for answer in ("first", "second") for side in (0, 1)
    ] == [
        *(1, 0),
        *(0, 1),
    ]
    assert [score("which_model", 1, answer, side) for answer in ("first", "second") for side in (0, 1)] == [
        *(0, 1),
        *(1, 0),
    ]
    assert score("remove_words", (1, 2), [2, 3], 0) == 1 / 3
    assert score("remove_words", None, [2], 0) is None
    assert score("trust", None, 4, 0) == 4


def test_texts_of_the_page_and_their_former_keywords() -> None:
    asked = {"question": "Is it so?", "consent": "Yes, I take part."}
    made = study("trust", texts=asked)
    assert (made.question, made.consent) == tuple(asked.values())
    with pytest.warns(DeprecationWarning, match=r'study: .question., .consent. belong in texts=\{"question"'):
        former = study("trust", **asked)
    assert (former.question, former.consent, former.hash) == (made.question, made.consent, made.hash)
    assert former.hash != study("trust").hash


def test_fault_lines_tell_an_edit_and_ask_about_another():
    words = ["fine", "superb", "dull", "boring", "long", "new"]
    texts = ["A fine film.", "A dull plot.", "A superb cast.", "A boring story."]
    edits = [aw.evaluate.minimal_edits(*aw.demo_model("classifier"), text, words) for text in texts]
    items = aw.people.fault_lines(edits, lines=2, seed=3)
    assert [item.changed_prediction != item.prediction for item in items] == [True, True, False, False]
    for item, result in zip(items, edits, strict=True):
        told = item.explanations["fault line"]
        assert [edit.new in told for edit in result.flips[:2]] == [True, True]
        answers = {edit.text: edit.label for edit in result}
        assert answers[item.changed] == item.changed_prediction
        assert item.changed not in {edit.text for edit in result.flips[:2]}
    study = aw.people.study("counterfactual", items, ["none", "fault line"])
    assert study.kind == "counterfactual"
    assert [item.changed for item in aw.people.fault_lines(edits, lines=2, seed=3)] == [
        item.changed for item in items
    ]
    with pytest.raises(ValueError, match=r"edits\[0\]: too few edits .* turn the answer"):
        aw.people.fault_lines(edits, lines=50)
    with pytest.raises(ValueError, match="lines must be at least 1"):
        aw.people.fault_lines(edits, lines=0)
