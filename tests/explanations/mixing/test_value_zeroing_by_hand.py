"""Value zeroing equals really zeroing values, in every family, for tokens and spans, by either route."""

from __future__ import annotations

import pytest
import torch

from attnwidgets.explanations.mixing.value_zeroing import value_zeroing
from attnwidgets.tracing.algebra import finish_block as resuming
from attnwidgets.tracing.algebra.after_attention import read_tail
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.text.units import Unit
from tests.explanations.mixing.zeroing import (
    IDS,
    NO_FINAL_NORM,
    apart,
    brute_force,
    shares_by_brute_force,
    traced,
)
from tests.tracing import tiny
from tests.tracing.families import needs

_OTHERS = ("ViT", "Whisper", "wav2vec2", "BERT2BERT", "one layer")


@pytest.mark.parametrize("family", [*tiny.TEXT, *tiny.SEQ2SEQ, *_OTHERS])
def test_it_equals_really_zeroing_values_in_every_family(family):
    needs("interface", family)
    result = traced(family)
    for stack in result.stacks:
        n_keys = len(result.axes(stack)[1])
        after_norm = family not in NO_FINAL_NORM
        ours = value_zeroing(result, stack=stack, final_norm=after_norm).values
        expected = shares_by_brute_force(result, stack, [(j,) for j in range(n_keys)])
        assert apart(ours, expected) < 1e-6, stack


@pytest.mark.parametrize("family", [*tiny.TEXT, *tiny.IMAGE, "T5", "Marian"])
def test_the_closed_form_equals_calling_the_block_again(family, monkeypatch):
    needs("interface", family)
    result = traced(family)
    stack = result.default_stack
    assert all(resuming.resume(result, layer, stack) is not None for layer in range(result.n_layers(stack)))
    rest = tuple(i for i in range(len(result.tokens)) if i not in (0, 2))
    span = Unit("span", ("a", "b"), ((0, 2), rest), (False, False))
    fast = [value_zeroing(result, unit=unit).values for unit in (None, span)]
    monkeypatch.setattr(resuming, "resume", lambda *_: None)
    called = [value_zeroing(result, unit=unit).values for unit in (None, span)]
    assert max(map(apart, fast, called)) < 1e-6


def test_a_block_that_a_hook_changes_is_called_again_as_it_is():
    model = tiny.build(tiny.TEXT["Llama"])
    plain = value_zeroing(trace(model, None, IDS)).values
    model.model.layers[0].register_forward_hook(lambda _, __, output: output + 2.0)
    result = trace(model, None, IDS)
    assert resuming.resume(result, 0, "self") is None
    assert apart(value_zeroing(result).layer(0), plain[0]) > 1e-3


def test_spans_are_zeroed_jointly_as_brute_force_does():
    result = traced("Llama")
    spans = ((0,), (1, 2), (3, 6), (4, 5), (7,))
    unit = Unit("span", tuple("abcde"), spans, (False,) * 5)
    tokens = shares_by_brute_force(result, "self", spans)[0]
    ours = value_zeroing(result, unit=unit, layers=0, normalize=True)
    assert ours.unit == "span"
    assert ours.shape == (1, 5, 5)
    # Rows are reduced before they are normalised, so only rows of single tokens compare directly.
    for row, span in enumerate(spans):
        if len(span) == 1:
            assert apart(ours.layer(0)[row], tokens[span[0]]) < 1e-6
    raw = value_zeroing(result, layers=0, normalize=False).layer(0)
    joint = value_zeroing(result, unit=unit, layers=0, normalize=False).layer(0)
    assert apart(joint[0], [raw[0, list(span)].sum() for span in spans]) < 1e-7  # token 0 reads itself only
    assert abs(joint[4, 1] - raw[7, [1, 2]].sum()) > 1e-3 * joint[4, 1]  # a joint effect is no sum


def test_euclidean_distances_are_lengths_of_differences():
    result = traced("BERT")
    n_heads = result.n_heads()
    plain = brute_force(result, "self", 0, None, n_heads)[0]
    moved = brute_force(result, "self", 0, [3], n_heads)[0]
    ours = value_zeroing(result, distance="euclidean", normalize=False, layers=0).layer(0)
    assert apart(ours[:, 3], (moved - plain).norm(dim=-1).numpy()) < 1e-6


@pytest.mark.parametrize("family", [*tiny.TEXT, *tiny.IMAGE, "T5", "Marian"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mlps_are_taken_apart_in_every_family(family, dtype):
    """Else the numbers are the same, and take two or three times as long."""
    needs("interface", family)
    result = traced(family, dtype)
    with torch.no_grad():
        block = block_of(result, 0, result.default_stack, "test")
        tail = read_tail(block)
        assert tail is not None
        assert apart(tail.plain().numpy(), block.output.numpy()) < 1e-4


def test_an_mlp_that_does_more_than_it_seems_is_called_as_it_is():
    model = tiny.build(tiny.TEXT["Llama"]).double()
    plain = value_zeroing(trace(model, None, IDS)).values
    mlp = model.model.layers[0].mlp
    real = mlp.forward
    mlp.forward = lambda x: real(x) + 0.5 * x.roll(1, -1)
    result = trace(model, None, IDS)
    assert resuming.resume(result, 0, "self") is not None
    expected = shares_by_brute_force(result, "self", [(j,) for j in range(len(IDS))])
    ours = value_zeroing(result, final_norm=True).values
    assert apart(ours, expected) < 1e-6
    assert apart(value_zeroing(result).values[0], plain[0]) > 1e-4


def test_hooks_on_an_mlp_run():
    model = tiny.build(tiny.TEXT["GPT-2"]).double()
    given = trace(model, None, IDS)
    expected = value_zeroing(given).values
    rows = []
    model.transformer.h[1].mlp.c_proj.register_forward_hook(lambda _, __, output: rows.append(output.numel()))
    assert apart(value_zeroing(trace(model, None, IDS)).values, expected) < 1e-12
    assert sum(rows) >= 32 * len(IDS) * (len(IDS) + 1) // 2
