"""The selection: linked by trace, readable and writable, and clear about what it does not take."""

from __future__ import annotations

import pytest

import attnwidgets as aw


def test_two_views_of_one_trace_are_linked(given):
    trace = given()
    heatmap, strip = aw.Heatmap(trace), aw.TokenStrip(aw.rollout(trace))
    heatmap.selection.layer = 2
    assert strip.selection.layer == 2
    assert strip.store is heatmap.store


def test_two_traces_are_not_linked(given):
    one, other = aw.Heatmap(given()), aw.Heatmap(given())
    one.selection.layer, other.selection.layer = 2, 0
    assert (one.selection.layer, other.selection.layer) == (2, 0)
    assert one.store is not other.store
    assert one.runtime is other.runtime


def test_link_joins_two_traces(given):
    one, other = aw.Heatmap(given()), aw.Heatmap(given(layers=5))
    aw.link(one, other)
    assert other.selection is one.selection
    one.selection.layer = 4  # only the other has it
    with pytest.raises(IndexError, match="0 to 4"):
        one.selection.layer = 5
    one.close()
    other.selection.layer = 3
    assert other.selection.comm is not None


def test_link_takes_views_only(given):
    with pytest.raises(TypeError, match="MixingMap"):
        aw.link(aw.Heatmap(given()), aw.attention(given()))


def test_numbers_of_nobodys_trace_are_linked_to_nothing(softmax):
    one, other = (aw.Heatmap(aw.MixingMap(softmax((4, 4)), query=list("abcd"))) for _ in range(2))
    assert one.selection is not other.selection


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("layer", 3, IndexError, "0 to 2"),
        ("layer", -1, IndexError, "0 to 2"),
        ("head", 4, IndexError, "0 to 3"),
        ("head", "men", ValueError, "'mean'"),
        ("head", 1.5, ValueError, "'mean'"),
        ("unit", "wrod", ValueError, "'token'"),
        ("method", "rolout", ValueError, "Did you mean 'rollout'"),
        ("stack", "cross", ValueError, "'self'"),
        ("pinned", (8, 0), IndexError, "0 to 7"),
        ("pinned", (0, -2), IndexError, "0 to 7"),
        ("pinned", (0, 0, "paragraph"), ValueError, "'token'"),
        ("pinned", "1,2", ValueError, "(query, key)"),
    ],
)
def test_what_is_out_of_range_is_refused_with_the_range(given, name, value, error, words):
    selection = aw.Explorer(given()).selection
    before = getattr(selection, name)
    with pytest.raises(error) as caught:
        setattr(selection, name, value)
    assert words in str(caught.value)
    assert name in str(caught.value)
    assert getattr(selection, name) == before


def test_a_pin_is_a_cell_with_a_unit(minilm_trace):
    selection = aw.Explorer(minilm_trace).selection
    selection.pinned = (3, 5)
    assert selection.pinned == (3, 5)
    assert (selection.pinned.query, selection.pinned.key, selection.pinned.unit) == (3, 5, "token")
    selection.pinned = (1, -1, "word")
    assert selection.get_state("pinned") == {"pinned": {"unit": "word", "query": 1, "key": -1}}
    selection.pinned = None
    assert selection.pinned is None


def test_the_same_place_in_another_unit_is_a_change(minilm_trace):
    selection = aw.Explorer(minilm_trace).selection
    seen = []
    selection.observe(lambda change: seen.append(change.new.unit), "pinned")
    selection.pinned = (1, 1, "token")
    selection.pinned = (1, 1, "word")
    assert seen == ["token", "word"]


def test_what_the_browser_sends_is_read_and_hover_stays_there(given):
    selection = aw.Heatmap(given()).selection
    sent = []
    selection.send_state = lambda key=None: sent.append(key)
    selection.set_state(
        {
            "layer": 1,
            "pinned": {"unit": "token", "query": 2, "key": 3},
            "hover": {"unit": "token", "query": 0, "key": 0},
        }
    )
    assert selection.layer == 1
    assert selection.pinned == (2, 3)
    assert selection.hover is None
    assert "hover" not in sent


def test_a_view_goes_where_it_is_told_and_brings_the_others(given):
    trace = given()
    first = aw.Heatmap(trace)
    aw.Heatmap(trace, layer=1, head="mean")
    assert (first.selection.layer, first.selection.head) == (1, "mean")


def test_a_view_of_words_shows_words_beside_a_view_of_tokens(minilm_trace):
    explorer = aw.Explorer(minilm_trace)
    words = aw.Heatmap(aw.attention(minilm_trace).to("word"))
    assert words.options["unit"] == "word"
    assert words.options["method"] == "attention"
    assert explorer.selection.unit == "token"
    assert len(words.store.header["sources"]) == 6
