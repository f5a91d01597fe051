"""A map of attention gives rows, heads and blocks of rows without their layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations.mixing.attention import attention_row
from attnwidgets.explanations.results import lazy_layers as layered
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.user_methods.register import as_explanation
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.tracing.trace import Trace

COUNT = 100
TRIPLES = [tuple(range(start, min(start + 3, COUNT))) for start in range(0, COUNT, 3)]


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Return a trace of a text whose layers are too large to be built: building a layer fails."""
    ids = [3 + (7 * index) % 100 for index in range(COUNT)]
    result = trace(tiny.build(tiny.TEXT["Qwen3"]), None, ids)
    monkeypatch.setattr(layered, "_LARGE", 2**12)
    monkeypatch.setattr(type(result), "attention_layer", _refuse)
    return result


def _refuse(*_: Any) -> Any:
    raise AssertionError("a layer was built")


def whole(trace: Trace, number: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return a layer that the trace does not keep."""
    return trace.stack_table["self"].layers[number].weights()


WAYS: dict[str, Callable[[MixingMap], MixingMap]] = {
    "as it is": lambda weights: weights,
    "some heads": lambda weights: weights.select(head=[2, 0]),
    "one layer": lambda weights: weights.select(layer=-1),
    "mean": lambda weights: weights.mean("head"),
    "largest": lambda weights: weights.max("head"),
    "by threes": lambda weights: weights.to(
        aw.results.Unit("three", tuple(map(str, TRIPLES)), tuple(TRIPLES), (False,) * len(TRIPLES))
    ),
    "threes of a mean": lambda weights: WAYS["by threes"](weights.mean("head")),
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_a_map_are_those_of_its_layer_without_building_it(unbuilt: Trace, way: str) -> None:
    made = WAYS[way](aw.attention(unbuilt))
    given = MixingMap(
        np.stack([whole(unbuilt, number) for number in range(2)]), query=unbuilt.axes()[0], heads=range(4)
    )
    expected = WAYS[way](given).layer(1)
    assert made.knows_rows
    assert not given.knows_rows
    heads = None if made.heads is None else made.heads[:1]
    some = expected if heads is None else expected[:1]
    close = {"rtol": 0, "atol": 1e-6}
    np.testing.assert_allclose(made.rows(1, heads, [7, 3]), some[..., [7, 3], :], **close)
    np.testing.assert_allclose(WAYS[way](given).rows(1, heads, [7, 3]), some[..., [7, 3], :], **close)
    np.testing.assert_allclose(
        made.matrix(1, None if heads is None else heads[0]), some.reshape(some.shape[-2:]), **close
    )
    gone = list(made.blocks(1, limit=2**13))
    assert len(gone) > 1 or way == "threes of a mean"
    np.testing.assert_allclose(np.concatenate([part for _, part in gone], axis=-2), expected, **close)
    if heads is not None:
        np.testing.assert_allclose(made.matrix(1, "mean"), expected.mean(0), **close)


def test_a_coarse_or_reduced_layer_is_made_in_blocks(unbuilt: Trace) -> None:
    for way in ("mean", "by threes"):
        assert WAYS[way](aw.attention(unbuilt)).layer(0).shape[-1] in (COUNT, len(TRIPLES))


def test_what_attention_is_like_is_known_without_a_layer(unbuilt: Trace) -> None:
    result = aw.attention(unbuilt)
    assert (result.causal, result.stochastic, result.signed) == (True, True, False)


def test_a_function_of_users_that_returns_attention_keeps_its_rows(unbuilt: Trace) -> None:
    common = {"method": "mine", "provenance": {}, "warning": "", "stack": "self", "trace_id": ""}
    renamed = as_explanation(aw.attention(unbuilt), unbuilt, "self", common)
    assert isinstance(renamed, MixingMap)
    assert renamed.rows(0, [1], [5]).shape == (1, 1, COUNT)


def test_one_row_step_by_step_builds_no_layer(unbuilt: Trace) -> None:
    row = attention_row(unbuilt, 1, 2, 50)
    np.testing.assert_allclose(row.weights, row.recorded, atol=1e-6)


def test_layers_of_short_texts_are_kept_for_the_next_look() -> None:
    result = trace(tiny.build(tiny.TEXT["Qwen3"]), None, [5, 17, 31, 9])
    list(aw.attention(result).blocks(1))
    assert list(result._kept) == [("self", 1)]


def test_rows_that_are_not_there_are_named(unbuilt: Trace) -> None:
    result = aw.attention(unbuilt)
    with pytest.raises(IndexError, match="head 4 is out of range: there are heads 0 to 3"):
        result.rows(0, [4])
    with pytest.raises(IndexError, match="query 100 is out of range: there are 0 to 99"):
        result.rows(0, [0], [100])
    with pytest.raises(IndexError, match="this map has no head axis"):
        result.mean("head").rows(0, [1])
    values = result.rows(0, [0], [1])
    with pytest.raises(ValueError, match="read-only"):
        values[:] = 0
