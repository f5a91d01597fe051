"""Value zeroing against the authors' numbers, and against really zeroing values with plain hooks."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch

from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.mixing.value_zeroing import value_zeroing
from attnwidgets.tracing.block_replay import capture
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.tracing.recording import recorded_pass
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.text.units import Unit
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.explanations.mixing.zeroing import IDS, apart, traced
from tests.tracing import tiny
from tests.tracing.families import needs

# Where each reference file is off, and why (absolute, in row-normalised scores).
TOLERANCES = {
    "value_zeroing__cosine": 1e-5,
    "toolkit_bert": 1e-5,
    "tiny_gemma_toolkit_vz": 1e-5,
    "tiny_gpt2_toolkit_vz": 5e-4,  # its cosines are rounded to five decimals
    "tiny_gpt2_toolkit_vz, rounded alike": 1e-6,
}


@pytest.fixture(scope="module")
def mixing(shared):
    return shared / "reference" / "mixing"


@pytest.fixture(scope="module")
def traces(minilm, mixing):
    model, tokenizer = minilm
    inputs = json.loads((mixing / "inputs.json").read_text())
    result = {}
    for name, given in inputs.items():
        result[name] = trace(model, tokenizer, given["text"], text_pair=given.get("text_pair"))
        assert result[name].input_ids.tolist() == given["input_ids"]
    return result


# The authors' numbers


@pytest.mark.slow
def test_the_authors_numbers_on_minilm(traces, mixing):
    theirs = np.load(mixing / "value_zeroing__cosine__float64.npz")
    for name, given in traces.items():
        result = value_zeroing(given)
        tolerance = TOLERANCES["value_zeroing__cosine"]
        assert apart(result.values, theirs[f"{name}/normalized"]) < tolerance
        assert apart(rollout(result, residual=None).values, theirs[f"{name}/rollout"]) < tolerance


def test_the_authors_raw_distances(traces, mixing):
    theirs = np.load(mixing / "value_zeroing__cosine__float64.npz")["s1_short8/raw"]
    result = value_zeroing(traces["s1_short8"], normalize=False)
    assert apart(result.values, theirs) < 1e-6
    assert not result.stochastic


def test_the_toolkits_numbers_on_minilm(traces, mixing):
    theirs = np.load(mixing / "toolkit_bert__float64.npz")
    names = [name for name in traces if f"{name}/value_zeroing" in theirs]
    assert names
    for name in names:
        result = value_zeroing(traces[name]).values
        assert apart(result, theirs[f"{name}/value_zeroing"]) < TOLERANCES["toolkit_bert"]


def test_float64_is_exact(minilm, traces, mixing):
    theirs = np.load(mixing / "value_zeroing__cosine__float64.npz")
    model = copy.deepcopy(minilm[0]).double()
    result = value_zeroing(trace(model, minilm[1], traces["s1_short8"].text)).values
    assert apart(result, theirs["s1_short8/normalized"]) < 1e-9


@pytest.mark.parametrize(
    ("model", "distance", "dtype", "tolerance"),
    [
        ("gemma", "cosine", torch.float32, "tiny_gemma_toolkit_vz"),
        ("gpt2", "cosine", torch.float32, "tiny_gpt2_toolkit_vz"),
        ("gpt2", "cosine_5_decimals", torch.float64, "tiny_gpt2_toolkit_vz, rounded alike"),
    ],
)
def test_the_toolkits_numbers_on_decoders(mixing, model, distance, dtype, tolerance):
    from transformers import AutoModelForCausalLM

    theirs = np.load(mixing / f"tiny_{model}_toolkit_vz__float64.npz")
    decoder = AutoModelForCausalLM.from_pretrained(mixing / "models" / f"tiny_{model}").eval().to(dtype)
    for name, ids in json.loads((mixing / "inputs_tiny_decoder.json").read_text()).items():
        result = value_zeroing(trace(decoder, None, ids), distance=distance).values
        assert apart(result, theirs[f"{name}/vz_normalized"]) < TOLERANCES[tolerance]


@pytest.mark.slow
def test_one_minus_cosine_in_float32_is_noise_and_ours_is_not(traces, mixing):
    """The published code's trap: rows of tiny distances, where 1 - cos keeps no digit."""
    theirs = np.load(mixing / "value_zeroing__cosine__float64.npz")
    worst = {"trap": 0.0, "ours": 0.0}
    for name in ("s1_short8", "s2_subwords"):
        given = traces[name]
        blocks = capture(given, "self", "test")
        n = len(given.tokens)
        expected = theirs[f"{name}/normalized"]
        for layer in range(given.n_layers()):
            rows = torch.zeros(n, n)
            with blocks.ready(layer) as run:
                plain = run()[0]
                for j in range(n):
                    gone = torch.arange(n) == j
                    zeroed = run(1, lambda w, v, gone=gone: (w, v.masked_fill(gone[None, None, :, None], 0)))[
                        0
                    ]
                    rows[:, j] = 1 - torch.nn.functional.cosine_similarity(zeroed, plain, dim=-1)
            trap = (rows / rows.sum(-1, keepdim=True)).numpy()
            worst["trap"] = max(worst["trap"], apart(trap, expected[layer]))
        worst["ours"] = max(worst["ours"], apart(value_zeroing(given).values, expected))
    assert worst["trap"] > 0.05
    assert worst["ours"] < TOLERANCES["value_zeroing__cosine"]


