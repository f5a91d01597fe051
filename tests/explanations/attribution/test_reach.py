"""Tokens after a generated token are not read by it: left out of every picture, never painted as zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.wire.thumbnails import decode
from tests.tracing import tiny


@pytest.fixture(scope="module")
def answered() -> Any:
    model = tiny.build(tiny.TEXT["Llama"])
    return aw.trace(model, None, [5, 17, 31, 9], max_new_tokens=3)


@pytest.fixture(scope="module")
def rows(answered: Any) -> Any:
    return aw.lrp(answered, aw.targets.generated(answered))


def shown(view: Any, inside: str = "", layer: int = 0) -> Any:
    """Return the data of a view as the browser receives it."""
    key = view.options["method"] + inside
    source = next(s for s in view.store.sources() if (s.method, s.unit) == (key, "token"))
    tile = source.tile(layer, "-")
    return decode(tile.data, tile.codec, tile.rows, tile.cols, tile.scale)


def test_a_generated_token_reads_what_came_before_it(rows: Any) -> None:
    assert rows.reach == (4, 5, 6)
    beyond = rows.beyond()
    assert beyond.tolist() == [[i >= reach for i in range(7)] for reach in rows.reach]
    assert not rows.values[beyond].any()
    assert rows.values[~beyond].all()


def test_rows_keep_their_reach_when_chosen_saved_and_read_by_words(rows: Any, tmp_path: Any) -> None:
    assert rows.select(1).reach == (5,)
    assert rows.mean().reach == (6,)
    assert aw.load(rows.save(tmp_path / "rows.safetensors")).reach == rows.reach
    pairs = aw.results.Unit("pair", ("a", "b", "c", "d"), ((0, 1), (2, 3), (4, 5), (6,)), (False,) * 4)
    # A pair counts as read where either token was.
    assert rows.to(pairs).beyond().tolist()[0] == [False, False, True, True]
    assert rows.to(pairs).beyond().tolist()[1] == [False, False, False, True]


def test_no_view_is_sent_a_zero_for_it(rows: Any) -> None:
    view = aw.views.RelevanceMap(rows)
    for inside, layer in (("", 0), (":layers", 0), (":layers", 2)):
        np.testing.assert_array_equal(np.isnan(shown(view, inside, layer)), rows.beyond())
    exact = next(s for s in view.store.sources() if s.method == view.options["method"]).matrix(0, "-")
    np.testing.assert_allclose(exact[~rows.beyond()], rows.values[~rows.beyond()], rtol=1e-6)


def test_values_without_a_sign_have_no_zero_for_it_either(answered: Any) -> None:
    lengths = aw.saliency(answered, aw.targets.generated(answered))
    view = aw.Heatmap(lengths)
    np.testing.assert_array_equal(np.isnan(shown(view)), lengths.beyond())
    assert not next(s for s in view.store.header["sources"] if s["method"] == view.options["method"])[
        "signed"
    ]


def test_beside_each_other_each_keeps_its_own(answered: Any) -> None:
    early = aw.lrp(answered, aw.targets.token(7, position=2))
    late = aw.lrp(answered, 7)
    assert (early.reach, late.reach) == ((3,), None)
    view = aw.views.RelevanceMap([early, late])
    assert np.isnan(shown(view)).sum(1).tolist() == [4, 0]


def test_where_everything_is_read_nothing_is_left_out() -> None:
    bert = aw.trace(tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece(), "the [MASK] sat")
    assert aw.lrp(bert, aw.targets.token(7, position=1)).reach is None
    seq = aw.trace(tiny.build(tiny.SEQ2SEQ["T5"]), None, [5, 17, 31, 9], max_new_tokens=2)
    targets = aw.targets.generated(seq)
    assert aw.input_x_gradient(seq, targets, stack="encoder").reach is None
    decoder = aw.input_x_gradient(seq, targets, stack="decoder")
    assert decoder.reach == (1, 2)
    assert not decoder.values[decoder.beyond()].any()


def test_a_number_for_each_target_is_asked_for() -> None:
    with pytest.raises(ValueError, match=r"reach \[1\] does not fit .* one number for each target"):
        aw.results.Attributions([[1.0, 2.0], [3.0, 4.0]], axis=["a", "b"], reach=[1])
