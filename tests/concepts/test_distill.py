"""Distillation on templates: to the reference, on functions whose parts are given, exact and sampled."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.concepts.distill import additive
from attnwidgets.concepts.template import template_of


def student(function: Any, slots: dict[str, Any], *, most: int = 5000, order: int = 2) -> Any:
    """The student of a function of levels' numbers [cell, slot] -> [cell]."""
    template = template_of("".join(f"{{{name}}}" for name in slots), slots, "distill")
    cells = template.cells(most, 0)
    return additive(template, cells, function(cells), order, "f", "", 0)


GRID = {"a": ["x", "y", "z"], "b": ["x", "y"], "c": [1.0, 2.5, 4.0, 9.0]}


def test_an_additive_function_has_no_pairs() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=size) for size in (3, 2, 4)]
    result = student(lambda cells: sum(part[cells[:, axis]] for axis, part in enumerate(parts)), GRID)
    assert result.fidelity == pytest.approx(1, abs=1e-12)
    assert max(share for name, share in result.shares.items() if " x " in name) < 1e-12
    for part, shape in zip(parts, result.shapes.values(), strict=True):
        np.testing.assert_allclose(shape, part - part.mean(), atol=1e-12)
    assert result.predict({"a": "z", "b": "x", "c": 4.0}) == pytest.approx(
        parts[0][2] + parts[1][0] + parts[2][2]
    )


def test_exclusive_or_is_lost_by_slots_and_kept_by_pairs() -> None:
    result = student(
        lambda cells: (cells[:, 0] ^ cells[:, 1]).astype(float), {"a": ["no", "yes"], "b": [0, 1]}
    )
    assert result.fidelity == pytest.approx(0, abs=1e-12)
    assert result.shares["a x b"] == pytest.approx(1)
    assert result.fidelities[2] == pytest.approx(1)
    assert "loses 100.0%" in repr(result).splitlines()[0]
    assert result.worst(1)[0].error == pytest.approx(0.5)


def test_shares_add_up_and_effects_are_orthogonal() -> None:
    values = np.random.default_rng(0).normal(size=24)
    result = student(lambda _: values, GRID)
    assert sum(result.shares.values()) == pytest.approx(1, abs=1e-12)
    for grid in result.pairs.values():
        np.testing.assert_allclose([*grid.mean(0), *grid.mean(1)], 0, atol=1e-12)
    errors = result.student() - values
    assert 1 - errors.var() / values.var() == pytest.approx(result.fidelities[2], abs=1e-12)


def test_a_constant_has_nothing_to_explain() -> None:
    result = student(lambda cells: np.full(len(cells), 2.0), GRID)
    assert np.isnan(result.fidelity)
    assert "nothing to explain" in repr(result)
    assert result.figure().axes


def test_a_large_template_is_sampled_and_said_to_be_estimated() -> None:
    slots = {name: list(range(6)) for name in "abcde"}
    rng = np.random.default_rng(1)
    parts, pair = [rng.normal(size=6) for _ in slots], rng.normal(size=(6, 6))
    pair = pair - pair.mean(0) - pair.mean(1)[:, None] + pair.mean()

    def function(cells: Any) -> Any:
        return sum(part[cells[:, axis]] for axis, part in enumerate(parts)) + pair[cells[:, 0], cells[:, 2]]

    whole, some = student(function, slots, most=10_000), student(function, slots, most=1500)
    assert not whole.estimated
    assert some.estimated
    assert len(some.values) == 1500
    assert len({tuple(cell) for cell in some.cells.tolist()}) == 1500
    assert "about" in some.summary
    assert "estimated from 1,500 of 7,776 texts" in repr(some)
    for name in slots:
        np.testing.assert_allclose(some.shapes[name], whole.shapes[name], atol=1e-9)
    np.testing.assert_allclose(some.pairs["a", "c"], pair, atol=1e-9)
    assert some.fidelities[2] == pytest.approx(1, abs=1e-9)
    assert some.fidelity == pytest.approx(whole.fidelity, abs=0.1)


def test_noise_is_not_taken_for_structure_when_it_is_estimated() -> None:
    slots = {name: list(range(6)) for name in "abcde"}
    result = student(lambda cells: np.random.default_rng(0).normal(size=len(cells)), slots, most=1200)
    assert result.fidelities[2] < 0.05