# Invariants


def test_joint_zeroing_of_single_tokens_is_single_zeroing():
    result = traced("BERT")
    n = len(result.tokens)
    singles = Unit("single", tuple(map(str, range(n))), tuple((i,) for i in range(n)), (False,) * n)
    for reduce in ("mean", "max"):
        joint = value_zeroing(result, unit=singles, reduce=reduce).values
        assert np.array_equal(joint, value_zeroing(result).values)


@pytest.mark.parametrize("family", ["BERT", "Llama", "Gemma 2", "T5"])
def test_batching_and_padding_change_nothing(family):
    needs("interface", family)
    model = tiny.build({**tiny.TEXT, **tiny.SEQ2SEQ}[family])
    short, long = IDS[:5], [*IDS, 3, 71, 12]
    rows = torch.tensor([short + [0] * (len(long) - len(short)), long])
    mask = torch.tensor([[1] * len(short) + [0] * (len(long) - len(short)), [1] * len(long)])
    batched = trace(model, None, input_ids=rows, attention_mask=mask)
    for given, together in zip((short, long), batched, strict=True):
        alone = value_zeroing(trace(model, None, given)).values
        assert apart(value_zeroing(together).values, alone) < 1e-6


@pytest.mark.parametrize("family", ["GPT-2", "Gemma 2", "GPT-NeoX"])
def test_causal_maps_have_an_exact_zero_triangle(family):
    result = value_zeroing(trace(tiny.build(tiny.TEXT[family]), None, IDS))
    assert result.causal
    assert not np.triu(result.values, 1).any()
    assert np.allclose(result.values.sum(-1), 1)


def test_what_lies_outside_a_window_is_exactly_zero():
    given = trace(tiny.build(tiny.TEXT["Gemma 2"]), None, [*IDS, *IDS])
    unread = np.stack([(given.attention_layer(layer).numpy() == 0).all(0) for layer in range(2)])
    assert np.tril(unread).any()
    assert not value_zeroing(given).values[unread].any()


def test_the_size_of_chunks_changes_nothing():
    given = traced("Llama")
    whole = value_zeroing(given).values
    for chunk in (1, 3, 100):
        assert apart(value_zeroing(given, chunk_size=chunk).values, whole) < 1e-7


def test_a_row_that_nothing_moves_stays_zero():
    model = tiny.build(tiny.TEXT["BERT"])
    dense = model.bert.encoder.layer[0].attention.output.dense
    torch.nn.init.zeros_(dense.weight)
    result = value_zeroing(trace(model, None, IDS))
    assert not result.layer(0).any()
    assert np.allclose(result.layer(1).sum(-1), 1)


def test_words_are_zeroed_jointly_and_rows_reduced(minilm, sentence):
    given = trace(*minilm, sentence)
    mean = value_zeroing(given, unit="word", layers=2)
    assert mean.query_labels == given.units["word"].labels
    assert "electroencephalographer" in mean.query_labels
    assert np.allclose(mean.values.sum(-1), 1, atol=1e-6)
    split = mean.query_labels.index("electroencephalographer")
    raw = {
        how: value_zeroing(given, unit="word", layers=2, normalize=False, reduce=how)
        for how in ("mean", "max")
    }
    assert (raw["max"].values[0, split] > raw["mean"].values[0, split]).all()
    single = [i for i, span in enumerate(given.units["word"].spans) if len(span) == 1]
    assert np.array_equal(raw["max"].values[0, single], raw["mean"].values[0, single])
    # A word's pieces stand in for each other: the joint effect is not an aggregate of single effects.
    assert apart(mean.values, value_zeroing(given, layers=2).to("word").values) > 1e-3


def test_the_final_norm_concerns_the_last_layer_only():
    given = traced("GPT-2")
    before, after = value_zeroing(given).values, value_zeroing(given, final_norm=True).values
    assert np.array_equal(before[0], after[0])
    assert apart(before[1], after[1]) > 1e-4
    with pytest.raises(
        ValueError, match=r"no norm follows the last block of BertForMaskedLM.*leave final_norm out"
    ):
        value_zeroing(traced("BERT"), final_norm=True)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 1e-2), (torch.float16, 2e-3)])
@pytest.mark.parametrize("family", ["BERT", "Llama", "Gemma 2", "T5"])
def test_half_precision_agrees_with_float32(family, dtype, tolerance):
    needs("interface", family)
    make = {**tiny.TEXT, **tiny.SEQ2SEQ}[family]
    expected = value_zeroing(trace(tiny.build(make), None, IDS)).values
    half = tiny.build(make).to(dtype)
    assert apart(value_zeroing(trace(half, None, IDS)).values, expected) < tolerance
    assert {parameter.dtype for parameter in half.parameters()} == {dtype}


