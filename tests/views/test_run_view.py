"""RunView: it sends the measurements, a page holds ten maps, and the last step is the finished model."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.wire.thumbnails import decode
from tests.training import made


@pytest.fixture(scope="module")
def run() -> Any:
    """Twelve models between an untrained and the shipped model; the weights of one step are broken."""
    start, end = made.model(), aw.zoo.trained("induction")[0]
    models = {10 * at: made.between(start, end, at / 11) for at in range(12)}
    models[30].lm_head.weight.data[0, 0] = float("inf")
    return aw.checkpoints(models, made.tokenizer())


@pytest.fixture(scope="module")
def view(run: Any) -> Any:
    texts = ["abcdefghabcdefgh", "hgfedcbahgfedcba"] * 4
    return run.view(claims=run.claims(["head 1.1 is induction", "head 0.0 is induction"], texts))


def test_curves_travel_with_the_digits_that_are_shown(run: Any, view: Any) -> None:
    data, (patterns, cause) = view.requests.answer("run", {})
    json.dumps(data, allow_nan=False)
    assert data["steps"] == list(run.steps)
    assert [bool(gap) for gap in data["gaps"]] == [step == 30 for step in run.steps]
    assert data["behaviour"][3] is None
    curves = run.curves(["previous", "offset", "behaviour", "cause"])
    sent = np.frombuffer(patterns, "<u2").reshape(12, 2, 2, 6)
    expected = np.concatenate([curves["previous"].values[..., None], curves["offset"].values], -1)
    assert (sent[3] == 65_535).all()
    finite = [at for at in range(12) if at != 3]
    np.testing.assert_allclose(sent[finite] / 65_534, expected[finite], atol=1e-5)
    np.testing.assert_array_equal(
        np.frombuffer(cause, "<f4").reshape(12, 2, 2), curves["cause"].values.astype("f4")
    )
    assert [verdicts[3] for _, _, verdicts in data["claims"]] == ["g", "g"]
    assert data["claims"][0][2].endswith("h")


def test_the_last_map_is_that_of_the_finished_model(run: Any, view: Any) -> None:
    meta, (data,) = view.requests.answer("map", {"step": 11, "layer": 1, "head": 1})
    model, tokenizer = aw.zoo.trained("induction")
    trace = aw.trace(model, tokenizer, input_ids=run.texts().ids[0].tolist())
    shown = decode(data, meta["codec"], meta["rows"], meta["cols"], meta["scale"])
    # A byte under a square root: half a step of 1 / 255 is at most 0.004.
    np.testing.assert_allclose(shown, trace.attention_layer(1)[1], atol=0.004)


def test_it_opens_at_the_steepest_rise_of_the_strongest_head(run: Any, view: Any) -> None:
    assert view.step == run.curve("behaviour").steepest
    strongest = run.curve("induction").strongest
    assert (view.options["layer"], view.options["head"]) == strongest
    other = run.view(step=100, layer=0, head=1)
    assert (other.step, other.options["layer"], other.options["head"]) == (100, 0, 1)
    assert "first at half way at step" in view.describe()
    assert "head 1.1 is induction: holds from step" in view.describe()


def test_a_page_holds_all_curves_and_the_maps_of_ten_steps(view: Any) -> None:
    maps = [args for topic, args, _ in view.requests.for_page() if topic == "map"]
    assert len({args["step"] for args in maps}) == 10
    assert len(maps) == 10 * 4
    assert 3 not in {args["step"] for args in maps}, "a gap has no map"
    assert view.options["step"] in {args["step"] for args in maps}
    table = list(csv.DictReader(io.StringIO(view.requests.answer("csv", {})[0])))
    assert {row["curve"] for row in table} >= {"behaviour", "offset", "cause", "previous", "induction"}


def test_numbers_are_copied_as_python(run: Any, view: Any) -> None:
    for pattern, name in (("+1", "offset"), ("previous", "previous")):
        args = {"of": "pattern", "step": 11, "layer": 1, "head": 1, "pattern": pattern}
        code = view.requests.answer("expression", args)[0]["code"]
        assert name in code
    value = run.curve("induction").at(1, 1).values[11]
    args = {"of": "pattern", "step": 11, "layer": 1, "head": 1, "pattern": "+1"}
    code = view.requests.answer("expression", args)[0]["code"]
    assert eval(code, {}, {"view": view}) == value


def test_what_is_no_run_and_what_is_out_of_range_is_refused(run: Any) -> None:
    with pytest.raises(TypeError, match=r"RunView\(\) shows the result of aw.checkpoints, not int"):
        aw.views.RunView(3)
    with pytest.raises(TypeError, match=r"claims must be the result of run\.claims"):
        run.view(claims=["head 1.1 is induction"])
    with pytest.raises(IndexError, match="step"):
        run.view(step=15)
    with pytest.raises(IndexError, match="head"):
        run.view(head=7)


def test_a_model_that_does_not_predict_the_next_token_has_its_patterns_only() -> None:
    models = dict(enumerate(aw.demo_model("encoder")[:1] * 2))
    run = aw.checkpoints(models, aw.demo_model("encoder")[1])
    with pytest.raises(ValueError, match="does not predict the next token"):
        run.curve("behaviour")
    data, (_, cause) = run.view().requests.answer("run", {})
    assert "does not predict the next token" in data["why"]
    assert data["behaviour"] is None
    assert cause == b""
