"""Invariants of every measure of context mixing, on a tiny random model of every family.

Measures come from the registry, so that a new measure is tested without being named here.
"""

from __future__ import annotations

import contextlib
import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnwidgets.explanations.mixing.alti import alti
from attnwidgets.explanations.mixing.attention_flow import attention_flow
from attnwidgets.explanations.mixing.attention_norm import attention_norm, globenc
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.mixing.value_zeroing import value_zeroing
from attnwidgets.explanations.registry.registry import methods
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.block_replay import capture
from attnwidgets.tracing.recording import recorded_pass
from attnwidgets.tracing.recording.borrow import origin
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.text.units import Unit
from tests.examples import examples
from tests.explanations.ways import Way, apart, served, traced, ways
from tests.tracing.families import FAMILIES, IDS

EVERY = ways()
PLAIN = ways(all_options=False)
RUNNING = [
    way
    for way in PLAIN
    if any("model" in need.name or "blocks" in need.name for need in methods()[way.name].requirements)
]
LENGTHS = ("attention_norm", "globenc", "contribution_graph", "signed_attention")  # no shares by themselves
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
TEXT = [name for name, family in FAMILIES.items() if "input_ids" in family.given]


def computed(way: Way, trace: Any, stack: str) -> np.ndarray:
    return np.array(way(trace, stack).values)


@cache
def by_default(family: str, name: str, stack: str) -> Any:
    """Return the map of a method with its defaults, whose values are computed once."""
    return Way(name)(traced(family), stack)


# Every map


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_maps_are_finite_causal_where_attention_is_and_the_same_twice(family: str) -> None:
    result = traced(family)
    for way in EVERY:
        for stack in result.stacks:
            refused = methods()[way.name].refusal(result, stack)
            if stack not in served(result, way):
                assert refused or way.options, (way, stack)
                with pytest.raises(ValueError, match=r"\w"):
                    way(result, stack)
                continue
            mapped = way(result, stack) if way.options else by_default(family, way.name, stack)
            values = mapped.values
            n_queries, n_keys = (len(axis) for axis in result.axes(stack))
            assert values.shape[-2:] == (n_queries, n_keys)
            assert np.isfinite(values).all()
            if result.is_causal(stack):
                assert not np.triu(values, 1).any(), (way, stack)
            if mapped.stochastic:
                assert values.min() >= 0
                totals = values.sum(-1, dtype=np.float64)
                assert ((np.abs(totals - 1) < 1e-5) | (totals == 0)).all(), (way, stack)
            if not way.options:
                assert np.array_equal(computed(way, result, stack), values), (way, stack)


@pytest.mark.parametrize("family", FAMILIES)
def test_measures_of_shares_say_so(family: str) -> None:
    """Otherwise the rows above would be asked of nothing."""
    result = traced(family)
    stack = result.default_stack
    shares = ("attention", "rollout", "attention_flow", "value_zeroing", "alti", "hidden_token_attribution")
    assert all(Way(name)(result, stack).stochastic for name in shares)
    assert Way("attention_norm", {"normalize": "row"})(result, stack).stochastic
    assert not Way("attention_norm")(result, stack).stochastic


# Differences without an effect


@cache
def alone_of(family: str) -> tuple[Any, dict[tuple[str, str], np.ndarray]]:
    """Return the trace of a short text by itself in double precision, and its maps by method and stack."""
    alone = trace(traced(family, torch.float64).model, None, IDS[:5])
    return alone, {
        (way.name, stack): computed(way, alone, stack) for way in PLAIN for stack in served(alone, way)
    }


@pytest.mark.slow
@pytest.mark.parametrize("family", TEXT)
@pytest.mark.parametrize("side", ["left", "right"])
def test_batching_and_padding_change_nothing(family: str, side: str) -> None:
    model = traced(family, torch.float64).model
    short, pads = IDS[:5], [0] * 3
    rows = [[*pads, *short] if side == "left" else [*short, *pads], IDS]
    real = [0] * 3 + [1] * 5 if side == "left" else [1] * 5 + [0] * 3
    together, _ = trace(
        model, None, input_ids=torch.tensor(rows), attention_mask=torch.tensor([real, [1] * 8])
    )
    alone, expected = alone_of(family)
    assert together.tokens == alone.tokens
    for (name, stack), values in expected.items():
        assert apart(computed(Way(name), together, stack), values) < 2e-5, (name, stack)


