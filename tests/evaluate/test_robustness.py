"""How much of a ranking survives the choices that a method leaves open, and how the strip shows it."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnwidgets as aw
from attnwidgets.evaluate.metrics.robustness import CHOICES, HEADS, robustness
from tests.examples import examples

AXIS = list("abcde")


def versions(*rows):
    return {
        str(i): aw.results.Attributions(np.array(row, dtype=float), axis=AXIS) for i, row in enumerate(rows)
    }


def ranks_of(view):
    return view.options["ranks"]


def test_two_opposite_choices_settle_nothing_and_equal_ones_everything():
    up = [1, 2, 3, 4, 5]
    opposite = robustness(versions(up, up[::-1]))
    assert opposite.unsettled.all()  # the middle value too: all others change sides with it
    assert (opposite.low[2], opposite.high[2]) == (3, 3)
    assert not robustness(versions(up, up)).unsettled.any()
    assert ranks_of(aw.TokenStrip(opposite))["unsettled"] == [1] * 5


@settings(max_examples=examples(50))
@given(st.lists(st.permutations(range(5)), min_size=2, max_size=4))
def test_unsettled_is_what_another_one_passes(rows):
    result = robustness(versions(*rows))
    for i in range(5):
        passed = any(
            any(row[i] > row[j] for row in rows) and any(row[i] < row[j] for row in rows)
            for j in range(5)
            if j != i
        )
        assert result.unsettled[i] == passed


def test_ties_are_no_change_of_places():
    assert not robustness(versions([1, 1, 0, 0, 0], [2, 1, 0, 0, 0])).unsettled.any()


def test_a_method_without_a_choice_is_not_hatched(minilm, sentence):
    trace = aw.trace(*minilm, sentence)
    only = robustness(trace, "rollout", choices={"order": ["output_first"]})
    assert len(only.names) == 1
    assert not only.unsettled.any()
    assert ranks_of(aw.TokenStrip(only))["versions"] == 1


def test_every_combination_of_choices_is_a_version(minilm, sentence):
    trace = aw.trace(*minilm, sentence)
    result = robustness(trace, "rollout")
    options = CHOICES["rollout"]
    assert len(result.names) == np.prod([len(values) for values in options.values()]) == 8
    for row, values in zip(result.versions, itertools.product(*options.values()), strict=True):
        expected = aw.rollout(trace, **dict(zip(options, values, strict=True)))
        np.testing.assert_allclose(row.values, expected.matrix(expected.layers[-1])[0])
    some = robustness(trace, "rollout", choices=["order"])
    assert some.names == ("order='output_first'", "order='input_first'")
    heads = robustness(trace, "attention", layer=2)
    np.testing.assert_allclose(
        heads.versions[1].values, aw.attention(trace).reduce("head", "max").matrix(2)[0]
    )
    words = robustness(trace, "value_zeroing", unit="word")
    assert words.versions[0].unit == "word"


def test_choices_are_options_of_their_methods_with_their_default_first():
    table = aw.methods()
    for name, options in CHOICES.items():
        parameters = inspect.signature(table[name].function).parameters
        for option, values in options.items():
            assert len(set(values)) == len(values) >= 2
            if option == HEADS:
                assert table[name].kind == "map"
                continue
            default = parameters[option].default
            assert default is None or values[0] == default


def test_what_is_not_open_is_said(minilm, sentence):
    trace = aw.trace(*minilm, sentence)
    with pytest.raises(ValueError, match="Did you mean 'order'"):
        robustness(trace, "rollout", choices=["ordr"])
    with pytest.raises(ValueError, match="'mixing_ratio' has no known open options"):
        robustness(trace, "mixing_ratio")
    with pytest.raises(ValueError, match="Did you mean 'rollout'"):
        robustness(trace, "rolout")
    with pytest.raises(TypeError, match="name the method"):
        robustness(trace)


def test_choices_that_an_input_has_not_are_refused_with_their_reason(minilm, sentence):
    trace = aw.trace(*minilm, sentence)
    result = robustness(trace, "rollout", choices={"residual_weight": [0.5, 2.0]})
    assert list(result.refused) == ["residual_weight=2.0"]
    assert len(result.versions) == 1
    with pytest.raises(ValueError, match="residual_weight"):
        robustness(trace, "rollout", choices={"residual_weight": [2.0]})


def test_a_strip_and_its_figure_hatch_what_moves():
    result = robustness(versions([5, 4, 3, 2, 1], [5, 3, 4, 2, 1]))
    view = aw.TokenStrip(result)
    assert ranks_of(view) == {
        "unit": "token",
        "low": [1, 2, 2, 4, 5],
        "high": [1, 3, 3, 4, 5],
        "unsettled": [0, 1, 1, 0, 0],
        "versions": 2,
    }
    figure = view.figure()
    assert sum(bool(patch.get_hatch()) for patch in figure.axes[0].patches) == 2
    texts = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    words = [text.get_text() for text in texts]
    assert any("does not survive 2 defensible choices" in text for text in words)
    other = aw.results.Attributions([1.0, 2.0], axis=["x", "y"])
    with pytest.raises(ValueError, match="not those shown"):
        aw.TokenStrip(other, robustness=result)
    with pytest.raises(TypeError, match=r"aw\.evaluate\.robustness"):
        aw.TokenStrip(other, robustness=[1])
