"""A negative layer counts from the last layer of attention, of states of blocks from the last block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.views.page.contents import Choice
from tests.tracing import tiny
from tests.tracing.families import IDS
from tests.vision.pictures import noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.tracing.trace import Trace

FIVE = tiny.SMALL | {"num_hidden_layers": 5}
KINDS = ["conv", "full_attention"] * 2 + ["conv"]
MODELS: dict[str, Callable[[], Any]] = {
    "hybrid": lambda: hf.Lfm2ForCausalLM(
        hf.Lfm2Config(**FIVE, num_key_value_heads=2, vocab_size=120, layer_types=KINDS)
    ),
    "BERT": lambda: hf.BertForSequenceClassification(
        hf.BertConfig(**FIVE | {"num_hidden_layers": 4}, vocab_size=120)
    ),
}


def _value(view: Any, layer: int) -> float:
    return float(view.value(0, 0, layer=layer, query=3))


ATTENTION: dict[str, Callable[[Trace, int], Any]] = {
    "attention": lambda trace, layer: aw.attention(trace, layers=layer).layers,
    "value_zeroing": lambda trace, layer: aw.value_zeroing(trace, layers=layer).layers,
    "attention_norm": lambda trace, layer: aw.attention_norm(trace, layers=layer).layers,
    "alti": lambda trace, layer: aw.alti(trace, layers=layer).layers,
    "rollout": lambda trace, layer: aw.rollout(trace, partial=True, start_layer=layer).layers,
    "heads of lrp": lambda trace, layer: aw.lrp(trace, 1, of="heads").map.select(layer).layers,
    "attention_layer": lambda trace, layer: trace.attention_layer(layer).tolist(),
    "query_key": lambda trace, layer: trace.query_key(layer)[0].tolist(),
    "ablate_heads": lambda trace, layer: repr(aw.ablate_heads(trace.model, (layer, 0))),
    "set_activations": lambda trace, layer: repr(aw.circuits.set_activations(trace, "state", layer, 0.0)),
    "entropy": lambda trace, layer: aw.statistics.entropy(trace, layers=layer).tolist(),
    "a view": lambda trace, layer: aw.Heatmap(trace, layer=layer).selection.layer,
    "a pin": lambda trace, layer: aw.Heatmap(trace).at(pins=[(2, 1, "token", layer)]).selection.pins,
    "a page": lambda trace, layer: Choice.of([aw.Heatmap(trace)], "all", [layer]).layers,
    "CompareView": lambda trace, layer: _value(
        aw.compare(trace, methods=["attention", "signed_attention"]), layer
    ),
    "LayerProfile": lambda trace, layer: _value(aw.views.LayerProfile(trace, methods=["attention"]), layer),
}
MIXING = ("attention_norm", "alti", "value_zeroing", "a view", "a pin", "a page")
"""Those that have a layer for every block whose mixing was recorded, with attention or without."""

STATES: dict[str, Callable[[Trace, int], Any]] = {
    "lrp": lambda trace, layer: aw.lrp(trace, 1).map.select(layer + (layer >= 0)).layers,
    "outlier_tokens": lambda trace, layer: aw.vision.outlier_tokens(trace, layer=layer).layer,
    "randomized": lambda trace, layer: [
        bool((fresh == trained).all())
        for fresh, trained in zip(
            aw.randomized(trace.model, layers=layer, cascading=False, copy=True).parameters(),
            trace.model.parameters(),
            strict=True,
        )
    ],
}


@pytest.fixture(scope="module", params=MODELS)
def trace(request: pytest.FixtureRequest) -> Trace:
    """A trace of a model whose last block does not attend, and of a model whose blocks all do."""
    return aw.trace(tiny.build(MODELS[request.param]), None, input_ids=IDS)


@pytest.mark.parametrize("name", ATTENTION)
def test_a_negative_layer_counts_from_the_last_that_attends(trace: Trace, name: str) -> None:
    of = ATTENTION[name]
    layers = trace.mixing_layers() if name in MIXING else trace.layers()
    first, *_, last = layers
    assert of(trace, -1) == of(trace, last) != of(trace, first)
    assert of(trace, -len(layers)) == of(trace, first)
    for outside in (-6, 9):
        numbers = "(1, 3|0 to 3|0 to 4)"
        with pytest.raises(IndexError, match=rf"layer {outside} is out of range: .* layers {numbers}"):
            of(trace, outside)


@pytest.mark.parametrize("name", STATES)
def test_where_states_are_read_it_counts_from_the_last_block(trace: Trace, name: str) -> None:
    of, last = STATES[name], len(trace.anatomy.stacks["self"]) - 1
    assert of(trace, -1) == of(trace, last) != of(trace, last - 1)
    with pytest.raises(IndexError, match=r"layers 0 to"):
        of(trace, 9)


def test_it_counts_from_the_last_of_some_layers_of_states() -> None:
    values = np.random.default_rng(0).normal(size=(9, 3, 4)).astype(np.float32)
    zeros = np.zeros(9, dtype=np.int64)
    states = aw.results.States(values, (0, 2, 5), ("",) * 9, "cls", zeros, zeros)
    sites = [aw.concepts.directions(states, 2, method="pca", layer=layer).site for layer in (-2, 2)]
    assert sites == ["blocks.1.hook_resid_post"] * 2


def test_neurons_count_so_too() -> None:
    sizes = {**tiny.SMALL, "image_size": 32, "patch_size": 8}
    trace = aw.trace(tiny.build(lambda: hf.ViTModel(hf.ViTConfig(**sizes))), None, image=noise(32, 32))
    moved = [
        trace.rerun(aw.vision.test_time_registers(trace, [(layer, 5)])).attention_layer(-1)
        for layer in (-2, 0)
    ]
    torch.testing.assert_close(*moved)
    low = 0.5 * aw.vision.outlier_tokens(trace).median
    neurons = [aw.vision.find_register_neurons(trace, k=3, threshold=low, up_to=last) for last in (-1, 1)]
    assert neurons[0] == neurons[1] != ()


def test_a_flow_counts_so_too() -> None:
    view = aw.FlowView(aw.trace(tiny.build(MODELS["BERT"]), None, input_ids=IDS))
    assert view.share(2, 1, layer=-1) == view.share(2, 1) != view.share(2, 1, layer=-2)
    with pytest.raises(IndexError, match="layer 4 is out of range: there are layers 0 to 3"):
        view.share(2, 1, layer=4)
