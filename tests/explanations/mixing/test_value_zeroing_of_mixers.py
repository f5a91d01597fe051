"""Value zeroing of blocks without attention: a token's input to the kernel is taken away."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets._gradients import no_grad
from attnwidgets.tracing.mixers.calls import CONVOLUTION, VALUES, handling
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

IDS = [21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12, 9, 77]


@cache
def traced(name: str) -> Trace:
    return aw.trace(build(Kind(name, "causal")), None, input_ids=IDS)


def convolved(states: torch.Tensor, arguments: dict[str, Any]) -> torch.Tensor:
    weight = arguments["weight"]
    padding = weight.shape[-1] - 1
    return torch.nn.functional.conv1d(
        states, weight[:, None], arguments.get("bias"), padding=padding, groups=len(weight)
    )[..., : states.shape[-1]]


def output_without(
    model: Any, path: str, number: int, channels: slice, token: int | None, plain_calls: list[dict[str, Any]]
) -> torch.Tensor:
    """Return a block's output [token, dim] in a run of the whole model, without a token's values in it.

    The value channels of the token are zeroed in front of the convolution `number` of the model, whose
    activation stays the factor that it was, and in the projection of the values of its attention. Kernels
    keep the arguments of `plain_calls`, which may be read off the convolved values (Mamba 1); those of a run
    without a token are added to it.
    """
    outputs: list[torch.Tensor] = []
    calls: list[str] = []
    arguments_of_plain = iter(list(plain_calls))

    def zero(name: str, go_on: Any, arguments: dict[str, Any]) -> Any:
        if name != CONVOLUTION:
            if token is None:
                plain_calls.append(arguments)
            fixed = arguments if token is None else next(arguments_of_plain)
            return go_on(**fixed | {VALUES[name]: arguments[VALUES[name]]})
        calls.append(name)
        if token is None or len(calls) != number + 1:
            return go_on(**arguments)
        states = arguments["hidden_states"].clone()
        states[:, channels, token] = 0
        factor = torch.sigmoid(convolved(arguments["hidden_states"], arguments))
        changed = convolved(states, arguments)
        return changed * factor if arguments.get("activation") else changed

    def zero_values(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        if token is not None:
            output[:, token] = 0
        return output

    def keep(_: Any, __: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    block = model.get_submodule(path)
    with ExitStack() as exits, no_grad(), handling(zero):
        exits.callback(block.register_forward_hook(keep).remove)
        if hasattr(block, "self_attn"):
            exits.callback(block.self_attn.v_proj.register_forward_hook(zero_values).remove)
        model(torch.tensor([IDS]), use_cache=False)
    return outputs[0].reshape(len(IDS), -1).double()


# By type, a block, its number among those with a convolution, and its value channels.
BLOCKS = {
    "mamba": ("backbone.layers", 1, 1, lambda _: slice(None)),
    "mamba2": ("backbone.layers", 1, 1, lambda block: slice(block.mixer.intermediate_size)),
    "qwen3_5_text": ("model.layers", 2, 2, lambda block: slice(-block.linear_attn.value_dim, None)),
    "lfm2_moe": ("model.layers", 2, 1, lambda _: slice(None)),
    "jamba": ("model.layers", 2, 1, lambda _: slice(None)),
    "falcon_h1": ("model.layers", 1, 1, lambda block: slice(block.mamba.intermediate_size)),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_it_is_zeroing_before_the_convolution_with_the_kernel_and_the_activation_held(name: str) -> None:
    trace = traced(name)
    path, layer, number, of_block = BLOCKS[name]
    model: Any = trace.model
    path = f"{path}.{layer}"
    channels = of_block(model.get_submodule(path))
    plain_calls: list[dict[str, Any]] = []
    plain = output_without(model, path, number, channels, None, plain_calls)
    changed = [output_without(model, path, number, channels, token, plain_calls) for token in range(len(IDS))]
    wanted = torch.stack([(states - plain).norm(dim=-1) for states in changed], 1).numpy()
    assert wanted.max() > 1e-2
    zeroed = aw.value_zeroing(trace, distance="euclidean", normalize=False)
    assert zeroed.layers == trace.mixing_layers()
    np.testing.assert_allclose(zeroed.layer(layer), wanted, atol=1e-5)
    assert not np.triu(zeroed.layer(layer), 1).any()
    in_threes = aw.value_zeroing(trace, distance="euclidean", normalize=False, chunk_size=3)
    np.testing.assert_allclose(in_threes.layer(layer), zeroed.layer(layer), atol=1e-5)
    assert "without attention" not in zeroed.warning


def test_a_layer_in_half_precision_is_computed_in_float32() -> None:
    model = build(Kind("mamba2", "causal"))
    exact = aw.value_zeroing(aw.trace(model, None, input_ids=IDS), layers=0).layer(0)
    half = aw.value_zeroing(aw.trace(model.bfloat16(), None, input_ids=IDS), layers=0).layer(0)
    # Inputs of the layer have three digits.
    np.testing.assert_allclose(half, exact, atol=3e-2)


def test_the_letter_before_the_marker_is_what_is_lost() -> None:
    trace = aw.trace(*aw.zoo.last_marked("abcdefgh", 10), "cf#bd#aheg")
    row = aw.value_zeroing(trace).layer(0)[-1]
    assert trace.tokens[int(row.argmax())] == "d"
    assert row.max() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "layer", "reason"),
    [
        ("minimax", 1, "layers.1.self_attn mixes values by its own code"),
        ("zamba2", 1, "mixers of model.layers.1 follow each other"),
    ],
)
def test_kernels_whose_values_cannot_be_taken_away_are_named(name: str, layer: int, reason: str) -> None:
    zeroed = aw.value_zeroing(traced(name))
    with pytest.raises(UnsupportedModelError, match=reason):
        zeroed.layer(layer)
    assert zeroed.layer(0).shape == (len(IDS), len(IDS))
