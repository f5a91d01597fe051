"""Steering models whose blocks do not all attend: against a plain hook, and in generation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import attnwidgets as aw
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build

from . import made

IDS = torch.tensor([[21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12]])
# By type: a block without attention.
SITES = {
    "mamba": "backbone.layers.1",
    "mamba2": "backbone.layers.1",
    "qwen3_5_text": "model.layers.1",
    "granitemoehybrid": "model.layers.0",
    "falcon_h1": "model.layers.1",
    "lfm2_moe": "model.layers.2",
    "minimax": "model.layers.1",
    "recurrent_gemma": "model.layers.1",
}
# transformers compiles a kernel of RWKV in another process.
RWKV = pytest.param("rwkv", marks=pytest.mark.slow)
GENERATED = {
    "max_new_tokens": 4,
    "min_new_tokens": 4,
    "do_sample": False,
    "output_logits": True,
    "return_dict_in_generate": True,
}


def steered(name: str, **options: Any) -> tuple[Any, Any]:
    model = build(Kind(name, "causal"))
    sae = made.sae(d_in=model.config.hidden_size, site=SITES.get(name, "rwkv.blocks.1"))
    return model, aw.steer(model, sae, [3, 5], [2.0, 1.0], mode="add", maximum=3.0, **options)


@pytest.mark.parametrize("name", [*SITES, RWKV])
def test_a_feature_is_added_to_what_the_block_returns(name: str) -> None:
    model, steering = steered(name, positions=[3, 4])
    change = torch.zeros(1, IDS.shape[1], model.config.hidden_size)
    change[:, 3:5] = 6.0 * steering.sae.W_dec[3] + 3.0 * steering.sae.W_dec[5]

    def add(_: Any, __: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple) else output
        return (states + change, *output[1:]) if isinstance(output, tuple) else states + change

    with torch.no_grad():
        plain = model(IDS, use_cache=False).logits
        hook = model.get_submodule(steering.site.module).register_forward_hook(add)
        by_hand = model(IDS, use_cache=False).logits
        hook.remove()
        with steering:
            torch.testing.assert_close(model(IDS, use_cache=False).logits, by_hand, rtol=1e-5, atol=1e-5)
            trace = aw.trace(model, None, IDS[0])
    torch.testing.assert_close(torch.as_tensor(trace.logits), by_hand[0], rtol=1e-4, atol=1e-5)
    assert (by_hand - plain)[:, 4:].abs().max() > 1e-2


@pytest.mark.parametrize("positions", [None, [3, 12], "generated"])
@pytest.mark.parametrize("name", [*SITES, RWKV])
def test_generation_is_steered_alike_with_a_cache_and_without(name: str, positions: Any) -> None:
    model, steering = steered(name, positions=positions)
    logits = {}
    for use_cache in (True, False):
        with steering, torch.no_grad():
            steps = model.generate(IDS, use_cache=use_cache, **GENERATED)
        logits[use_cache] = torch.stack(steps.logits)[:, 0]
    allowed = logits[True].isfinite() & logits[False].isfinite()
    torch.testing.assert_close(logits[True][allowed], logits[False][allowed], rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        plain = torch.stack(model.generate(IDS, use_cache=True, **GENERATED).logits)[:, 0]
    assert (plain - logits[True])[allowed].abs().max() > 1e-3


@pytest.mark.parametrize("name", ["mamba", "mamba2"])
def test_tokens_are_counted_where_a_state_does_not_tell_how_many_are_in_it(name: str) -> None:
    model, steering = steered(name, positions=[3, 8, 10])
    with torch.no_grad():
        with steering:
            whole = model(IDS, use_cache=False).logits
            first = model(IDS[:, :7], use_cache=True)
            rest = [
                model(token, cache=first.cache, use_cache=True).logits for token in IDS[:, 7:].split(1, 1)
            ]
            torch.testing.assert_close(torch.cat([first.logits, *rest], 1), whole, rtol=1e-4, atol=1e-4)
        before = model(IDS[:, :7], use_cache=True)
        with steering, pytest.raises(UnsupportedModelError, match="Begin the text inside it"):
            model(IDS[:, 7:8], cache=before.cache, use_cache=True)
