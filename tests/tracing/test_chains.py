"""A weight of a kernel, step by step: the steps lead to the weight, and are those of a plain recurrence."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations.mixing.kernel_row import kernel_row, mixer_at
from attnwidgets.tracing.mixers.chains import Chain, condensed, faded
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build

IDS = [21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12, 9, 77]
RWKV = pytest.param("rwkv", marks=pytest.mark.slow)
NAMES = [
    *("mamba", "zamba", "mamba2", "falcon_h1", "qwen3_5_text", "olmo_hybrid", "kimi_linear"),
    *("minimax", "recurrent_gemma", RWKV, "xlstm"),
]


@cache
def traced(name: str) -> Any:
    return aw.trace(build(Kind(name, "causal")), None, input_ids=IDS)


def rows_of(trace: Any, queries: tuple[int, ...]) -> Any:
    """Rows of every head that has a state."""
    for layer, block in trace.stack_table["self"].mixing.items():
        mixers = next(b for b in trace.anatomy.stacks["self"] if b.number == layer).mixers
        for head in range(sum(max(mixer.heads, 1) for mixer in mixers if mixer.stack or mixer.is_measured)):
            if any(mix.kernel.has_state for mix in block.mixes):
                yield from (
                    row
                    for query in queries
                    if (row := kernel_row(trace, layer, head, query, stack="self")) is not None
                )


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_every_kind_lead_to_the_weight(name: str) -> None:
    rows = list(rows_of(traced(name), (0, 6, 12)))
    assert rows
    for row in rows:
        for key in range(row.query + 1):
            chain = row.chain(key)
            assert chain.weight == pytest.approx(row.weights[key], rel=1e-9, abs=1e-12)
            value = chain.start
            for step in chain.steps:
                value = value * step.factor - step.erased
                assert step.value == pytest.approx(value, rel=1e-9, abs=1e-12)
            assert all(key < step.first <= row.query for step in chain.steps)


def test_a_delta_rule_is_that_of_a_plain_recurrence() -> None:
    """The state after every token, with only the value of a single key, read by the query."""
    trace = traced("qwen3_5_text")
    layer = min(trace.stack_table["self"].mixing)
    row = kernel_row(trace, layer, 2, 9)
    kernel: Any = row.kernel
    query, keys, decay, beta = (
        part[0, :, 2].double().numpy() for part in (kernel.query, kernel.key, kernel.decay, kernel.beta)
    )
    for key in (0, 5, 9):
        state = np.zeros(keys.shape[1])
        read = []
        for at in range(10):
            state = np.exp(decay[at]) * state
            state = state + beta[at] * keys[at] * ((at == key) - keys[at] @ state)
            read.append(float(query[9] @ state))
        chain = row.chain(key)
        assert [chain.start, *(step.value for step in chain.steps)] == pytest.approx(read[key:], rel=1e-9)
        assert [step.factor for step in chain.steps] == pytest.approx(np.exp(decay[key + 1 : 10, 0]))


def test_a_state_space_fades_by_its_step_sizes() -> None:
    trace = traced("mamba2")
    row = kernel_row(trace, 0, 1, 8)
    kernel: Any = row.kernel
    chain = row.chain(3)
    factors = np.exp(float(kernel.a[1]) * kernel.dt[0, 4:9, 1].double().numpy())
    assert [step.factor for step in chain.steps] == pytest.approx(factors.tolist())
    assert not any(step.erased for step in chain.steps)
    assert chain.weight == pytest.approx(chain.start * factors.prod())
    # Where a position reads itself, the skip connection is added.
    assert row.chain(8).skip == pytest.approx(float(kernel.d[1]))


def test_weights_of_rwkv_by_their_exponents() -> None:
    key, decay, first = np.array([0.3, -1.0, 2.0, 0.5]), -0.7, 0.4
    scores = key - np.exp(decay) * np.array([2.0, 1.0, 0.0, 0.0])
    scores[3] = key[3] + first
    shares = np.exp(scores) / np.exp(scores).sum()
    import torch

    from attnwidgets.tracing.mixers.recurrences import TimeMix

    kernel = TimeMix(torch.tensor(key)[None, :, None], torch.tensor([decay]), torch.tensor([first]))
    chains = [kernel.chain(0, 3, at) for at in range(4)]
    assert [chain.weight for chain in chains] == pytest.approx(shares.tolist(), rel=1e-6)
    # The token after a key reads it before anything fades.
    assert [len(chain.steps) for chain in chains] == [2, 1, 0, 0]


def test_channels_open_on_the_one_with_the_largest_weights() -> None:
    trace = traced("mamba")
    row = kernel_row(trace, 0, 0, 12)
    every = trace.stack_table["self"].mixing[0].mixes[0].kernel.rows([12])[:, 0].numpy()
    assert row.channels == len(every)
    assert row.group == np.abs(every[:, :12]).sum(axis=1).argmax()
    np.testing.assert_array_equal(kernel_row(trace, 0, 0, 12, channel=7).weights, every[7])
    with pytest.raises(
        IndexError, match=f"channel 999 is out of range: layer 0 has channel 0 to {len(every) - 1}"
    ):
        kernel_row(trace, 0, 0, 12, channel=999)


def test_heads_of_a_parallel_block_are_told_apart() -> None:
    trace = traced("falcon_h1")
    whole = aw.mixing(trace, "kernel")
    kinds = [mixer_at(trace, 0, head, "self")[0] for head in range(8)]
    assert kinds == ["attention"] * 4 + ["state space"] * 4
    assert kernel_row(trace, 0, 3, 5) is None
    np.testing.assert_allclose(kernel_row(trace, 0, 6, 5).weights, whole.matrix(0, 6)[5, :6], rtol=1e-6)
    with pytest.raises(IndexError, match="head 8 is out of range: layer 0 has head 0 to 7"):
        kernel_row(trace, 0, 8, 5)


def test_a_convolution_has_no_chain() -> None:
    trace = traced("lfm2_moe")
    with pytest.raises(UnsupportedModelError, match=r"\(convolution\) is not a chain of steps"):
        kernel_row(trace, min(trace.stack_table["self"].mixing), 0, 5)


def test_steps_that_do_not_lead_to_the_weight_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    row = kernel_row(traced("mamba2"), 0, 0, 5)
    wrong = Chain("C · Δ B", 5.0, ())
    monkeypatch.setattr(type(row.kernel), "chain", lambda *_: wrong)
    with pytest.raises(ArithmeticError, match="the steps from position 1 to 5 give 5"):
        row.chain(1)


def test_a_long_chain_is_joined_and_stays_exact() -> None:
    import torch

    factors = torch.full((40,), 0.99, dtype=torch.float64)
    factors[[7, 8, 30]] = torch.tensor([0.5, 0.6, 0.7], dtype=torch.float64)
    chain = faded("q · k", torch.tensor(2.0, dtype=torch.float64), factors, 3)
    lines = condensed(chain, 3)
    assert [(line.first, line.last) for line in lines] == [
        (3, 9),
        (10, 10),
        (11, 11),
        (12, 32),
        (33, 33),
        (34, 42),
    ]
    assert lines[3].factor == pytest.approx(0.99**21)
    value = chain.start
    for line in lines:
        value = value * line.factor - line.erased
        assert line.value == pytest.approx(value)
    assert value == pytest.approx(chain.weight)
    assert condensed(chain, 20) == chain.steps
