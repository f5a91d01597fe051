"""Traces can be pickled and copied: they answer as before, and nothing is shared that may change."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.tracing import tiny

if TYPE_CHECKING:
    from collections.abc import Callable

COPIES = {
    "pickle": lambda trace: pickle.loads(pickle.dumps(trace)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


def _module() -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    return aw.trace_module(layers, [0.5, -1.0, 2.0], labels=["a", "b", "c"], outputs=["no", "yes"])


def _seq2seq() -> Any:
    return aw.trace(tiny.build(tiny.SEQ2SEQ["T5"]), tiny.wordpiece(), "the cat", target_text="a b")


def _text() -> Any:
    return aw.trace(tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece(), "the cat [MASK] .", memory="1MB")


def _given() -> Any:
    weights = np.random.default_rng(0).dirichlet(np.ones(3), (2, 4, 3))
    return aw.from_attentions(weights, ["the", "cat", "sat"], model_id="mine")


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("make", [_text, _seq2seq, _given])
def test_a_copy_answers_as_the_trace_does(make: Callable[[], Any], copied: Callable[[Any], Any]) -> None:
    trace = make()
    trace.attention_layer(0)
    twin = copied(trace)
    assert repr(twin) == repr(trace)
    assert type(twin) is type(trace)
    assert twin.predictions(3) == trace.predictions(3)
    for stack in trace.stacks:
        assert twin.axes(stack)[0].tokens == trace.axes(stack)[0].tokens
        for layer in range(trace.n_layers(stack)):
            assert torch.equal(twin.attention_layer(layer, stack), trace.attention_layer(layer, stack))
    if trace.model is not None:
        assert torch.equal(twin.rerun().logits, trace.logits)
        assert np.array_equal(aw.value_zeroing(twin).values, aw.value_zeroing(trace).values)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_module_trace_is_explained_from_a_copy(copied: Callable[[Any], Any]) -> None:
    trace = _module()
    twin = copied(trace)
    assert (twin.shape, twin.output_names, repr(twin)) == (trace.shape, trace.output_names, repr(trace))
    assert np.array_equal(aw.lrp(twin, target="yes").values, aw.lrp(trace, target="yes").values)


def test_what_a_deep_copy_shares() -> None:
    trace = _text()
    twin = copy.deepcopy(trace)
    assert twin.model is trace.model
    assert twin.tokenizer is trace.tokenizer
    before = trace.attention_layer(1).clone()
    for call in (layer.call for layer in twin.stack_table["self"].layers):
        call.query.zero_()
    twin.logits.zero_()
    assert torch.equal(trace.attention_layer(1), before)
    assert trace.logits.any()
    twin, model = copy.deepcopy([trace, trace.model])
    assert twin.model is trace.model
    assert model is not trace.model
    nested = copy.deepcopy([trace, trace])
    assert nested[0] is nested[1]


@pytest.mark.slow
def test_a_pickled_trace_opens_in_another_process(tmp_path: Path, root: Path) -> None:
    trace = _text()
    path = tmp_path / "trace.pickle"
    path.write_bytes(pickle.dumps(trace))
    script = """
import pickle, sys
sys.path.insert(0, sys.argv[2])
trace = pickle.load(open(sys.argv[1], "rb"))
import attnwidgets as aw
print(repr(trace)); print(float(aw.value_zeroing(trace).values.sum()), trace.predictions(1)[0].label)
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(path), str(root)], capture_output=True, text=True, check=True
    )
    total = float(aw.value_zeroing(trace).values.sum())
    assert run.stdout.splitlines() == [repr(trace), f"{total} {trace.predictions(1)[0].label}"]


def test_traces_pickled_when_stacks_were_streams_open() -> None:
    # Made at commit 1d8a6fc: module `given`, class `Stream`, attribute `stream_table`.
    given, by_hand = pickle.loads(Path(__file__).with_name("before_stacks.pickle").read_bytes())
    assert given.stacks == ("encoder", "decoder", "cross")
    assert given.attention_layer(0, "cross")[0, 1].tolist() == [0.5, 0.5, 0]
    assert given.axes("cross")[1].tokens == ("x", "y", "z")
    again = aw.from_qkv(np.eye(2), np.eye(2), np.eye(2), np.eye(2), mask="causal", tokens=["one", "two"])
    assert by_hand.attention_layer(0).equal(again.attention_layer(0))
    assert by_hand.head_outputs.equal(again.head_outputs)
    assert pickle.loads(pickle.dumps(given)).stacks == given.stacks
