"""Hidden token attribution against plain autograd, saved and run here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnwidgets.explanations.mixing.hidden_token_attribution import LIMIT, hidden_token_attribution
from attnwidgets.tracing.block_replay import capture
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.tracing.families import needs

IDS = [5, 17, 31, 9]


def apart(actual, expected):
    return float(np.abs(actual / expected - 1).max())


def jacobian(given, stack, first, last):
    """Return derivatives [query, width, key, width] by reverse mode, an output number at a time."""
    blocks = capture(given, stack, "test")
    start = blocks.layers[first].hidden.clone()

    def through(states):
        for layer in range(first, last + 1):
            with blocks.ready(layer) as run, torch.enable_grad():
                states = run(1, None, states)
        return states

    return torch.autograd.functional.jacobian(through, start)[0, :, :, 0]


def jacobian_norms(given, stack, first, last):
    return jacobian(given, stack, first, last).square().sum(dim=(1, 3)).sqrt().numpy()


@pytest.mark.parametrize("scope", ["local", "global"])
def test_the_spectral_norm_is_the_largest_singular_value(scope):
    given = trace(tiny.build(tiny.TEXT["Llama"]).double(), None, IDS)
    result = hidden_token_attribution(given, scope=scope, norm="spectral", normalize=False)
    for layer in result.layers:
        blocks = jacobian(given, "self", 0 if scope == "global" else layer, layer).permute(0, 2, 1, 3)
        expected = torch.linalg.svdvals(blocks)[..., 0]
        np.testing.assert_allclose(result.layer(layer), expected, rtol=1e-5, atol=1e-7)
    frobenius = hidden_token_attribution(given, scope=scope, normalize=False)
    assert (result.values <= frobenius.values * (1 + 1e-6)).all()
    assert result.values.sum() < 0.9 * frobenius.values.sum()
    assert result.provenance["options"]["norm"] == "spectral"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["BERT", "ALBERT", "GPT-NeoX", "Gemma 2", "T5"])
def test_it_equals_reverse_mode(family):
    needs("interface", family)
    make = {**tiny.TEXT, **tiny.SEQ2SEQ}[family]
    model = tiny.build(make).double()
    given = trace(model, None, IDS, max_new_tokens=2 if family == "T5" else 0)
    for stack in (name for name in given.stacks if name != "cross"):
        whole = hidden_token_attribution(given, stack=stack, normalize=False)
        local = hidden_token_attribution(given, stack=stack, normalize=False, scope="local", chunk_size=7)
        last = given.n_layers(stack) - 1
        for result, first in ((whole, 0), (local, last)):
            expected = jacobian_norms(given, stack, first, last)
            read = expected > 0
            assert apart(result.layer(last)[read], expected[read]) < 1e-6
            assert not result.layer(last)[~read].any()
        assert np.allclose(whole.layer(0), local.layer(0), rtol=1e-6)


def test_causal_maps_are_triangles_and_rows_are_shares():
    result = hidden_token_attribution(trace(tiny.build(tiny.TEXT["Llama"]), None, IDS))
    assert result.causal
    assert not np.triu(result.values, 1).any()
    assert np.allclose(result.values.sum(-1), 1)


def test_half_precision_agrees_with_float32():
    expected = hidden_token_attribution(trace(tiny.build(tiny.TEXT["BERT"]), None, IDS)).values
    half = tiny.build(tiny.TEXT["BERT"]).to(torch.float16)
    assert np.abs(hidden_token_attribution(trace(half, None, IDS)).values - expected).max() < 2e-3


def test_the_first_layers_stop_the_sweep():
    model = tiny.build(tiny.TEXT["BERT"])
    given = trace(model, None, IDS)
    result = hidden_token_attribution(given, layers=[0])
    calls = []
    model.bert.encoder.layer[1].register_forward_hook(lambda *_: calls.append(1))
    assert result.layer(0).any()
    assert not calls


def test_long_inputs_are_refused_with_an_estimate():
    model = tiny.build(lambda: tiny._plain("Bert", "ForMaskedLM", hidden_size=512, num_hidden_layers=1))
    n = LIMIT // 512 + 1
    given = trace(model, None, [3] * n)
    with pytest.raises(
        ValueError, match=rf"over {n} tokens of width 512 takes about (a|\d+) (second|minute)s?.*force=True"
    ):
        hidden_token_attribution(given)
    assert hidden_token_attribution(given, force=True).shape == (1, n, n)


def test_wrong_options_are_named():
    given = trace(tiny.build(tiny.SEQ2SEQ["T5"]), None, IDS)
    with pytest.raises(
        ValueError, match=r"scope 'locl' is not one of 'global', 'local'\. Did you mean 'local'"
    ):
        hidden_token_attribution(given, scope="locl")
    with pytest.raises(ValueError, match='stack="encoder"'):
        hidden_token_attribution(given, stack="cross")
    with pytest.raises(ValueError, match="chunk_size must be at least 1, not -1"):
        hidden_token_attribution(given, chunk_size=-1)
    with pytest.raises(UnsupportedModelError, match="hidden_token_attribution runs the model again"):
        hidden_token_attribution(from_attentions(np.full((1, 1, 2, 2), 0.5), tokens=["a", "b"]))