@pytest.fixture(scope="module")
def soups() -> Any:
    model, tokenizer = aw.demo_model("classifier")
    slots = {"how": ["", "not ", "very "], "adj": ["good", "awful", "loud"], "price": [3, 30, 300]}
    return aw.concepts.distill(model, tokenizer, "The soup was {how}{adj} for {price:d} pounds.", slots)


def test_texts_are_those_of_the_template(soups) -> None:
    assert soups.texts[0] == "The soup was good for 3 pounds."
    assert soups.texts[-1] == "The soup was very loud for 300 pounds."
    model, tokenizer = aw.demo_model("classifier")
    logits = aw.trace(model, tokenizer, soups.texts[4]).logits
    assert soups.values[4] == pytest.approx(float(logits[1] - logits[0]), abs=1e-5)
    assert soups.target == "positive rather than negative"
    assert soups.numeric == ("price",)


def test_a_table_and_a_figure_show_shapes_and_shares(soups) -> None:
    rows = soups.to_rows()
    assert rows[1] == {"slot": "how", "level": "not ", "effect": soups.shapes["how"][1]}
    assert len(rows) == 9 + 27
    words = {text.get_text() for axes in soups.figure().axes for text in axes.texts}
    assert {"how", "adj", "(nothing)", "how × adj"} <= words


@pytest.mark.slow
def test_the_reference_is_met_on_the_demo_classifier(shared: Any) -> None:
    folder = shared / "reference" / "concepts"
    meta, effects = (
        json.loads((folder / "distill.json").read_text()),
        np.load(folder / "distill_factorial.npz"),
    )
    template = template_of(meta["template"], meta["slots"], "distill")
    result = additive(template, template.cells(5000, 0), effects["margin"].reshape(-1), 2, "margin", "", 0)
    for name in effects.files:
        if name.startswith("share_"):
            assert result.shares[name[6:].replace("+", " x ")] == pytest.approx(
                float(effects[name]), abs=1e-12
            )
    np.testing.assert_allclose(
        result.pairs["intensity", "adj"], effects["effect_intensity_adj"][0, :, :, 0], atol=1e-12
    )
    assert result.fidelity == pytest.approx(0.782, abs=1e-3)
    model, tokenizer = aw.demo_model("classifier")
    run = aw.concepts.distill(model, tokenizer, meta["template"], meta["slots"] | {"thing": ["soup", "film"]})
    np.testing.assert_allclose(run.values.reshape(2, 4, 6, 3), effects["margin"][:2], atol=1e-4)


@pytest.mark.parametrize(
    ("template", "slots", "error", "said"),
    [
        ("no slot", {"a": ["x", "y"]}, ValueError, "has no slot"),
        ("{adj}", {"adi": ["x", "y"]}, ValueError, "Did you mean 'adi'"),
        ("{a}", {"a": ["x", "y"], "b": ["x", "y"]}, ValueError, "names 'b', which is not in the template"),
        ("{a}", {"a": ["x"]}, ValueError, "1 level"),
        ("{a}", {"a": ["x", "y", "x"]}, ValueError, "holds 'x' twice"),
        ("{a", {"a": ["x", "y"]}, ValueError, "cannot be read"),
        ("{a}", ["x", "y"], TypeError, "give a mapping"),
    ],
)
def test_templates_that_do_not_fit_are_refused(template, slots, error, said) -> None:
    with pytest.raises(error, match=said):
        template_of(template, slots, "concepts.distill")


def test_levels_are_text_and_never_looked_into() -> None:
    template = template_of("<{a}> {{b}}", {"a": ["{c}", "<b>&\u202e"]}, "distill")
    assert [template.text(cell) for cell in template.cells(10, 0)] == ["<{c}> {b}", "<<b>&\u202e> {b}"]


def test_unknown_options_are_refused(soups) -> None:
    with pytest.raises(ValueError, match="order must be 1"):
        aw.concepts.distill(None, None, "{a}", {"a": ["x", "y"]}, order=3)
    with pytest.raises(ValueError, match="most must be"):
        aw.concepts.distill(None, None, "{a}", {"a": ["x", "y"]}, most=0)
    with pytest.raises(ValueError, match="Did you mean 'good'"):
        soups.predict({"how": "", "adj": "goood", "price": 3})
    with pytest.raises(ValueError, match="lacks slot 'price'"):
        soups.predict({"how": "", "adj": "good"})
    with pytest.raises(ValueError, match="order 3 was not fitted"):
        soups.student(order=3)
