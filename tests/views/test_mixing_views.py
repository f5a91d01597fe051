"""Views of models whose blocks do not all attend name the kind of each block, and its decay."""

from __future__ import annotations

import html
from typing import Any

import numpy as np
import pytest
import transformers as hf

import attnwidgets as aw
from attnwidgets.explanations.results.block_mixers import mixers_of
from attnwidgets.explanations.results.verbalise import in_words
from attnwidgets.views.presentation import words_of
from attnwidgets.views.text.forgetting import forgetting_words
from tests.tracing import tiny
from tests.tracing.families import IDS
from tests.tracing.test_anatomy import SIZES, falcon_h1, traced

DECAY, BETA = 0.9, 0.5


def lfm2() -> Any:
    """A convolution of three taps, attention, and another convolution."""
    kinds = ["conv", "full_attention", "conv"]
    sizes = {name: size for name, size in SIZES.items() if name != "head_dim"}
    return hf.Lfm2ForCausalLM(hf.Lfm2Config(**sizes, num_hidden_layers=3, layer_types=kinds, conv_L_cache=3))


def recurrent_gemma() -> Any:
    kinds = ["recurrent", "attention"]
    sizes = SIZES | {"num_hidden_layers": 2, "block_types": kinds, "lru_width": 32}
    return hf.RecurrentGemmaForCausalLM(hf.RecurrentGemmaConfig(**sizes))


@pytest.fixture(scope="module")
def hybrid():
    return traced(lfm2)


@pytest.fixture(scope="module")
def recurrent():
    return aw.trace(*aw.zoo.last_marked("abcdefgh", 10, beta=BETA, decay=DECAY), "cf#bd#aheg")


