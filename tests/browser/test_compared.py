"""Keys that were not compared with a query, and a sink, in the views next to the map."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.explanations.mixing.attention import attention_row
from tests.tracing.families import IDS
from tests.tracing.test_sinks import gpt_oss
from tests.views.windowed import COUNT, WORDS, windowed

from .settling import settle

SINK = "no token (sink)"


def readout(page):
    settle(page)
    return page.locator(".aw-readout").first.inner_text()


@pytest.mark.parametrize("row", [5, 3])
def test_a_text_is_grey_where_its_query_was_not_compared(page_of, row):
    shown, window = windowed()
    view = aw.TokenStrip(shown, layer=0, head=1)
    view.selection.pinned = (row, -1)
    page = page_of(view)
    legend = page.locator(".aw-legend")
    assert "not compared" in legend.inner_text()
    tokens = page.locator(".aw-tok")
    for key in range(COUNT):
        tokens.nth(key).hover()
        words = readout(page)
        if key > row:
            assert "masked, comes later" in words
        else:
            assert ("not compared" in words) == (not window[row, key])
        assert f"{SINK} = " in words
        assert "reads 3 of 6 keys" in words
    tokens.nth(0).focus()
    page.keyboard.press("ArrowDown")  # the layer that compares all
    settle(page)
    assert "not compared" not in legend.inner_text()


def test_a_text_says_of_a_weight_of_zero_that_it_is_one(page_of):
    view = aw.TokenStrip(windowed()[0], layer=0, head=1)
    view.selection.pinned = (3, 2)
    assert "not compared" not in readout(page_of(view))


def hatched(page, side):
    """The numbers of the hatched rows of a side of a HeadView."""
    boxes = page.locator(f".aw-hv-{side} .aw-hv-masked:visible").evaluate_all(
        "all => all.map((el) => [parseFloat(el.style.top), parseFloat(el.style.height)])"
    )
    rows = page.locator(f".aw-hv-{side} .aw-hv-row:visible").evaluate_all(
        "all => all.map((el) => parseFloat(el.style.top))"
    )
    return [i for i, at in enumerate(rows) if any(top <= at < top + high for top, high in boxes)]


def test_lines_hatch_the_keys_that_were_not_compared_and_state_the_sink(page_of):
    shown, window = windowed()
    view = aw.HeadView(shown, layer=0, head=1)
    view.selection.pinned = (4, -1)
    page = page_of(view)
    settle(page)
    assert hatched(page, "key") == np.flatnonzero(~window[4]).tolist()
    assert f"; {SINK} = " in readout(page)
    assert "reads 3 of 6 keys" in readout(page)
    values = page.locator(".aw-hv-key .aw-hv-row:visible .aw-hv-value").all_inner_texts()
    assert [text != "" for text in values] == window[4].tolist()
    below = page.locator(".aw-hv-sink")
    assert below.inner_text().split("\n")[0] == SINK
    share = 1 - shown.layer(0)[1, 4].sum()
    assert float(below.locator(".aw-hv-number").inner_text()) == pytest.approx(share, abs=0.01)


def test_a_pair_that_was_not_compared_is_said_to_be_one(page_of):
    shown, window = windowed()
    view = aw.HeadView(shown, layer=0, head=1)
    view.selection.pinned = (-1, 1)
    page = page_of(view, viewport={"width": 1300, "height": 800})
    settle(page)
    assert hatched(page, "query") == np.flatnonzero(~window[:, 1]).tolist()
    assert not page.locator(".aw-hv-sink").is_visible()
    page.locator(".aw-hv-query .aw-hv-row:visible").nth(5).hover()
    assert "not compared; reads 3 of 6 keys" in readout(page)
    page.locator(".aw-hv-query .aw-hv-row:visible").nth(2).hover()
    assert "not compared" not in readout(page)


def test_the_answer_of_an_explorer_counts_what_was_compared_and_the_sink(page_of):
    shown, _ = windowed()
    view = aw.Explorer(shown, layer=0, head=1)
    view.selection.pinned = (5, 1)
    page = page_of(view, viewport={"width": 1300, "height": 800})
    settle(page)
    assert "not compared" in readout(page)
    meters = page.locator(".aw-meters .aw-meter:visible").all_inner_texts()
    names = [re.split(r"\s", text)[0].strip("\u2068\u2069") for text in meters]
    assert sorted(names[:-1]) == sorted(WORDS[3:])
    assert SINK in meters[-1]
    bars = page.locator(".aw-layer-bar").evaluate_all("all => all.map((el) => el.title)")
    assert "not compared" in bars[0]
    assert "not" not in bars[1]


def test_steps_of_a_softmax_with_a_sink_add_up(page_of):
    trace = aw.trace(gpt_oss(), None, input_ids=IDS)
    view = aw.NeuronView(trace, layer=0, head=0)
    query = len(IDS) - 1
    view.selection.pinned = (query, query - 1)
    page = page_of(view)
    page.locator(".aw-neuron-key").first.wait_for()
    row = attention_row(trace, 0, 0, query)
    words = page.locator(".aw-neuron").inner_text()
    assert f"keys and the sink, whose score is {row.sink:g}" in words
    power, total, weight = re.search(r"= ([\d.e-]+) / ([\d.]+) = ([\d.e-]+)", words).groups()
    assert float(power) / float(total) == pytest.approx(float(weight), rel=2e-3)
    assert float(weight) == pytest.approx(float(row.weights[query - 1]), rel=1e-3)
    share = float(trace.sink_share(0)[0, query])
    given = re.search(rf"([\d.]+) to {re.escape(SINK)}", readout(page)).group(1)
    assert float(given) == pytest.approx(share, rel=1e-3)
    # Its window reads four keys: the first is told, and not drawn as a weight of zero.
    keys = page.locator(".aw-neuron-key:visible .aw-neuron-value").all_inner_texts()
    assert [text == "masked" for text in keys] == row.masked.tolist()
    page.locator(".aw-neuron-key:visible").first.hover()
    assert "not compared" in readout(page)
    assert torch.equal(trace.readable_keys(0)[query], ~torch.as_tensor(row.masked))
