"""Rows that give a part of themselves to no key, and rows that read chosen keys only."""

from __future__ import annotations

import importlib.util
import sys
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.tracing.anatomy.attention_modules import sites
from attnwidgets.tracing.recording import recorded_pass, recorder
from attnwidgets.tracing.row_sums import row_sums
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.tracing.families import IDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LENGTH = len(IDS)
# A sink for each head; a softmax weighs them against scores near 0.
SINKS = torch.tensor([3.0, 0.0, -3.0, 1.0])
ROUNDING = 5e-7  # of a largest logit: float32 over a few layers, summed in another order

# Of all models that pass `s_aux`, `sinks` or `indices` to their attention.
SPARSE = ("deepseek_v32", "glm_moe_dsa", "hy_v4")
WITH_SINK = ("gpt_oss", "granite_swa", "hy_v4")
TYPES = (
    *dict.fromkeys((*WITH_SINK, *SPARSE)),
    *("granitemoe_swa", "flint", "mimo_v2_flash", "openai_privacy_filter", "axk2", "dots3_note"),
)


def with_sinks(model: Any) -> Any:
    """Return a model in eval mode whose heads have sinks of different strength."""
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):
            parameter.data.copy_(SINKS)
    return model.eval()


def gpt_oss() -> Any:
    options = tiny.SMALL | {"intermediate_size": 32} | tiny.GQA
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
    torch.manual_seed(0)
    config = hf.GptOssConfig(vocab_size=tiny.VOCAB, **options, **experts, sliding_window=4)
    return with_sinks(hf.GptOssForCausalLM(config))


def granite() -> Any:
    torch.manual_seed(0)
    options = {**tiny.SMALL, **tiny.GQA, "sliding_window": 4, "pad_token_id": 0}
    return with_sinks(hf.GraniteSWAForCausalLM(hf.GraniteSWAConfig(vocab_size=tiny.VOCAB, **options)))


MADE = {"gpt-oss": gpt_oss, "Granite SWA": granite}


