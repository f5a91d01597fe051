"""Where views open: on the head with the strongest pattern, unless somebody chose another."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.statistics.patterns import PATTERNS, patterns_of
from attnwidgets.views.base import opening

TOKENS = ["[CLS]", "a", "b", "c", "d", "[SEP]"]


def recorded():
    values = np.full((3, 4, 6, 6), 1 / 6, dtype=np.float32)
    values[0, 0] = np.eye(6)[0]
    values[2, 1] = np.eye(6)[[0, 0, 1, 2, 3, 4]]
    return aw.from_attentions(values, TOKENS)


@pytest.mark.parametrize("name", ["Heatmap", "HeadGrid", "TokenStrip", "HeadView", "Explorer"])
def test_every_view_opens_on_the_strongest_pattern(name):
    view = getattr(aw, name)(recorded())
    assert (view.selection.layer, view.selection.head) == (2, 1)
    result = view.selection.opening
    assert (result.words, result.query, result.value) == ("reads the token before", 4, pytest.approx(1))
    assert view.selection.pinned is None
    state = view.presentation
    assert (state.layer, state.head) == (2, 1)


def test_a_pair_of_different_content_tokens_is_the_strongest():
    assert opening.opening_of(aw.attention(recorded()), "token").pair == (2, 1)


def test_what_was_chosen_is_never_overridden():
    assert aw.Heatmap(recorded(), layer=1).selection.layer == 1
    assert aw.Heatmap(recorded(), head=3).selection.head == 3
    trace = recorded()
    first = aw.Heatmap(trace)
    first.selection.layer, first.selection.head = 1, 3
    second = aw.HeadGrid(trace)
    assert (second.selection.layer, second.selection.head) == (1, 3)


def stepped(count):
    """Three layers of four heads: 2.1 reads the token before, at most queries; 0.3 at a few of them."""
    values = np.full((3, 4, count, count), 1 / count, dtype=np.float32)
    before = np.eye(count, k=-1, dtype=np.float32)
    before[0, 0] = 1
    some = np.arange(count) % 10 == 0
    values[2, 1] = np.where(some[:, None], values[2, 1], before)
    values[0, 3] = np.where(some[:, None], before, values[0, 3])
    return values


def test_of_too_many_weights_some_queries_are_read(monkeypatch):
    values = stepped(200)
    whole = opening.opening_of(
        aw.attention(aw.from_attentions(values, [f"t{i}" for i in range(200)])), "token"
    )
    monkeypatch.setattr(opening, "MOST_WEIGHTS", 3 * 4 * 200**2 - 1)
    sampled = aw.Heatmap(aw.from_attentions(values, [f"t{i}" for i in range(200)])).selection.opening
    assert (
        (sampled.layer, sampled.head, sampled.words)
        == (whole.layer, whole.head, whole.words)
        == (
            2,
            1,
            "reads the token before",
        )
    )
    assert (whole.note, sampled.note) == ("", "chosen from 64 of 200 queries")
    read = np.linspace(0, 199, 64, dtype=int)
    assert sampled.value == pytest.approx(np.mean([values[2, 1, q, q - 1] for q in read if q]), rel=1e-5)
    again = aw.Heatmap(aw.from_attentions(values, [f"t{i}" for i in range(200)])).selection.opening
    assert again == sampled, "the same text opens the same"


def test_as_many_queries_as_there_are_is_all_of_them():
    shown = aw.attention(recorded())
    among = [pattern for pattern in PATTERNS if pattern.targets]
    whole, sampled = (patterns_of(shown, "token", among, queries).values for queries in (None, 6))
    np.testing.assert_allclose(sampled, whole, rtol=1e-6)


def test_few_long_elements_are_not_sampled(monkeypatch):
    monkeypatch.setattr(opening, "MOST_WEIGHTS", 0)
    monkeypatch.setattr(opening, "SAMPLED_WEIGHTS", 3 * 4 * 6 * 7)
    selection = aw.Heatmap(recorded()).selection
    assert (selection.layer, selection.head, selection.opening.words) == (0, 0, "")
    assert "too long" in selection.opening.note


def test_a_decoder_chooses_the_head_of_a_long_text_by_some_rows(smollm2, monkeypatch):
    trace = aw.trace(
        *smollm2, "The capital of Italy is Rome, that of Spain is Madrid, and the capital of France is"
    )
    shown = aw.attention(trace)
    whole = opening.opening_of(shown, "token")
    monkeypatch.setattr(opening, "MOST_WEIGHTS", 0)
    all_rows = opening.opening_of(shown, "token")
    assert all_rows._replace(note="") == whole
    count = len(trace.tokens)
    assert all_rows.note == f"chosen from {count} of {count} queries"
    monkeypatch.setattr(opening, "SAMPLED_WEIGHTS", 8 * 30 * 9 * count)
    monkeypatch.setattr(type(shown), "layer", None)  # no layer is read whole
    some = opening.opening_of(shown, "token")
    assert (some.note, some.query) == (f"chosen from 8 of {count} queries", count - 1)
    weight = trace.attention_layer(some.layer)[some.head][some.pair]
    assert f"“is” attends to “{trace.tokens[some.pair[1]].strip('␣')}” ({weight:.2f})" in some.sentence


def test_heads_open_on_the_strongest_pattern_also_after_a_view_without_heads(minilm):
    text = "The cat sat on the mat because the mat was warm."
    first = aw.Explorer(aw.trace(*minilm, text)).selection
    trace = aw.trace(*minilm, text)
    alone = aw.Heatmap(aw.rollout(trace))
    after = aw.Explorer(trace).selection
    assert after is alone.selection
    assert (after.layer, after.head, after.opening) == (first.layer, first.head, first.opening)
    moved = aw.trace(*minilm, text)
    heatmap = aw.Heatmap(aw.rollout(moved), layer=4)
    explorer = aw.Explorer(moved)
    assert explorer.selection is heatmap.selection
    assert explorer.selection.layer == 4


def test_a_neuron_view_opens_on_few_weights_but_moves_no_other_view(minilm):
    text = "The electronic music that nobody understood wasn't unlikeable."
    alone = aw.NeuronView(aw.trace(*minilm, text))
    where = alone.selection
    query, key = alone.options["opens"]["pair"]
    assert where.opening.pair == (query, key)
    assert where.opening.words == "attends to few tokens"
    row = alone.trace.attention_layer(where.layer)[where.head, query]
    assert f"({float(row[key]):.2f})" in where.opening.sentence
    assert 2 <= int((row >= 0.1).sum()) <= 4
    trace = aw.trace(*minilm, text)
    heatmap = aw.Heatmap(trace).selection
    opened = (heatmap.layer, heatmap.head, heatmap.opening)
    assert aw.NeuronView(trace).selection is heatmap
    assert (heatmap.layer, heatmap.head, heatmap.opening) == opened
    given = aw.NeuronView(aw.trace(*minilm, text), layer=1, head=4)
    assert (given.options["opens"]["layer"], given.options["opens"]["head"]) == (1, 4)


def test_a_text_of_special_tokens_alone_is_shown(minilm):
    trace = aw.trace(*minilm, input_ids=[101, 102])
    explorer = aw.Explorer(trace)
    assert explorer.selection.opening.query == 1
    assert aw.InterventionView(trace).name == "InterventionView"
    assert aw.NeuronView(trace).name == "NeuronView"
