"""The selection: linked by trace, readable and writable, and clear about values that it does not take."""

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
    first, second = aw.Heatmap(given()), aw.Heatmap(given())
    first.selection.layer, second.selection.layer = 2, 0
    assert (first.selection.layer, second.selection.layer) == (2, 0)
    assert first.store is not second.store
    assert first.runtime is second.runtime


def test_link_joins_two_traces(given):
    first, second = aw.Heatmap(given()), aw.Heatmap(given(layers=5))
    aw.link(first, second)
    assert second.selection is first.selection
    first.selection.layer = 4  # only the second has it
    with pytest.raises(IndexError, match="0 to 4"):
        first.selection.layer = 5
    first.close()
    second.selection.layer = 3
    assert second.selection.comm is not None


def test_link_takes_views_only(given):
    with pytest.raises(TypeError, match="MixingMap"):
        aw.link(aw.Heatmap(given()), aw.attention(given()))


def test_numbers_of_nobodys_trace_are_linked_to_nothing(softmax):
    first, second = (aw.Heatmap(aw.results.MixingMap(softmax((4, 4)), query=list("abcd"))) for _ in range(2))
    assert first.selection is not second.selection


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("layer", 3, IndexError, "0 to 2"),
        ("layer", -4, IndexError, "0 to 2"),
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


def test_the_last_pin_is_the_pinned_cell_and_pinning_leaves_one(given):
    selection = aw.Heatmap(given()).selection
    selection.pins = [(1, 2), (3, 2), (4, -1), (1, 2)]
    assert selection.pins == ((3, 2), (4, -1), (1, 2))  # once each, where it was chosen last
    assert selection.pinned == (1, 2)
    selection.pinned = (1, 2)
    assert selection.pins == ((1, 2),)
    selection.pins = [(5, 5), (6, 6)]
    selection.pinned = (0, 0)
    assert selection.pins == ((0, 0),)
    selection.pinned = None
    assert selection.pins == ()
    selection.pins = [(5, 5)]
    selection.pins = []
    assert selection.pinned is None


def test_heads_and_a_span_are_chosen_from_python_and_cleared_together(given):
    trace = given()
    selection = aw.Heatmap(trace).selection
    selection.heads = [(2, 1), [0, 3], (2, 1)]
    assert selection.heads == ((2, 1), (0, 3))
    selection.span = (2, 5)
    assert selection.span == (2, 5, "token", "query")
    selection.span = (2, 8, "token", "key")
    assert (selection.span.stop, selection.span.side) == (8, "key")
    selection.pins = [(1, 1), (2, 2)]
    assert aw.TokenStrip(trace).selection is selection
    for part in ("pins=(Cell(query=1", "heads=((2, 1), (0, 3))", "span=Span(start=2, stop=8"):
        assert part in repr(selection)
    selection.clear()
    assert (selection.pins, selection.pinned, selection.heads, selection.span) == ((), None, (), None)


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("pins", [(0, 0), (8, 0)], IndexError, "0 to 7"),
        ("pins", [(0, 0)] * 401, ValueError, "at most 400"),
        ("pins", [(0, 0), (0, 0, "paragraph")], ValueError, "'token'"),
        ("pins", [3], ValueError, "(query, key)"),
        ("pins", 3, TypeError, "a list of (query, key)"),
        ("pins", [{"query": 0, "key": 0, "layer": 3}], IndexError, "0 to 2"),
        ("heads", [(3, 0)], IndexError, "0 to 2"),
        ("heads", [(0, 4)], IndexError, "0 to 3"),
        ("heads", [(0, "mean")], ValueError, "(layer, head)"),
        ("heads", [3], ValueError, "(layer, head)"),
        ("heads", "01", TypeError, "a list of (layer, head)"),
        ("span", (0, 9), IndexError, "0 to 8"),
        ("span", (-1, 2), IndexError, "0 to 8"),
        ("span", (2, 2), ValueError, "empty"),
        ("span", (0, 1, "paragraph"), ValueError, "'token'"),
        ("span", (0, 1, "token", "both"), ValueError, "'key'"),
        ("span", "01", ValueError, "(start, stop)"),
    ],
)
def test_a_set_out_of_range_is_refused_and_nothing_changes(given, name, value, error, words):
    selection = aw.Heatmap(given()).selection
    selection.pins, selection.heads, selection.span = [(1, 1)], [(1, 1)], (1, 3)
    before = getattr(selection, name)
    with pytest.raises(error) as caught:
        setattr(selection, name, value)
    assert words in str(caught.value)
    assert name in str(caught.value)
    assert getattr(selection, name) == before


def test_pins_are_of_one_unit(minilm_trace):
    selection = aw.Explorer(minilm_trace).selection
    with pytest.raises(ValueError, match=r"several units \(token, word\)"):
        selection.pins = [(1, 1, "token"), (1, 1, "word")]


def test_sets_from_the_browser_arrive_in_one_message(given):
    selection = aw.Heatmap(given()).selection
    cells = [{"unit": "token", "query": 1, "key": 2}, {"unit": "token", "query": 0, "key": 3, "layer": 2}]
    chosen = {"start": 0, "stop": 2, "unit": "token", "side": "key"}
    selection.set_state({"pins": cells, "pinned": cells[-1], "heads": [[0, 1], [2, 3]], "span": chosen})
    assert selection.pins == ((1, 2), (0, 3))
    assert selection.pins[1].layer == 2
    assert selection.pinned == selection.pins[1]
    assert selection.heads == ((0, 1), (2, 3))
    assert selection.span == (0, 2, "token", "key")
    state = selection.get_state(["pins", "heads", "span"])
    assert state == {"pins": cells, "heads": [[0, 1], [2, 3]], "span": chosen}
    selection.set_state({"pins": cells[:1], "pinned": cells[0]})
    assert selection.pins == ((1, 2),)


def test_heads_of_another_stack_are_other_heads(minilm_trace):
    selection = aw.Explorer(minilm_trace).selection
    selection.heads = [(1, 1)]
    selection.notify_change(
        {"name": "stack", "old": "self", "new": "cross", "owner": selection, "type": "change"}
    )
    assert selection.heads == ()


def test_linked_views_share_sets(given):
    first, second = aw.Heatmap(given()), aw.HeadGrid(given(layers=5))
    aw.link(first, second)
    second.selection.heads = [(4, 0), (1, 1)]
    assert first.selection.heads == ((4, 0), (1, 1))


def test_a_page_opens_with_what_was_chosen(given, tmp_path):
    view = aw.Heatmap(given())
    view.selection.pins, view.selection.heads, view.selection.span = (
        [(1, 1), (2, 2)],
        [(0, 1), (1, 1)],
        (2, 4),
    )
    view.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '"heads":[[0,1],[1,1]]' in page.replace(" ", "")


@pytest.mark.slow
def test_a_span_without_a_side_is_of_the_text():
    made = [aw.trace(*aw.demo_model("encoder"), text) for text in ("The cat sat.", "The dog sat.")]
    views = aw.Heatmap(made[0]), aw.compare(made[1], methods=["attention", "rollout"])
    assert [view.at(span=(2, 4)).selection.span.side for view in views] == ["query", "key"]