def read_output(trace: aw.results.Trace, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the input of a layer's W_O [token, head * dim], and its values [head, token, dim]."""
    seen: dict[str, torch.Tensor] = {}
    module = trace.model.model.layers[layer].self_attn
    hooks = [
        module.o_proj.register_forward_pre_hook(lambda _, args: seen.update(out=args[0][0])),
        module.v_proj.register_forward_hook(lambda _, __, out: seen.update(values=out[0])),
    ]
    with torch.no_grad():
        trace.model(torch.tensor([IDS]), use_cache=False)
    for hook in hooks:
        hook.remove()
    values = seen["values"].unflatten(-1, (2, -1)).transpose(0, 1)  # two heads read each of the two
    return seen["out"], values.repeat_interleave(2, 0)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_the_rows_shown_are_those_that_are_applied(make: Callable[[], Any]) -> None:
    """Granite SWA itself returns rows that sum to 1 and scales their mixtures afterwards."""
    model = make()
    trace = aw.trace(model, None, input_ids=IDS)
    assert not trace.warning
    for layer in trace.layers():
        weights = trace.attention_layer(layer)
        out, values = read_output(trace, layer)
        mixed = (weights @ values).transpose(0, 1).flatten(1)
        torch.testing.assert_close(mixed, out, rtol=1e-5, atol=1e-6)
        rest = trace.sink_share(layer)
        torch.testing.assert_close(weights.sum(-1) + rest, torch.ones_like(rest))
        # The first token has a single key, and its score decides between it and the sink.
        query, key = trace.query_key(layer)
        score = (query[:, 0] * key.repeat_interleave(2, 0)[:, 0]).sum(-1)
        score = score * trace.attention_settings(layer)["scaling"]
        torch.testing.assert_close(rest[:, 0], torch.sigmoid(SINKS - score))


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_parts_of_a_layer_have_the_bits_of_the_whole(make: Callable[[], Any]) -> None:
    trace = aw.trace(make(), None, input_ids=IDS * 12)
    whole = trace.attention_layer(1)
    rows = trace.rerun().attention_rows(1, [2, 0], [5, 80, 3])
    assert torch.equal(rows, whole[[2, 0]][:, [5, 80, 3]])


def test_texts_of_a_batch_are_those_of_single_texts() -> None:
    model = gpt_oss()
    ids, mask = [[*IDS[:5], 0, 0], IDS[:7]], [[1] * 5 + [0] * 2, [1] * 7]
    short, long = aw.trace(model, None, input_ids=ids, attention_mask=mask)
    for trace, ids in ((short, IDS[:5]), (long, IDS[:7])):
        alone = aw.trace(model, None, input_ids=ids)
        torch.testing.assert_close(trace.sink_share(1), alone.sink_share(1))
        torch.testing.assert_close(trace.attention_layer(1), alone.attention_layer(1))


def test_sums_over_queries_count_the_sink() -> None:
    trace = aw.trace(gpt_oss(), None, input_ids=IDS * 6)
    factors = torch.rand(3, LENGTH * 6, generator=torch.Generator().manual_seed(0))
    for layer in trace.layers():
        total = torch.zeros(4, 3, LENGTH * 6)
        for sums, first, part in row_sums(trace.stack_table["self"].layers[layer], factors):
            total[:, sums, first : first + part.shape[-1]] += part
        torch.testing.assert_close(total, factors @ trace.attention_layer(layer), rtol=1e-5, atol=1e-6)


def test_the_steps_of_a_row_end_at_the_recorded_one() -> None:
    from attnwidgets.explanations.mixing.attention import attention_row

    trace = aw.trace(gpt_oss(), None, input_ids=IDS)
    row = attention_row(trace, 1, 0, LENGTH - 1)
    assert row.sink == pytest.approx(float(SINKS[0]))
    np.testing.assert_allclose(row.weights, row.recorded, atol=1e-6)


def test_value_zeroing_is_the_model_with_values_of_zero() -> None:
    model = gpt_oss()
    trace = aw.trace(model, None, input_ids=IDS)
    block = model.model.layers[0]
    outputs: list[torch.Tensor] = []

    def zero(_: Any, __: Any, values: torch.Tensor) -> torch.Tensor:
        values = values.clone()
        values[:, 3] = 0
        return values

    for hooks in ((), (zero,)):
        handles = [block.self_attn.v_proj.register_forward_hook(hook) for hook in hooks]
        keep = block.register_forward_hook(lambda _, __, out: outputs.append(out))
        with torch.no_grad():
            model(torch.tensor([IDS]), use_cache=False)
        for handle in (*handles, keep):
            handle.remove()
    plain, zeroed = outputs
    change = 1 - torch.nn.functional.cosine_similarity(plain, zeroed, dim=-1)[0]
    result = aw.value_zeroing(trace, normalize=False).layer(0)[:, 3]
    np.testing.assert_allclose(result, change.numpy(), atol=1e-6)


def test_a_token_that_is_not_read_leaves_its_share_to_keys_and_sink() -> None:
    """As the softmax without this key: all that remains grows alike, the sink as well."""
    trace = aw.trace(gpt_oss(), None, input_ids=IDS)
    before = trace.attention_layer(0)
    changed = trace.rerun(aw.suppress(trace, [2]))
    after = changed.attention_layer(0)
    row = before[:, 3]
    expected = row / (1 - row[:, [2]])
    expected[:, 2] = 0
    torch.testing.assert_close(after[:, 3], expected)
    torch.testing.assert_close(changed.sink_share(0)[:, 3], trace.sink_share(0)[:, 3] / (1 - row[:, 2]))
    # Also where another intervention comes first, whose weights no scores give.
    with aw.suppress(trace, [1]):
        twice = trace.rerun(aw.suppress(trace, [2])).attention_layer(0)[:, 3]
    expected = row / (1 - row[:, [1, 2]].sum(-1, keepdim=True))
    expected[:, [1, 2]] = 0
    torch.testing.assert_close(twice, expected)


def test_rollout_adds_the_residual_before_rows_are_divided() -> None:
    """A head that reads nothing leaves a token as it is: (A + I) / (2 - the sink's share)."""
    trace = aw.trace(gpt_oss(), None, input_ids=IDS)
    product = np.eye(LENGTH)
    for layer in trace.layers():
        mean = trace.attention_layer(layer).double().mean(0).numpy()
        rest = trace.sink_share(layer).double().mean(0).numpy()
        product = (mean + np.eye(LENGTH)) / (2 - rest)[:, None] @ product
    np.testing.assert_allclose(aw.rollout(trace).layer(-1), product, atol=1e-6)
    nothing = with_sinks(gpt_oss())
    for block in nothing.model.layers:
        block.self_attn.sinks.data.fill_(40.0)
    rolled_out = aw.rollout(aw.trace(nothing, None, input_ids=IDS)).layer(-1)
    np.testing.assert_allclose(rolled_out, np.eye(LENGTH), atol=1e-6)


def test_statistics_tell_the_first_token_from_no_token() -> None:
    trace = aw.trace(gpt_oss(), None, input_ids=IDS)
    maps = aw.attention(trace)
    assert trace.rows_sum_to_one() is False
    assert maps.sink
    assert not maps.stochastic
    weights = np.stack([trace.attention_layer(layer).double().numpy() for layer in trace.layers()])
    rest = 1 - weights.sum(-1)
    counted = slice(1, None)  # the first query reads a single key
    stats = aw.statistics.head_statistics(trace)
    np.testing.assert_allclose(stats["no_token"], rest[..., counted].mean(-1), atol=1e-6)
    np.testing.assert_allclose(stats["first_token"], weights[..., counted, 0].mean(-1), atol=1e-6)
    both = np.concatenate([weights, rest[..., None]], axis=-1)[..., counted, :]
    entropy = -(both * np.log(np.where(both > 0, both, 1))).sum(-1).mean(-1)
    np.testing.assert_allclose(stats["entropy"], entropy, atol=1e-6)
    # A query of a layer with a window can see the keys in it, and the sink.
    sees = np.stack([trace.readable_keys(layer).numpy() for layer in trace.layers()])
    assert sees[0].sum(-1).max() == 4
    relative = -(both * np.log(np.where(both > 0, both, 1))).sum(-1)
    relative /= np.log(sees.sum(-1) + 1)[:, None, counted]
    np.testing.assert_allclose(stats["relative_entropy"], relative.mean(-1), atol=1e-6)
    # Weight on no token has no position: the distance is that of the attention to tokens.
    rows, positions = weights[..., counted, :], np.arange(LENGTH)
    distance = np.abs(positions[counted, None] - positions)
    far = (rows * distance).sum((-1, -2)) / rows.sum((-1, -2))
    np.testing.assert_allclose(stats["mean_distance"], far, atol=1e-6)
    importance = weights.sum(-2) / sees.sum(-2)[:, None]
    np.testing.assert_allclose(aw.statistics.sink_importance(trace), importance, atol=1e-6)
    patterns = aw.statistics.head_patterns(trace)
    np.testing.assert_allclose(patterns["no token"], stats["no_token"], atol=1e-6)
    strongest = stats["no_token"].argmax()
    assert np.ravel(patterns.own)[strongest] == "no token"
    # Heads add up alike, and so do maps by other elements; the largest of several heads is no row.
    assert maps.mean().sink
    assert maps.to([(0, 3), (3, LENGTH)]).sink
    assert not maps.max().sink


def test_heads_are_alike_by_what_they_give_to_no_token_too() -> None:
    trace = aw.trace(gpt_oss(), None, input_ids=IDS)
    weights = np.concatenate([trace.attention_layer(layer).double().numpy() for layer in trace.layers()])
    both = np.concatenate([weights, 1 - weights.sum(-1, keepdims=True)], axis=-1)[:, 1:]

    def entropy(rows: Any) -> Any:
        return -(rows * np.log(np.where(rows > 0, rows, 1))).sum(-1)

    middle = entropy((both + both[2]) / 2)
    distance = (middle - (entropy(both) + entropy(both[2])) / 2).mean(-1)
    ranked = aw.statistics.similar_heads(trace, 0, 2, k=None)
    for layer, head, value in ranked:
        assert value == pytest.approx(distance[4 * layer + head], abs=1e-6)
    # A head that gives all to the sink and a head that gives it nothing have nothing in common.
    texts = ["a", "b", "c"]
    uniform = np.tri(3) / np.tri(3).sum(-1, keepdims=True)
    axis = aw.attention(aw.from_attentions(uniform[None, None], texts)).query
    options: Any = {"query": axis, "layers": (0,), "heads": (0, 1), "causal": True, "method": "attention"}
    apart = aw.MixingMap.lazy(lambda _: np.stack([uniform, 0 * uniform]), sink=True, **options)
    [(_, _, value)] = aw.statistics.similar_heads(apart, 0, 0)
    assert value == pytest.approx(np.log(2))


def test_flow_adds_the_residual_before_rows_are_divided() -> None:
    """The flow through the layers that rollout multiplies."""
    trace = aw.trace(gpt_oss(), None, input_ids=IDS)
    layers = []
    for layer in trace.layers():
        mean = trace.attention_layer(layer).double().mean(0).numpy()
        rest = trace.sink_share(layer).double().mean(0).numpy()
        layers.append((mean + np.eye(LENGTH)) / (2 - rest)[:, None])
    given = aw.from_attentions(np.stack(layers)[:, None], [str(token) for token in IDS])
    expected = aw.attention_flow(given, residual_weight=0).layer(-1)
    np.testing.assert_allclose(aw.attention_flow(trace).layer(-1), expected, atol=1e-5)


def test_half_precision_rounds_as_the_model_does() -> None:
    """gpt-oss subtracts a row's largest score before its softmax, in the precision of the model."""
    model = gpt_oss().to(torch.bfloat16)
    trace = aw.trace(model, None, input_ids=IDS)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = model(torch.tensor([IDS]), use_cache=False, output_attentions=True)
    assert torch.equal(trace.logits, eager.logits[0])
    for layer in trace.layers():
        assert torch.equal(trace.attention_layer(layer), eager.attentions[layer][0].float())


def test_rows_without_the_share_of_the_sink_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a recording is refused, the rows that Granite SWA returns do not replace it; those of gpt-oss do."""
    monkeypatch.setattr(recorded_pass, "compared", lambda *_: ("it differs", ""))
    with pytest.raises(UnsupportedModelError, match="leave out the share of its sink"):
        aw.trace(granite(), None, input_ids=IDS)
    trace = aw.trace(gpt_oss(), None, input_ids=IDS)
    assert "it differs" in trace.warning
    assert float(trace.attention_layer(0).sum(-1).max()) < 1


def test_a_model_without_sinks_has_no_such_statistic() -> None:
    trace = aw.trace(tiny.build(tiny.TEXT["Llama"]), None, input_ids=IDS)
    assert trace.rows_sum_to_one()
    assert not trace.sink_share(0).any()
    with pytest.raises(ValueError, match="no layer has a sink of its own"):
        aw.statistics.no_token(trace)
    given = aw.from_attentions(trace.attention_layer(0)[None] / 2, list(map(str, IDS)))
    with pytest.raises(UnsupportedModelError, match="not recorded"):
        given.sink_share(0)


# Models of the reference data


def reference_model(shared: Path, kind: str) -> Any:
    """Return the tiny model of a type that the reference data was made with."""
    folder = shared / "prototypes" / "mixers"
    modules = {}
    for name in ("tweaks", "tiny"):  # the second imports the first
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        modules[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[name])
    try:
        model = modules["tiny"].build("tokcls" if kind == "openai_privacy_filter" else "causal", kind, seed=0)
    finally:
        for name in modules:
            del sys.modules[name]
    generator = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        if "sinks" in name:
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data.copy_(SINKS[: parameter.numel()] + 0.1 * noise)
    return model


TEXT = [21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12]


@pytest.mark.parametrize("kind", TYPES)
def test_recording_leaves_the_logits_as_they_are(shared: Path, kind: str) -> None:
    model = reference_model(shared, kind)
    trace = aw.trace(model, None, input_ids=TEXT)
    assert not trace.warning
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = model(torch.tensor([TEXT]), use_cache=False).logits[0]
    assert float((trace.logits - eager).abs().max()) <= ROUNDING * float(eager.abs().max())


@pytest.mark.parametrize("kind", dict.fromkeys((*WITH_SINK, *SPARSE)))
def test_rows_are_those_of_the_reference(shared: Path, kind: str) -> None:
    reference = np.load(shared / "reference" / "mixers" / f"{kind}-0.npz")
    trace = aw.trace(reference_model(shared, kind), None, input_ids=TEXT)
    assert trace.input_ids.tolist() == reference["ids"].tolist()
    for layer in trace.layers():
        weights = reference[f"{layer}.weights"]
        rows = weights[..., : len(TEXT)]
        np.testing.assert_allclose(trace.attention_layer(layer), rows, atol=1e-6)
        sink = weights[..., len(TEXT)] if kind in WITH_SINK else np.zeros(rows.shape[:2])
        np.testing.assert_allclose(trace.sink_share(layer), sink, atol=1e-6)
        if kind in SPARSE:
            chosen = np.zeros((len(TEXT), len(TEXT)), dtype=bool)
            np.put_along_axis(chosen, reference[f"{layer}.indices"], values=True, axis=1)
            readable = trace.readable_keys(layer).numpy()
            assert (readable == (chosen & np.tri(len(TEXT), dtype=bool))).all()
            assert readable[-1].sum() == reference[f"{layer}.indices"].shape[1]  # 4 of 11 keys
            assert not rows[:, ~readable].any()
            weights = aw.attention(trace).mean().select(layer=layer)
            assert (weights.readable(layer) == readable).all()
            assert weights.to([(0, 5), (5, 11)]).readable(layer) is None  # they are tokens


def test_a_view_says_how_many_keys_a_row_reads(shared: Path) -> None:
    """Zeros of keys that were not compared look like zeros of keys that were."""
    trace = aw.trace(reference_model(shared, "deepseek_v32"), None, input_ids=TEXT)
    view = aw.Heatmap(trace, layer=1, head=2)
    assert view.describe().endswith("A row reads at most 4 of 11 keys.")
    tile = view.sources()[0].tile(1, 2).meta()
    bits = np.frombuffer(b64decode(tile["compared"]), dtype=np.uint8)
    compared = np.unpackbits(bits, count=len(TEXT) ** 2, bitorder="little").reshape(len(TEXT), -1)
    assert (compared == trace.readable_keys(1).numpy()).all()
    assert compared.sum(axis=1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4]
    drawn = view.presentation.filtered(trace.attention_layer(1)[2].numpy())
    assert (np.isfinite(drawn) == trace.readable_keys(1).numpy()).all()
    # A causal mask alone, and a trace of weights alone, say nothing.
    plain = aw.trace(tiny.build(tiny.TEXT["Llama"]), None, input_ids=IDS)
    given = aw.from_attentions(trace.attention_layer(1)[None], list(map(str, TEXT)))
    for other in (plain, given):
        shown = aw.Heatmap(other)
        assert "reads at most" not in shown.describe()
        assert "compared" not in shown.sources()[0].tile(0, 0).meta()


def test_attention_over_blocks_is_not_attention_over_tokens(shared: Path) -> None:
    """Inkling 2 reads earlier blocks' states of each token by the same function: two of three calls."""
    model = reference_model(shared, "inkling2_text")
    names = [f"model.layers.{number}.self_attn" for number in range(len(model.model.layers))]
    trace = aw.trace(model, None, input_ids=IDS)
    assert trace.n_layers() == len(names)
    assert trace.attention_layer(0).shape[1:] == (LENGTH, LENGTH)
    for table in (sites(trace), sites(model)):
        assert [part.name for part in table["self"].values()] == names
    with recorder.recording(model) as session, torch.no_grad():
        model(torch.tensor([IDS]), use_cache=False)
    assert len(session.calls) > len(names)
    # A sink of every row, from its token.
    shares = torch.stack([trace.sink_share(layer) for layer in trace.layers()])
    assert float(shares.std(-1).min()) > 0
    torch.testing.assert_close(shares, 1 - torch.stack([*map(trace.attention_layer, trace.layers())]).sum(-1))
