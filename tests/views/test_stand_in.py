"""The stand-in of a small model in a notebook, so that its views compute when the kernel is gone."""

from __future__ import annotations

import zlib

import pytest
import torch
from transformers import BertConfig, BertModel

import attnwidgets as aw
from attnwidgets.views.base.shared_models import LiveModel, may_stand_in
from attnwidgets.views.page.live.weights import layout_of


@pytest.fixture
def induction():
    return aw.zoo.induction()


def request(view):
    """Ask as the browser does, without its wait for the main loop."""
    return view.requests.answer("stand_in", {})


def live_model(view):
    """The widget that a view's store refers to."""
    name = view.store.stand_in["model"].removeprefix("anywidget:")
    return next(item for item in LiveModel._current.values() if item.is_open and item.model_id == name)


def test_a_small_model_is_sent_once_it_is_asked_for(induction):
    trace = aw.trace(*induction, "fadebcfadeb")
    view = aw.Heatmap(trace)
    assert view.store.stand_in == {}  # the browser may ask
    request(view)
    assert len(view.store.stand_in["ids"]) == len(trace.tokens)
    assert zlib.decompress(live_model(view).weights) == layout_of(trace.model).data()
    assert live_model(view).packed["check"]["text"] == trace.text


def test_texts_of_one_model_share_its_weights_and_another_model_has_its_own(induction):
    views = [aw.Heatmap(aw.trace(*induction, text)) for text in ("fade", "fade")]
    views.append(aw.Heatmap(aw.trace(*aw.zoo.two_hop(), "fade")))
    for view in views:
        request(view)
    first, second, third = map(live_model, views)
    assert first is second
    assert first is not third


def test_weights_that_changed_are_sent_anew(induction):
    model, tokenizer = induction
    before = aw.Heatmap(aw.trace(model, tokenizer, "fade"))
    request(before)
    with torch.no_grad():
        model.get_input_embeddings().weight *= 0.5
    after = aw.Heatmap(aw.trace(model, tokenizer, "fade"))
    request(after)
    assert live_model(before).weights != live_model(after).weights


def test_a_model_that_changed_since_the_trace_is_refused(induction):
    model, tokenizer = induction
    view = aw.Heatmap(aw.trace(model, tokenizer, "fadebcfadeb"))
    with torch.no_grad():
        model.get_output_embeddings().weight *= -1
    with pytest.raises(ValueError, match="changed since, so trace the text again"):
        request(view)
    assert view.store.stand_in == {}


def test_large_models_and_numbers_without_a_model_are_not_offered(minilm, minilm_trace):
    assert not may_stand_in(minilm_trace)
    assert aw.Heatmap(minilm_trace).store.stand_in is None
    sizes = {"hidden_size": 6, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 6}
    config = BertConfig(vocab_size=len(minilm[1]), hidden_act="mish", **sizes)
    small = BertModel(config).eval()
    trace = aw.trace(small, minilm[1], "The cat sat.")
    view = aw.Heatmap(aw.attention(trace))
    assert view.store.stand_in is None
    explorer = aw.Explorer(trace)  # shares the store, and has the trace
    assert explorer.store is view.store
    assert view.store.stand_in == {}  # small; its parts are looked at when the browser asks
    with pytest.raises(ValueError, match="the activation 'mish' is none of those of a page"):
        request(explorer)


def test_a_changed_head_is_not_offered(induction):
    model, tokenizer = induction
    with aw.ablate_heads(model, [(0, 0)]):
        trace = aw.trace(model, tokenizer, "fade")
    assert aw.Heatmap(trace).store.stand_in is None