def test_a_prefix_of_keys_without_tokens_is_zeroed_like_any_other():
    peft = pytest.importorskip("peft", reason="PEFT is not installed")
    base = tiny.build(tiny.TEXT["Llama"])
    config = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    given = trace(peft.get_peft_model(base, config).eval(), None, IDS)
    result = value_zeroing(given).values
    assert result.shape == (2, len(IDS), len(IDS) + 3)
    assert (result[:, :, :3] > 0).all()


# Costs, and how the model comes back


def test_opening_a_layer_computes_that_layer_only(monkeypatch):
    monkeypatch.setattr(recorded_pass, "ROOM", 0)  # as for a long text, which runs again
    model = tiny.build(tiny.TEXT["Llama"])
    calls = []
    for layer, block in enumerate(model.model.layers):
        block.mlp.register_forward_hook(lambda *_, layer=layer: calls.append(layer))
    given = trace(model, None, IDS)
    calls.clear()
    result = value_zeroing(given)
    assert calls == [0, 1]
    calls.clear()
    result.layer(1)
    assert set(calls) == {1}
    calls.clear()
    result.layer(1)
    assert not calls


def test_stacks_share_the_pass_that_records_their_blocks(monkeypatch):
    monkeypatch.setattr(recorded_pass, "ROOM", 0)
    model = tiny.build(tiny.SEQ2SEQ["T5"])
    passes = []
    model.register_forward_hook(lambda *_: passes.append(model))
    given = trace(model, None, IDS, max_new_tokens=3)
    passes.clear()
    for stack in given.stacks:
        value_zeroing(given, stack=stack)
    assert len(passes) == 1


def _state(model):
    return (
        {name: tensor.clone() for name, tensor in model.state_dict().items()},
        [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        [parameter.requires_grad for parameter in model.parameters()],
        model.config._attn_implementation,
    )


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_model_comes_back_as_it_was(interrupted):
    model = tiny.build(tiny.TEXT["GPT-2"]).train()
    given = trace(model, None, IDS)
    mlp = model.transformer.h[1].mlp.c_fc
    seen = []

    def stop(*_):
        seen.append(1)
        if interrupted and len(seen) > 5:
            raise KeyboardInterrupt

    mlp.register_forward_hook(stop)
    weights, *before = _state(model)
    if interrupted:
        result = value_zeroing(given, chunk_size=1)
        with pytest.raises(KeyboardInterrupt):
            result.layer(1)
    else:
        assert value_zeroing(given).values.any()
    after, *rest = _state(model)
    assert rest == before
    assert all(torch.equal(weights[name], after[name]) for name in weights)


def test_a_model_that_changed_since_is_noticed():
    model = tiny.build(tiny.TEXT["Llama"])
    result = value_zeroing(trace(model, None, IDS))
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.mul_(3)
    assert result.layer(0).any()
    with pytest.raises(UnsupportedModelError, match=r"'model.layers.1' called again .* trace it again"):
        result.layer(1)


# Bad input


def test_nan_inside_the_model_names_its_first_layer():
    model = tiny.build(lambda: tiny._plain("Llama", "ForCausalLM", **tiny.GQA, num_hidden_layers=3))
    given = trace(model, None, IDS)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    with pytest.raises(
        ValueError, match=r"layer 1 \(model.layers.1\) of stack 'self' is the first to return NaN"
    ):
        value_zeroing(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distance": "cosin"}, "'cosin' is not one of .* Did you mean 'cosine'"),
        ({"reduce": "median"}, "reduce 'median' is not one of 'mean', 'max'"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, not 0"),
        ({"stack": "cross"}, "stack 'cross' is not in this trace"),
        ({"unit": "tokens"}, "unit 'tokens' is not one of.*Did you mean 'token'"),
        ({"unit": Unit("half", ("a",), ((0, 1),), (False,))}, "does not divide the query axis: token 2"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        value_zeroing(traced("BERT"), **options)


def test_a_layer_out_of_range_is_named():
    with pytest.raises(IndexError, match="layer 2"):
        value_zeroing(traced("BERT"), layers=2)


def test_a_trace_without_a_model_is_refused():
    given = from_attentions(np.full((1, 1, 2, 2), 0.5), tokens=["a", "b"])
    with pytest.raises(UnsupportedModelError, match=r"value_zeroing runs the model again.*aw\.trace"):
        value_zeroing(given)


@pytest.mark.parametrize("family", tiny.UNFOLLOWED)
def test_models_that_cannot_be_followed_are_refused_with_the_reason(family):
    given = trace(tiny.build(tiny.UNFOLLOWED[family]), None, IDS)
    with pytest.raises(
        UnsupportedModelError, match=r"value_zeroing calls blocks again.*outside transformers"
    ):
        value_zeroing(given)
