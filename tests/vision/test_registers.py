"""Norms of tokens, a planted register neuron that is detected, and test-time registers that undo it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.vision import planted
from tests.vision.pictures import noise, of_family, vit


@pytest.fixture(scope="module")
def traces() -> tuple[Any, Any]:
    """The same picture by the model with the unit, and without."""
    return tuple(aw.trace(model, None, image=planted.picture()) for model in planted.models())


def test_norms_are_those_of_the_states_after_every_block() -> None:
    model = vit()
    pixels = noise(32, 32)
    with torch.no_grad():
        states = model(pixels[None], output_hidden_states=True).hidden_states
    norms = aw.vision.token_norms(aw.trace(model, None, image=pixels))
    assert norms.targets == ("layer 0", "layer 1")
    assert norms.labels[:2] == ("[CLS]", "0,0")
    assert np.allclose(norms.values[0], states[1][0].norm(dim=-1), rtol=1e-6)


def test_a_planted_unit_makes_outliers_of_white_patches(traces: Any) -> None:
    full, without = traces
    result = aw.vision.outlier_tokens(full)
    assert set(result.labels) == set(planted.white())
    assert min(result.norms) > 15 * result.median
    assert result.share == 3 / 16
    assert len(aw.vision.outlier_tokens(without)) == 0
    assert len(aw.vision.outlier_tokens(full, layer=0)) == 0
    assert aw.vision.outlier_tokens(full, threshold=1e6).tokens == ()


def test_the_planted_unit_is_found_and_no_other_is_like_it(traces: Any) -> None:
    full, without = traces
    more = [aw.trace(full.model, None, image=planted.picture(seed)) for seed in (1, 2)]
    first, second, *_ = aw.vision.find_register_neurons([full, *more], k=5)
    assert first[:2] == (planted.LAYER, planted.UNIT)
    assert first.score > 3 * second.score
    assert first.score > 100 * first.elsewhere
    with pytest.raises(ValueError, match="no token is an outlier: the largest norm is 1"):
        aw.vision.find_register_neurons(without)


def test_a_test_time_register_restores_the_output(traces: Any) -> None:
    full, without = traces
    with aw.vision.test_time_registers(full, [(planted.LAYER, planted.UNIT)]):
        clean = full.rerun()
        again = aw.trace(full.model, None, image=planted.picture())
        assert aw.vision.outlier_tokens(clean).tokens == ()
        register = aw.vision.token_norms(clean).values[-1, -1]
        assert register > 15 * aw.vision.outlier_tokens(clean).median
    damage = (full.logits - without.logits).norm()
    assert (clean.logits - without.logits).norm() < 0.1 * damage
    assert torch.equal(clean.logits, again.logits)
    assert clean.tokens == again.tokens == (*full.tokens, "[REG0]")
    assert clean.interventions == ("1 test-time register for 1 neuron",)
    assert np.allclose(clean.attention_layer(2).sum(-1), 1, atol=1e-6)


def test_the_model_is_as_it_was_and_traces_of_it_too(traces: Any) -> None:
    full, _ = traces
    registers = aw.vision.test_time_registers(full, [(1, 7)], count=2, scale=0.5)
    with registers:
        assert full.rerun().tokens[-2:] == ("[REG0]", "[REG1]")
    with pytest.raises(IndexError), registers:
        aw.vision.grad_cam(full.rerun(), layer=99)
    after = full.rerun()
    assert torch.equal(after.logits, full.logits)
    assert after.tokens == full.tokens
    with aw.vision.test_time_registers(full, [(1, 7)]):
        longer = full.rerun()
    assert longer.rerun().tokens == full.tokens
    assert not any(module._forward_pre_hooks for module in full.model.modules())


def test_methods_read_a_trace_with_registers(traces: Any) -> None:
    full, _ = traces
    with aw.vision.test_time_registers(full, [(1, 7)]):
        clean = full.rerun()
        for result in (aw.chefer(clean), aw.lrp(clean), aw.vision.grad_cam(clean), aw.saliency(clean)):
            assert result.shape == (18,)
            assert result.labels[-1] == "[REG0]"
        assert aw.value_zeroing(clean).shape == aw.alti(clean).shape == (4, 18, 18)
    with pytest.raises(ValueError, match="inside the same with block"):
        aw.chefer(clean)


@pytest.mark.slow
def test_a_dino_without_artifacts_has_no_outliers(shared: Any) -> None:
    from tests.vision.pictures import dino_of_reference

    trace, _ = dino_of_reference(shared)
    norms = aw.vision.token_norms(trace)
    for layer in range(12):
        result = aw.vision.outlier_tokens(norms, layer=layer)
        assert len(result) == 0
        assert norms.values[layer, 1:].max() / result.median < 1.6


def test_what_has_no_place_for_a_token_more_is_refused() -> None:
    small = {**tiny.SMALL, "image_size": 16, "patch_size": 8}
    beit = tiny.build(
        lambda: hf.BeitForImageClassification(hf.BeitConfig(**small, use_relative_position_bias=True))
    )
    trace = aw.trace(beit, None, image=noise(16, 16))
    with pytest.raises(UnsupportedModelError, match="where positions are added inside the blocks"):
        aw.vision.test_time_registers(trace, [(0, 0)])
    full = aw.trace(vit(), None, image=noise(32, 32))
    with pytest.raises(IndexError, match="unit 999 is out of range"):
        aw.vision.test_time_registers(full, [(0, 999)])
    with pytest.raises(IndexError, match="layer 5 is out of range"):
        aw.vision.test_time_registers(full, [(5, 0)])
    with pytest.raises(ValueError, match="neurons is empty"):
        aw.vision.test_time_registers(full, [])
    with pytest.raises(ValueError, match="blocks of stack 'self'"):
        aw.vision.token_norms(aw.trace(of_family("ResNet"), None, image=noise()))
    with pytest.raises(TypeError, match="not a trace"):
        aw.vision.token_norms("picture")