@pytest.mark.slow
@pytest.mark.parametrize("family", TEXT)
def test_a_unit_of_one_token_per_group_changes_nothing(family: str) -> None:
    result = traced(family)
    for way in PLAIN:
        for stack in served(result, way):
            mapped = by_default(family, way.name, stack)
            alone = [
                Unit("alone", unit.labels, unit.spans, unit.special)
                for unit in (axis.units["token"] for axis in result.axes(stack))
            ]
            grouped = mapped.to(alone[0] if stack != "cross" else tuple(alone))
            assert np.array_equal(grouped.values, mapped.values), (way, stack)
            if "unit" in methods()[way.name].options:
                unit = tuple(alone) if stack == "cross" else alone[0]
                jointly = Way(way.name, {**way.options, "unit": unit})(result, stack)
                assert np.array_equal(jointly.values, mapped.values), (way, stack)


# Against the model's code, really run without a value


def _without(trace: Any, stack: str, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention's output [query, dim], and its change without each key [query, key, dim].

    By hooks: every key's value is zeroed, the block called again, and the attention's projection is watched.
    """
    block = block_of(trace, layer, stack, "test")
    n_keys = block.values.shape[1]
    seen: list[torch.Tensor] = []
    handle = origin(block.part(block.layout.out)).register_forward_hook(
        lambda _, __, output: seen.append(output.reshape(-1, len(block.hidden), output.shape[-1]))
    )
    with capture(trace, stack, "test").ready(layer) as run:
        handle.remove()
        seen.clear()
        run(1)
        run(n_keys, lambda w, v: (w, v.masked_fill(torch.eye(n_keys).bool()[:, None, :, None], 0.0)))
    whole, without = seen
    return whole[0], (whole - without).transpose(0, 1)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_norms_and_alti_equal_brute_force(family: str) -> None:
    result = traced(family, torch.float64)
    for stack in result.stacks:
        layer = result.n_layers(stack) - 1
        block = block_of(result, layer, stack, "test")
        if block.layout.after:
            continue  # a norm or scale behind the projection is fixed, which zeroing does not do
        whole, parts = _without(result, stack, layer)
        lengths = attention_norm(result, stack=stack).layer(layer)
        assert apart(lengths, parts.norm(dim=-1)) < 1e-9, stack
        z, residual = block.hidden + whole, block.hidden[:, None]
        tokens = torch.arange(len(block.hidden))
        if stack != "cross":
            parts[tokens, tokens] += block.hidden
        parts = torch.cat([parts, residual], dim=1)  # in cross-attention the residual is a part by itself
        if block.layout.order == "post":
            norm = block.part(block.layout.norm1)
            deviation = torch.sqrt(z.var(-1, correction=0, keepdim=True) + norm.eps)
            parts = norm.weight * (parts - parts.mean(-1, keepdim=True)) / deviation[:, None]
            z = norm(z)
        near = (z.abs().sum(-1)[:, None] - (parts - z[:, None]).abs().sum(-1)).clamp(min=0)
        if stack != "cross":
            near = near[:, :-1]
        unread = parts[:, : near.shape[1]].abs().sum(-1) == 0
        near = near.masked_fill(unread, 0.0)
        shares = (near / near.sum(-1, keepdim=True).clamp_min(1e-300))[:, : lengths.shape[-1]]
        assert apart(alti(result, stack=stack).layer(layer), shares) < 1e-9, stack


@pytest.mark.slow
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_is_zeroed_at_once_is_what_the_model_does_without_it(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(["BERT", "Llama", "GPT-NeoX", "Gemma 2", "Mixtral", "T5", "Marian"]))
    result = traced(family, torch.float64)
    stack = data.draw(st.sampled_from(result.stacks))
    n_queries, n_keys = (len(axis) for axis in result.axes(stack))
    groups = data.draw(st.lists(st.integers(0, 2), min_size=n_keys, max_size=n_keys))
    spans = [tuple(i for i, group in enumerate(groups) if group == item) for item in sorted(set(groups))]
    layer = data.draw(st.integers(0, 1))
    unit = _unit(spans)
    rows = _unit([tuple(range(n_queries))]) if stack == "cross" else unit
    ours = value_zeroing(
        result, unit=(rows, unit), stack=stack, layers=layer, normalize=False, distance="euclidean"
    ).layer(layer)
    with capture(result, stack, "test").ready(layer) as run:
        plain = run(1)[0]
        moved = [
            run(1, lambda w, v, span=span: (w, v.index_fill(2, torch.tensor(span), 0.0)))[0] for span in spans
        ]
    lengths = torch.stack([(states - plain).norm(dim=-1) for states in moved], dim=1)
    expected = torch.stack([lengths[list(span)].mean(0) for span in rows.spans])
    assert np.abs(ours - expected.numpy()).max() < 1e-5 * float(plain.norm(dim=-1).max())


def _unit(spans: list[tuple[int, ...]]) -> Unit:
    return Unit("group", tuple(map(str, spans)), tuple(spans), (False,) * len(spans))


# Half precision: everything after the recorded queries, keys and values is computed in float32

# Relative to the largest number of a map; digits that the layers below rounded away stay lost.
TOLERANCE = {torch.bfloat16: 0.05, torch.float16: 0.01}


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["BERT", "GPT-2", "Llama", "Gemma 2", "GPT-NeoX", "Mixtral", "T5", "Marian"]
)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_half_precision_agrees_with_the_same_weights_in_float32(family: str, dtype: torch.dtype) -> None:
    half = FAMILIES[family].traced(dtype)
    wide = trace(copy.deepcopy(half.model).float(), None, **FAMILIES[family].given)
    for way in PLAIN:
        for stack in served(half, way):
            assert half.axes(stack)[0].tokens == wide.axes(stack)[0].tokens
            off = apart(way(half, stack).values, way(wide, stack).values)
            assert off < TOLERANCE[dtype], (way, stack)


# The model is the user's


def _state(model: Any) -> tuple[Any, ...]:
    return (
        {name: tensor.clone() for name, tensor in model.state_dict().items()},
        [(m.training, *(len(getattr(m, kind)) for kind in HOOKS)) for m in model.modules()],
        [(parameter.requires_grad, parameter.grad) for parameter in model.parameters()],
        model.config.to_dict(),
        [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")],
        torch.is_grad_enabled(),
    )


def _require_same(model: Any, before: tuple[Any, ...], why: Any) -> None:
    (weights, *rest), (now, *others) = before, _state(model)
    assert others == rest, why
    assert all(torch.equal(weights[name], now[name]) for name in weights), why


class _Stop:
    """A forward hook that interrupts the model after some more calls."""

    left: int | None = None
    stopped = False

    def __call__(self, *_: object) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.stopped = True
                raise KeyboardInterrupt


LATE = {
    "BERT": "bert.encoder.layer.1.output",
    "GPT-2": "transformer.h.1.mlp",
    "Mixtral": "model.layers.1.mlp",
}


@pytest.mark.slow
@pytest.mark.parametrize("family", LATE)
def test_the_model_comes_back_as_it_was_also_after_an_interrupt(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_pass, "ROOM", 0)  # as for a long text, which runs again
    model, stop = FAMILIES[family].model().train(), _Stop()
    model.get_submodule(LATE[family]).register_forward_hook(stop)
    before = _state(model)
    for way in PLAIN:
        for left in (None, 0, 1):
            result = trace(model, None, **FAMILIES[family].given)
            if not served(result, way):
                continue
            stop.left, stop.stopped = left, False
            with contextlib.suppress(KeyboardInterrupt):
                assert np.isfinite(way(result).values).all()
            assert stop.stopped or left is None or left == 1 or way not in RUNNING, way
            stop.left = None
            _require_same(model, before, (way, left))


# Bad numbers


@pytest.mark.parametrize("way", RUNNING, ids=str)
@pytest.mark.parametrize("family", ["BERT", "GPT-2"])
def test_nan_inside_the_model_names_the_layer_where_it_first_appears(family: str, way: Way) -> None:
    result = FAMILIES[family].traced()
    if not served(result, way):
        pytest.skip(f"{way} does not serve {family}")
    broken = result.model.get_submodule(LATE[family])
    with torch.no_grad():
        next(broken.parameters())[0] = float("nan")
    with pytest.raises(ValueError, match=r"layer 1 .*NaN or infinite"):
        assert way(result).values is not None


@pytest.mark.slow
@pytest.mark.parametrize("family", ["BERT", "GPT-2", "Llama"])
def test_a_token_that_gets_nothing_gives_zeros_and_never_nan(family: str) -> None:
    """No value leaves layer 0, so that whatever measures attention's vectors finds nothing there."""
    model = FAMILIES[family].model()
    first = block_of(trace(model, None, IDS), 0, "self", "test")
    for parameter in first.part(first.layout.out).parameters():
        parameter.data.zero_()
    result = trace(model, None, IDS)
    for way in EVERY:
        for stack in served(result, way):
            values = way(result, stack).values
            assert np.isfinite(values).all(), way
            totals = values[0].sum(-1)
            if way.options.get("normalize", "row") in ("row", True):
                assert (np.isclose(totals, 1, atol=1e-5) | (totals == 0) | (way.name in LENGTHS)).all(), way
    nothing = [value_zeroing(result), attention_norm(result), attention_norm(result, normalize="row")]
    for mapped in nothing:
        assert not mapped.layer(0).any()
        assert mapped.layer(1).any()
        assert rollout(mapped, residual=None).values.sum() == 0
        assert np.allclose(rollout(mapped).layer(0), np.eye(len(IDS)))
        assert np.allclose(attention_flow(mapped).layer(0), np.eye(len(IDS)))
        assert not attention_flow(mapped, residual_weight=0.0).values.any()
    assert np.allclose(alti(result).layer(0), np.eye(len(IDS)))
    assert np.allclose(globenc(result, "row").layer(0), np.eye(len(IDS)))
