"""Lenses and translators of models whose blocks do not all attend: against the model's last steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build

IDS = torch.tensor([21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12])
ROWS = np.random.default_rng(0).integers(3, 100, (30, 30))
# transformers compiles a kernel of RWKV in another process.
RWKV = pytest.param("rwkv", marks=pytest.mark.slow)
KINDS = [
    *("mamba", "mamba2", "qwen3_5_text", "granitemoehybrid", "falcon_h1", "recurrent_gemma", "lfm2_moe"),
    *("minimax", "nemotron_h", "xlstm", RWKV),
]


class Ids:
    """Stands for a tokenizer: a text is the number of a row of ids."""

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        return [str(index) for index in ids]

    def __call__(self, number: str, **_: Any) -> Any:
        return {"input_ids": ROWS[int(number)].tolist()}


def traced(name: str) -> Any:
    return aw.trace(build(Kind(name, "causal")), None, IDS)


def by_hand(trace: Any) -> list[torch.Tensor]:
    """Return log probabilities after every layer: those of the model whose last block returns the state."""
    blocks = [trace.model.get_submodule(block.path) for block in trace.anatomy.stacks["self"]]
    states: list[torch.Tensor] = []

    def read(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (*args, *kwargs.values())
        states.append(next(value for value in given if torch.is_tensor(value) and value.dim() == 3))

    hooks = [block.register_forward_pre_hook(read, with_kwargs=True) for block in blocks]
    with torch.no_grad():
        trace.model(IDS[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    rows = []
    for state in states:
        last = blocks[-1].register_forward_hook(
            lambda _, __, output, state=state: (state, *output[1:]) if isinstance(output, tuple) else state
        )
        with torch.no_grad():
            rows.append(trace.model(IDS[None], use_cache=False).logits[0].log_softmax(-1))
        last.remove()
    return rows


@pytest.mark.parametrize("name", KINDS)
def test_the_lens_is_the_model_with_its_upper_blocks_left_out(name: str) -> None:
    trace = traced(name)
    lens = aw.circuits.lens(trace, 30)
    rows = by_hand(trace)
    assert lens.probability.shape == (len(rows) + 1, len(IDS))
    for layer, row in enumerate(rows):
        np.testing.assert_allclose(lens.probability[layer], row.exp()[:, 30], rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(lens.kl[-1], 0)
    assert lens.warning == ""


@pytest.mark.parametrize("name", ["mamba2", "qwen3_5_text", "granitemoehybrid", "falcon_h1"])
def test_a_translator_is_the_ridge_regression_of_every_block_s_input(name: str) -> None:
    trace = traced(name)
    translator = aw.circuits.fit_translator(trace.model, Ids(), map(str, range(len(ROWS))), ridge=0.5)
    blocks = trace.anatomy.stacks["self"]
    assert translator.n_layers == len(blocks)
    states: dict[str, list[np.ndarray]] = {"x": [], "y": []}

    def read(_: Any, given: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states["x"].append((given[0] if given else kwargs["hidden_states"])[0, 4:].double().numpy())

    def written(_: Any, __: Any, output: Any) -> None:
        states["y"].append((output[0] if isinstance(output, tuple) else output)[0, 4:].double().numpy())

    modules = [trace.model.get_submodule(block.path) for block in (blocks[1], blocks[-1])]
    hooks = (
        modules[0].register_forward_pre_hook(read, with_kwargs=True),
        modules[1].register_forward_hook(written),
    )
    with torch.no_grad():
        for row in ROWS:
            trace.model(torch.tensor(row)[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    x, y = (np.concatenate(states[side]) for side in "xy")
    centred = x - x.mean(0)
    covariance = centred.T @ centred
    penalty = 0.5 * np.diag(covariance).mean() * np.eye(len(covariance))
    matrix = np.linalg.solve(covariance + penalty, centred.T @ (y - y.mean(0)))
    np.testing.assert_allclose(translator.matrices[1].double().numpy(), matrix, rtol=1e-3, atol=1e-4)
    fitted = aw.circuits.lens(trace, 30, translator=translator)
    np.testing.assert_array_equal(fitted.kl[-1], 0)
    assert not np.array_equal(fitted.kl[0], aw.circuits.lens(trace, 30).kl[0])


def test_states_that_were_not_recorded_are_named(monkeypatch: Any) -> None:
    from attnwidgets.tracing import block_replay

    trace = traced("qwen3_5_text")
    real = block_replay.captured

    def attending(*args: Any, **_: Any) -> Any:
        return real(*args)

    monkeypatch.setattr(block_replay, "captured", attending)
    with pytest.raises(UnsupportedModelError, match="those of blocks 0, 1, 2 are not recorded"):
        aw.circuits.lens(trace, 30)
