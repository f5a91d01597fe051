from __future__ import annotations

import pickle

import numpy as np
import pytest

from attnwidgets.explanations import Attributions
from attnwidgets.explanations.results.archive import load
from tests.explanations import made
from tests.explanations.made import TOKENS, attention_map, axis

VALUES = np.array([[0.5, -1, 2, 0, 1, 0, 0], [1, 1, -3, 0, 0, 0, 2]])


def two_targets() -> Attributions:
    return Attributions(VALUES, axis=axis(), target=["are", "is"], residual=[0.0, 0.5], method="lrp")


def test_one_target_of_several():
    result = two_targets().select("is")
    np.testing.assert_array_equal(result.values, VALUES[1])
    assert (result.target, result.residual) == ("is", 0.5)
    np.testing.assert_array_equal(two_targets().select(-2).values, VALUES[0])
    with pytest.raises(IndexError, match="target 2 is out of range: there are targets 0 to 1"):
        two_targets().select(2)
    with pytest.raises(IndexError, match=r"target 'ar' is not one of 'are', 'is'. Did you mean 'are'"):
        two_targets().select("ar")


def test_reduced_over_targets():
    np.testing.assert_allclose(two_targets().sum().values, VALUES.sum(0))
    assert two_targets().mean().note == "mean over targets"
    with pytest.raises(ValueError, match="no 'target' axis"):
        two_targets().select(0).mean()
    with pytest.raises(ValueError, match="Did you mean 'mean'"):
        two_targets().reduce("target", "maen")


def test_totals_stay_when_units_get_coarser():
    result = two_targets()
    for unit in ("word", "sentence"):
        np.testing.assert_allclose(result.to(unit).values.sum(-1), VALUES.sum(-1))
    assert result.to("word").residual == (0.0, 0.5)
    assert result.to("word").available_units() == ("word", "sentence")
    with pytest.raises(ValueError, match="'token', 'word', 'sentence'"):
        result.to("paragraph")


def test_title_names_target_and_foil():
    result = Attributions(VALUES[0], axis=list(TOKENS), target="are", foil="is", method="lrp")
    assert result.title == "lrp for 'are' rather than 'is'"
    assert result.signed


@pytest.mark.parametrize(
    ("values", "target", "message"),
    [
        (np.zeros(6), "x", r"shape \(6,\).*7 sources"),
        (np.zeros((2, 7)), "x", "one label for each target"),
        (np.zeros((2, 7)), ["x"], "one label for each target"),
        (np.full(7, np.nan), "x", "NaN"),
    ],
)
def test_shapes_and_labels_must_agree(values, target, message):
    with pytest.raises(ValueError, match=message):
        Attributions(values, axis=axis(), target=target)


def test_dataframe_and_pickle():
    table = two_targets().to_dataframe()
    assert list(table.columns) == ["target", "source_index", "source", "value"]
    assert table[table["target"] == "is"]["value"].tolist() == VALUES[1].tolist()
    again = pickle.loads(pickle.dumps(two_targets()))
    np.testing.assert_array_equal(again.values, two_targets().values)
    assert (again.targets, again.residual) == (("are", "is"), (0.0, 0.5))


def test_the_map_of_the_layers_goes_along(tmp_path):
    layers = attention_map().mean()
    result = Attributions(VALUES, axis=axis(), target=["are", "is"], method="decompx", map=layers)
    assert two_targets().map is None
    assert result.select("is").map is layers
    assert result.mean().map is layers
    np.testing.assert_array_equal(result.to("word").map.values, layers.to("word").values)
    halves = made.unit("half", [(0, 1, 2, 3), (4, 5, 6)])
    np.testing.assert_array_equal(result.to(halves).map.values, layers.to(halves).values)
    for copied in (pickle.loads(pickle.dumps(result)), load(result.save(tmp_path / "result.safetensors"))):
        np.testing.assert_array_equal(copied.map.values, layers.values)
        np.testing.assert_array_equal(copied.values, result.values)
        assert copied.map.method == layers.method
