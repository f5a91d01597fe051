"""DecompX: the authors' numbers, and that vectors add up in every family."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from attnwidgets._progress import Cancelled, observing
from attnwidgets.explanations import targets
from attnwidgets.explanations.mixing.decompx import decompx
from attnwidgets.tracing.algebra import propagation
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.algebra.decomposition import Rules
from attnwidgets.tracing.algebra.propagation import Propagation
from attnwidgets.tracing.algebra.steps import read_norm
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.explanations.mixing.against_authors import classified_traces, numbers, relative
from tests.tracing import tiny
from tests.tracing.families import FAMILIES, IDS, needs

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIANTS: dict[str, dict[str, Any]] = {
    "paper_absdot_geluZO": {},
    "bias_abssim": {"bias": "abssim"},
    "bias_norm": {"bias": "norm"},
    "bias_equal": {"bias": "equal"},
    "bias_cls": {"bias": "cls"},
    "no_bias": {"bias": None},
    "geluLA": {"activation": "linear_approximation"},
    "relu": {"activation": "relu"},
    "no_ffn": {"ffn": False},
}
FOLLOWED = [family for family in FAMILIES if family != "Mixtral"]


@pytest.fixture(scope="module", params=["float32", "float64"])
def classified(request, shared) -> Any:
    """A precision, and MiniLM's traces of the reference sentences under the reference's classifier."""
    return request.param, classified_traces(shared, request.param)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_and_lengths_are_the_authors(classified, shared, variant) -> None:
    dtype, traces = classified
    expected = numbers(shared, f"decompx__{variant}")
    single = dtype == "float32"
    for name in ("s1_short8", "s8_pair", *(("s2_subwords", "s4_agreement") if not VARIANTS[variant] else ())):
        result = decompx(traces[name], [0, 1], **VARIANTS[variant])
        assert np.abs(result.values.T - expected[f"{name}/classifier"]).max() < (1e-6 if single else 1e-9)
        assert relative(result.map.values, expected[f"{name}/aggregated_norm"]) < (1e-4 if single else 1e-9)
        rest = expected[f"{name}/logits"] - expected[f"{name}/classifier"].sum(0)
        assert np.abs(np.array(result.residual) - rest).max() < (1e-6 if single else 1e-9)


def test_vectors_are_the_authors(classified, shared) -> None:
    dtype, traces = classified
    expected = numbers(shared, "decompx__paper_absdot_geluZO")
    for name in ("s0_vz_demo", "s1_short8"):
        followed = _followed(traces[name])
        with torch.no_grad():
            result = followed.run(range(followed.n_tokens))
        off = np.abs(result.numpy() - expected[f"{name}/aggregated_vectors_last"]).max()
        assert off < (1e-4 if dtype == "float32" else 1e-9)
        lengths = torch.stack([followed.lengths[layer] for layer in range(6)]).numpy()
        assert relative(lengths, expected[f"{name}/aggregated_norm"]) < (5e-5 if dtype == "float32" else 1e-9)


def _followed(traced: Any, stack: str = "self", **options: Any) -> Propagation:
    spans = traced.axes(stack)[1].units["token"].spans if "spans" not in options else options.pop("spans")
    ffn = options.pop("ffn", True)
    return Propagation(traced, stack, "test", tuple(spans), Rules(**options), ffn=ffn)


def _stack(traced: Any) -> str:
    return "encoder" if "cross" in traced.stacks else "self"


def _in_double(model: Any) -> None:
    """Let norms compute in the precision of their input: many norms of models round to float32."""
    for module in model.modules():
        if type(module).__name__.endswith(("RMSNorm", "T5LayerNorm", "CohereLayerNorm")):
            norm = read_norm(module, len(module.weight), module.weight)
            assert norm is not None
            module.forward = norm.__call__


@cache
def _traced(name: str) -> Any:
    """A trace of a family in double precision throughout."""
    model = FAMILIES[name].model(torch.float64)
    _in_double(model)
    return FAMILIES[name].trace_of(model)


OPTIONS: Sequence[dict[str, Any]] = (
    {},
    {"activation": "linear_approximation"},
    {"gate": "fixed"},
    *({"bias": bias} for bias in ("abssim", "norm", "equal", "cls", "dot")),
)


@pytest.mark.parametrize("family", FOLLOWED)
@torch.no_grad()
def test_vectors_add_up_to_every_state_in_every_family(family, monkeypatch) -> None:
    traced = _traced(family)
    stack = _stack(traced)
    for options in OPTIONS:
        followed = _followed(traced, stack, **options)
        result = followed.run(range(followed.n_tokens))
        state = block_of(traced, followed.n_layers - 1, stack, "test").output
        # Shares by signed products may be large, and their rounding with them.
        assert (result.sum(1) - state).abs().max() < (1e-7 if options.get("bias") == "dot" else 1e-9)
        if traced.is_causal(stack):
            assert not result[torch.triu(torch.ones(result.shape[:2]), diagonal=1).bool()].any()
    followed = _followed(traced, stack)
    result = followed.run(range(followed.n_tokens))
    first = followed.run(range(followed.n_tokens), upto=0)
    assert (first.sum(1) - block_of(traced, 0, stack, "test").output).abs().max() < 1e-9
    assert (followed.run([2, 5]) - result[[2, 5]]).abs().max() < 1e-10
    # Where there are many sources, a row's maps in and out of a wide layer are multiplied first.
    monkeypatch.setattr("attnwidgets.tracing.algebra.decomposition._WORTH", 0)
    for options in ({}, {"gate": "fixed"}, {"activation": "linear_approximation"}):
        apart = _followed(traced, stack, **options)
        with monkeypatch.context() as patch:
            patch.setattr("attnwidgets.tracing.algebra.decomposition._WORTH", 1e9)
            expected = _followed(traced, stack, **options).run([2, 5])
        assert (apart.run([2, 5]) - expected).abs().max() < 1e-10


@pytest.mark.parametrize("family", FOLLOWED)
def test_scores_add_up_to_the_logit_in_every_family(family) -> None:
    needs("head", family)
    traced = _traced(family)
    if traced.logits is None:
        with pytest.raises(ValueError, match="this trace has no logits"):
            decompx(traced, 3)
        return
    if "cross" in traced.stacks:
        with pytest.raises(ValueError, match="also reads another sequence"):
            decompx(traced, 3)
        assert decompx(traced).values.shape[0] == traced.n_layers("encoder")
        return
    each = traced.logits.dim() > 1
    target, foil = (targets.token(i, position=4) if each else i for i in (1, 2))
    model = traced.logits[4] if each else traced.logits
    for options in ({}, {"bias": "norm"}):
        result = decompx(traced, [target, foil], **options)
        assert result.values.shape == (2, len(traced.axes()[1]))
        assert np.abs(result.values.sum(1) - model[[1, 2]].numpy()).max() < 1e-5
        assert np.abs(np.array(result.residual)).max() < 1e-9
        apart = decompx(traced, target, foil, **options)
        assert np.allclose(apart.values, result.values[0] - result.values[1], atol=1e-6)
        assert abs(apart.residual) < 1e-9
        if each and traced.is_causal():
            assert not result.values[:, 5:].any()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_head_may_read_the_mean_of_all_tokens(pooling) -> None:
    model = tiny.build(
        lambda: tiny._plain(
            "ModernBert", "ForSequenceClassification", classifier_pooling=pooling, pad_token_id=0,
            cls_token_id=1, sep_token_id=2, local_attention=4, num_labels=3,
        )
    )  # fmt: skip
    traced = trace(model.double(), None, IDS)
    result = decompx(traced, [0, 1, 2])
    assert np.abs(np.array(result.residual)).max() < 1e-9
    assert np.abs(result.values.sum(1) - traced.logits.numpy()).max() < 1e-6


def test_a_mask_and_a_next_token_are_targets_by_name() -> None:
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    reader = tiny.wordpiece()
    masked = tiny.build(lambda: BertForMaskedLM(BertConfig(**{**tiny.SMALL, "vocab_size": len(reader)})))
    traced = trace(masked, reader, "the [MASK] sat")
    result = decompx(traced, "cat", "york")
    assert (result.target, result.foil) == ("cat", "york")
    difference = traced.logits[2, reader.convert_tokens_to_ids("cat")]
    difference = difference - traced.logits[2, reader.convert_tokens_to_ids("york")]
    assert float(result.values.sum()) == pytest.approx(float(difference), abs=1e-6)
    bytes_ = tiny.byte_level()
    writer = tiny.build(
        lambda: GPT2LMHeadModel(
            GPT2Config(vocab_size=len(bytes_), n_embd=32, n_layer=2, n_head=4, n_positions=64)
        )
    )
    traced = trace(writer, bytes_, "the cat")
    best = traced.predictions(1)[0]
    assert decompx(traced).target == best.label
    assert float(decompx(traced).values.sum()) == pytest.approx(float(traced.logits[-1, best.id]), abs=1e-6)


def test_words_followed_jointly_add_up_and_single_tokens_change_nothing() -> None:
    from transformers import BertConfig, BertForSequenceClassification

    from attnwidgets.tracing.text.units import Unit

    reader = tiny.wordpiece()
    model = tiny.build(
        lambda: BertForSequenceClassification(BertConfig(**{**tiny.SMALL, "vocab_size": len(reader)}))
    ).double()
    for parameter in model.parameters():
        parameter.data += 0.1
    traced = trace(model, reader, "the unbelievable cats sat")
    tokens = decompx(traced, 1)
    words = decompx(traced, 1, unit="word")
    assert words.labels == tokens.to("word").labels
    assert abs(words.residual) < 1e-9
    assert words.map.shape == tokens.to("word").map.shape
    # Jointly is not the sum: biases are shared out among words.
    assert not np.allclose(words.values, tokens.to("word").values, atol=1e-6)
    assert np.allclose(
        decompx(traced, 1, unit="word", bias=None).values,
        decompx(traced, 1, bias=None).to("word").values,
        atol=1e-6,
    )
    n = len(traced.tokens)
    single = Unit("single", traced.tokens, tuple((i,) for i in range(n)), (False,) * n)
    assert np.array_equal(decompx(traced, 1, unit=single).values, tokens.values)
    assert np.array_equal(decompx(traced, 1, unit=single).map.values, tokens.map.values)
    # Sources need not stand in the order of the text.
    shuffled = Unit("shuffled", traced.tokens[::-1], single.spans[::-1], single.special)
    assert np.allclose(decompx(traced, 1, unit=shuffled).values[::-1], tokens.values, atol=1e-9)


def test_sources_of_a_causal_model_may_come_in_any_order_and_in_parts() -> None:
    from attnwidgets.tracing.text.units import Unit

    traced = FAMILIES["Llama"].traced()
    whole = decompx(traced, 1)
    labels = traced.tokens
    groups = ((5, 1), (0,), (7, 3, 4), (2,), (6,))
    unit = Unit("group", tuple("abcde"), groups, (False,) * 5)
    result = decompx(traced, 1, unit=unit)
    assert np.allclose(result.values, whole.to(unit).values, atol=1e-6)
    for size in (1, 3):
        parts = decompx(traced, 1, chunk_size=size)
        assert np.allclose(parts.values, whole.values, atol=1e-6)
        assert np.allclose(parts.map.values, whole.map.values, atol=1e-6)
    assert not np.triu(whole.map.values, 1).any()
    assert len(labels) == whole.map.shape[-1]


@pytest.mark.parametrize("family", ["BERT", "GPT-2", "Llama"])
def test_a_batch_and_its_padding_change_nothing(family) -> None:
    model = FAMILIES[family].model()
    reader = tiny.wordpiece()
    texts = ["the cat sat", "a b c new york the unbelievable cat"]
    if family == "BERT":
        batch = trace(model, reader, texts)
        for item, text in zip(batch, texts, strict=True):
            alone = trace(model, reader, text)
            target = targets.token(7, position=1)
            assert np.allclose(decompx(item, target).values, decompx(alone, target).values, atol=1e-6)
            assert np.allclose(decompx(item, target).map.values, decompx(alone, target).map.values, atol=1e-5)
        return
    ids, padded = torch.tensor([IDS[:5]]), torch.tensor([[*IDS[:5], 0, 0]])
    alone = trace(model, None, ids)
    within = trace(model, None, padded, attention_mask=torch.tensor([[1] * 5 + [0] * 2]))
    target = targets.token(7, position=4)
    assert np.allclose(decompx(within, target).values, decompx(alone, target).values, atol=1e-6)


@pytest.mark.parametrize("family", ["BERT", "Llama", "GPT-NeoX"])
def test_half_precision_is_computed_in_single(family) -> None:
    needs("head", family)
    single = decompx(FAMILIES[family].traced(), targets.token(1, position=4))
    half = decompx(FAMILIES[family].traced(torch.bfloat16), targets.token(1, position=4))
    assert half.map.values.dtype == np.float32
    assert np.abs(half.values - single.values).max() < 0.05 * np.abs(single.values).max()
    assert np.abs(half.map.values - single.map.values).max() < 0.03 * single.map.values.max()
    assert abs(half.residual) < 0.05 * np.abs(single.values).sum()


def test_without_a_prediction_the_map_is_returned(minilm) -> None:
    model, reader = minilm
    traced = trace(model, reader, "Paris is beautiful.")
    result = decompx(traced)
    assert result.axis_names == ("layer", "query", "key")
    assert result.shape == (6, len(traced.tokens), len(traced.tokens))
    assert result.map is result
    with pytest.raises(ValueError, match="its model has no head"):
        decompx(traced, 0)
    unmasked = FAMILIES["BERT"].traced()
    named = decompx(unmasked, targets.token(1, position=4))
    assert np.array_equal(decompx(unmasked).values, named.map.values)


def test_layers_that_scores_have_passed_are_not_followed_again(monkeypatch) -> None:
    runs = []
    run = Propagation.run
    monkeypatch.setattr(
        Propagation, "run", lambda self, *args, **kwargs: runs.append(1) or run(self, *args, **kwargs)
    )
    result = decompx(FAMILIES["BERT"].traced(), targets.token(1, position=4))
    result.map.layer(0)
    assert len(runs) == 1
    result.map.layer(1)
    result.map.layer(0)
    assert len(runs) == 2


def test_work_that_is_stopped_leaves_nothing_behind() -> None:
    traced = FAMILIES["BERT"].traced()
    target = targets.token(1, position=4)
    seen = []

    def stop(done: int, total: int | None, desc: str) -> None:
        seen.append((done, total, desc))
        if done == 1:
            raise Cancelled

    with observing(stop), pytest.raises(Cancelled):
        decompx(traced, target)
    assert seen == [(0, 2, "decompx"), (1, 2, "decompx")]
    fresh = decompx(FAMILIES["BERT"].traced(), target)
    assert np.array_equal(decompx(traced, target).values, fresh.values)


def test_the_model_comes_back_as_it_was() -> None:
    model = FAMILIES["BERT"].model().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    decompx(trace(model, None, IDS), targets.token(1, position=4))
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_wrong_options_name_what_is_taken() -> None:
    traced = FAMILIES["BERT"].traced()
    target = targets.token(1, position=4)
    with pytest.raises(ValueError, match=r"bias 'absdott' is not one of .*Did you mean 'absdot'"):
        decompx(traced, target, bias="absdott")
    with pytest.raises(ValueError, match="activation 'zero' is not one of"):
        decompx(traced, target, activation="zero")
    with pytest.raises(ValueError, match="gate 'open' is not one of"):
        decompx(traced, target, gate="open")
    with pytest.raises(ValueError, match="unit 'wrod' is not one of"):
        decompx(traced, target, unit="wrod")
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        decompx(traced, target, chunk_size=0)
    with pytest.raises(ValueError, match="biases are distributed among all sources"):
        decompx(traced, target, chunk_size=2)
    assert decompx(traced, target, chunk_size=2, bias=None).values.any()
    with pytest.raises(ValueError, match="foil '1' is the target itself"):
        decompx(traced, target, target)
    with pytest.raises(ValueError, match="is not a single logit"):
        decompx(traced, lambda outputs: outputs.logits[:, 0, 0])


def test_what_cannot_be_followed_is_refused_by_name(monkeypatch) -> None:
    for option in ({"ffn": False}, {"activation": "relu"}):
        with pytest.raises(UnsupportedModelError, match=r"MixtralSparseMoeBlock is not described.* Leave it"):
            decompx(FAMILIES["Mixtral"].traced(), 1, **option)
    broken = FAMILIES["BERT"].model()
    broken.bert.encoder.layer[1].output.dense.weight.data[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"layer 1 .* is the first to return NaN"):
        decompx(trace(broken, None, IDS), targets.token(1, position=4))
    model = FAMILIES["BERT"].model()
    plain = model.cls.forward
    model.cls.forward = lambda states: 2 * plain(states) + 1
    with pytest.raises(
        UnsupportedModelError, match="no description of a head gives the logits of BertForMask"
    ):
        decompx(trace(model, None, IDS), targets.token(1, position=4))
    monkeypatch.setattr("attnwidgets.explanations.mixing.decompx.LIMIT", 1000)
    with pytest.raises(ValueError, match=r"holds a vector for every pair of tokens, .* pass force=True"):
        decompx(FAMILIES["BERT"].traced(), targets.token(1, position=4))
    assert decompx(FAMILIES["BERT"].traced(), targets.token(1, position=4), force=True).values.any()


@pytest.mark.parametrize("bits", [32, 16])
def test_blocks_are_read_again_only_if_they_take_too_much_memory(monkeypatch, bits) -> None:
    recorded = FAMILIES["BERT"].trace_of(
        FAMILIES["BERT"].model(torch.float32 if bits == 32 else torch.bfloat16)
    )
    read = propagation.read_layer
    layers: list[Any] = []
    monkeypatch.setattr(propagation, "read_layer", lambda *given: layers.append(read(*given)) or layers[-1])

    def lengths() -> Any:
        layers.clear()
        return decompx(recorded, targets.token(1, position=4)).map.values

    once = lengths()
    assert len(layers) == len(once)
    # Weights in half precision are copied to be computed with; others are the model's own.
    weights = sum(step.matrix.nbytes for layer in layers for step in layer.feed if hasattr(step, "matrix"))
    assert (sum(layer.n_bytes for layer in layers) > weights) == (bits == 16)
    monkeypatch.setattr(propagation, "_CACHED_BYTES", 0)
    assert np.array_equal(lengths(), once)
    assert len(layers) > 2 * len(once)