def texts(view, path):
    return html.unescape(view.save(path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["Heatmap", "TokenStrip", "Explorer", "HeadView"])
def test_figures_and_words_name_the_kind_of_the_block(hybrid, tmp_path, name):
    view = getattr(aw, name)(hybrid)
    view.selection.move({"layer": 0, "head": 2})
    named = "layer 0, all channels · convolution, reaches back 2 tokens"
    assert f"share of what tokens add, {named}" in texts(view, tmp_path / "figure.svg")
    assert "in layer 0, all channels (convolution, reaches back 2 tokens):" in view.describe()
    assert "head" not in view.describe()
    view.selection.move({"layer": 1})
    assert "layer 1, head 2 · attention" in texts(view, tmp_path / "other.svg")
    assert "in layer 1, head 2 (attention):" in view.describe()


def test_a_head_that_a_layer_lacks_is_its_nearest(hybrid):
    view = aw.Explorer(hybrid)
    view.selection.move({"layer": 0, "head": 3})
    assert view.presentation.head == 0
    view.selection.move({"layer": 1})
    assert view.presentation.head == 3


def test_what_a_value_is_stands_with_blocks_that_do_not_attend(hybrid, recurrent):
    meaning = "share of the length of what each token adds to the output of this block"
    forgetting = "forgetting by tokens in between is part of each value"
    words = aw.Heatmap(recurrent).describe()
    assert meaning in words
    assert forgetting in words
    view = aw.Heatmap(hybrid, layer=0)
    assert meaning in view.describe()
    assert forgetting not in view.describe()  # a convolution forgets nothing in between
    view.selection.layer = 1
    assert meaning not in view.describe()
    beside = aw.Heatmap(traced(falcon_h1), layer=0, head=0).describe()
    assert meaning in beside  # attention next to another mixer is measured as that is
    assert forgetting not in beside
    signed = aw.Heatmap(aw.mixing(recurrent, "signed")).describe()
    assert "signed share of what each token adds" in signed


def test_ordinary_models_are_shown_as_before():
    trace = aw.trace(tiny.build(tiny.TEXT["Llama"]), None, input_ids=IDS)
    view = aw.Explorer(trace)
    state = view.presentation
    assert state.title(state.head) == f"attention, layer {state.layer}, head {state.head}"
    assert f"Attention in layer {state.layer}, head {state.head}:" in words_of(state)
    assert all(source.describe("", "")["mixers"] is None for source in view.sources())
    assert "forgetting" not in view.options
    assert "mixers" not in aw.attention(trace).provenance


def test_heads_of_attention_are_the_same_in_every_map():
    trace = traced(falcon_h1)
    mixing, attention = aw.mixing(trace, "kernel"), aw.attention(trace)
    for layer in (0, 1):
        # Of attention that is added to another mixer, the kernel is the weights.
        np.testing.assert_allclose(mixing.layer(layer)[:4], attention.layer(layer), rtol=1e-6)
        kinds = [mixers_of(mixing)[layer].kind(head) for head in range(8)]
        assert kinds == ["attention"] * 4 + ["state space"] * 4
    assert aw.Heatmap(trace).at(layer=1, head=5).presentation.title(5).endswith("head 5 · state space")


def test_a_convolution_in_front_of_a_recurrence_is_no_block_part_of_its_own():
    trace = traced(recurrent_gemma)
    mixing = aw.mixing(trace)
    assert mixers_of(mixing)[0].kind("-") == "convolution and recurrence"
    assert mixers_of(mixing)[0].n_heads == len(mixing.layer(0)) == 1
    assert aw.Heatmap(trace).sources()[0].heads_of(0) == (0,)


def test_kinds_survive_saving(hybrid, tmp_path):
    mixing = aw.mixing(hybrid)
    loaded = aw.load(mixing.save(tmp_path / "map.safetensors"))
    assert mixers_of(loaded) == mixers_of(mixing)
    words = in_words(loaded.select(layer=0, head=0))
    assert "in layer 0, all channels (convolution, reaches back 2 tokens)" in words


def test_the_strip_shows_the_decay_that_a_model_was_built_with(recurrent, tmp_path):
    view = aw.TokenStrip(recurrent)
    forgotten = view.presentation.forgotten
    # A sigmoid and a softplus in float32 lie between the setting and its value.
    np.testing.assert_allclose(forgotten["decay"], DECAY, atol=1e-6)
    np.testing.assert_allclose(forgotten["beta"], BETA, atol=1e-6)
    assert "decay 0.90 at every token; beta 0.50 at every token" in view.describe()
    drawn = texts(view, tmp_path / "figure.svg")
    assert ">0.90<" in drawn
    assert ">0.50<" in drawn


def test_decays_multiply_over_the_tokens_of_a_word(recurrent):
    view = aw.TokenStrip(recurrent, unit="sentence")
    source = view.presentation.source
    spans = source.axes()[1]["spans"]
    assert max(map(len, spans)) > 1
    expected = [DECAY ** len(span) for span in spans]
    np.testing.assert_allclose(view.presentation.forgotten["decay"], expected, rtol=1e-5)


def test_the_answer_to_the_browser_holds_every_head():
    trace = traced(falcon_h1)
    view = aw.Explorer(trace)
    meta, (data,) = view.requests.answer("forgetting", {"stack": "self", "unit": "token", "layer": 1})
    values = np.frombuffer(data, "<f4").reshape(len(meta["names"]), meta["heads"], -1)
    assert meta == {"names": ["decay"], "heads": 8}
    assert np.isnan(values[0, :4]).all()  # attention
    kernel = trace.stack_table["self"].mixing[1].mixes[0].kernel
    np.testing.assert_allclose(values[0, 4:], kernel.forgetting()["decay"].T, rtol=1e-6)
    view.selection.move({"layer": 1, "head": 2})
    assert view.presentation.forgotten == {}
    view.selection.head = "mean"
    np.testing.assert_allclose(view.presentation.forgotten["decay"], values[0, 4:].mean(axis=0), rtol=1e-6)
    with pytest.raises(ValueError, match="nothing is known"):
        view.requests.answer("forgetting", {"stack": "self", "unit": "token", "layer": 7})


def test_a_map_without_its_trace_has_no_strip(recurrent):
    view = aw.TokenStrip(aw.mixing(recurrent))
    assert "forgetting" not in view.options
    assert view.presentation.forgotten == {}


def test_where_most_is_forgotten_is_said_as_in_the_browser():
    """With the numbers and words of js/test/forgetting.test.ts."""
    values = {"decay": np.array([1, 0.5, 0.75]), "beta": np.array([0, 1, 0.5])}
    assert forgetting_words(values, ["a", " b", "c"]) == (
        "What is forgotten: decay lowest at “b” (0.50), 0.75 on average; "
        "beta highest at “b” (1.00), 0.50 on average."
    )
    same = {"decay": np.array([0.9, 0.9])}
    assert forgetting_words(same, ["a", "b"]) == "What is forgotten: decay 0.90 at every token."
    assert forgetting_words({}, []) == ""
