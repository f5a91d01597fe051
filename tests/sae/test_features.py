from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

import attnwidgets as aw
from attnwidgets.explanations import Attributions
from attnwidgets.tracing.text.units import TokenAxis, Unit
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.examples import examples
from tests.tracing import tiny

from . import made

TOKENS = ("[CLS]", "un", "##believ", "##able", "cats", "[SEP]")


def axis() -> TokenAxis:
    special = tuple(token.startswith("[") for token in TOKENS)
    words = ((0,), (1, 2, 3), (4,), (5,))
    labels = ("[CLS]", "unbelievable", "cats", "[SEP]")
    return TokenAxis(
        TOKENS,
        {
            "token": Unit("token", TOKENS, tuple((i,) for i in range(6)), special),
            "word": Unit("word", labels, words, (True, False, False, True)),
        },
    )


def fired(seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.where(generator.random((6, 9)) < 0.4, generator.gamma(2, size=(6, 9)), 0).astype(np.float32)


def activations(values=None, **options) -> aw.results.FeatureActivations:
    return aw.results.FeatureActivations(fired() if values is None else values, axis=axis(), **options)


@pytest.mark.slow
@given(
    values=arrays(np.float32, (6, 9), elements=st.floats(0, 8, width=32).map(lambda x: x if x > 4 else 0.0))
)
@settings(max_examples=examples(50))
def test_nothing_is_lost_in_the_sparse_form(values):
    result = activations(values)
    assert np.array_equal(result.values, values)
    assert np.array_equal(activations(csr_array(values)).values, values)
    assert result.l0.tolist() == (values != 0).sum(1).tolist()
    assert result.features == tuple(np.flatnonzero(values.any(0)))
    for token in range(6):
        best = sorted(((float(value), -j) for j, value in enumerate(values[token]) if value), reverse=True)[
            :3
        ]
        assert [(value, -j) for j, value in result.strongest(token, 3)] == best
    table = result.to_dataframe()
    assert len(table) == (values != 0).sum()
    for row in table.itertuples():
        assert values[row.token_index, row.feature] == row.activation
        assert row.token == TOKENS[row.token_index]


def test_features_are_ranked_by_their_largest_activation_in_the_text():
    values = fired()
    values[0, 3] = 99.0  # of [CLS]
    result = activations(values)
    inside = values[1:5].max(0)
    assert [j for j, _ in result.ranked(4)] == np.argsort(-inside, kind="stable")[:4].tolist()
    assert result.ranked(1, special=True)[0] == (3, 99.0)


def test_a_feature_is_shown_as_attributions_are():
    result = activations(provenance={"text": "unbelievable cats", "model": "made"})
    single, two = result.feature(4), result.feature([4, 7])
    assert isinstance(single, Attributions)
    assert np.array_equal(single.values, fired()[:, 4])
    assert single.target == "feature 4"
    assert single.labels == TOKENS
    assert single.provenance["text"] == "unbelievable cats"
    assert single.trace_id == result.trace_id  # linked with the other views of its trace
    assert np.array_equal(two.values, fired()[:, [4, 7]].T)
    assert two.targets == ("feature 4", "feature 7")
    with pytest.raises(IndexError, match="feature 9 is out of range: there are features 0 to 8"):
        result.feature(9)


def test_a_word_has_the_largest_activation_of_its_pieces():
    result = activations(error=np.linspace(0.1, 0.6, 6))
    words = result.to("word")
    expected = np.stack([fired()[0], fired()[1:4].max(0), fired()[4], fired()[5]])
    assert np.array_equal(words.values, expected)
    assert words.steps == ("by word (largest over pieces)",)
    assert words.labels == ("[CLS]", "unbelievable", "cats", "[SEP]")
    assert words.strongest("unbelievable", 1)[0].activation == expected[1].max()
    halves = Unit("half", ("first", "second"), ((0, 1, 2), (3, 4, 5)), (False, False))
    assert np.array_equal(result.to(halves).values, np.stack([fired()[:3].max(0), fired()[3:].max(0)]))
    with pytest.raises(ValueError, match="Did you mean 'word'"):
        result.to("words")


def test_it_is_frozen_saved_and_restored(tmp_path):
    result = activations(error=np.linspace(0.1, 0.6, 6), provenance={"options": {"site": "x"}}, warning="cut")
    with pytest.raises(AttributeError, match="immutable"):
        result.d_sae = 3
    with pytest.raises(ValueError, match="read-only"):
        result.values[0, 0] = 1
    assert copy.deepcopy(result) is result
    for again in (
        pickle.loads(pickle.dumps(result)),
        aw.load(result.save(tmp_path / "features.safetensors")),
        aw.load(result.save(tmp_path / "features")),
    ):
        assert np.array_equal(again.values, result.values)
        assert np.array_equal(again.error, result.error)
        assert again.to("word").labels == result.to("word").labels
        assert (again.warning, again.trace_id, again.provenance) == (
            "cut",
            result.trace_id,
            result.provenance,
        )


@pytest.mark.slow
def test_it_is_opened_again_without_torch(tmp_path):
    path = activations().save(tmp_path / "features.safetensors")
    opening = f"import attnwidgets as aw, sys; aw.load({str(path)!r}).strongest(2)"
    probe = f"{opening}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_it_has_a_picture_and_a_view():
    result = activations()
    assert result.figure().axes
    assert "image/png" in result._repr_mimebundle_() | result._png()
    assert type(result.view()).__name__ == "FeatureStrip"
    assert activations(np.zeros((6, 9))).view().selection.feature == 0


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (np.zeros((5, 9)), {}, "5 rows, but the axis has 6 elements by token"),
        (np.zeros(9), {}, r"shape \(9,\); expected \[token, feature\]"),
        (np.full((6, 2), np.nan), {}, "values holds 12 values that are NaN"),
        (np.zeros((6, 2)), {"error": np.zeros(5)}, r"error has shape \(5,\)"),
        (np.zeros((6, 2)), {"unit": "line"}, "unit 'line' is not on the axis"),
    ],
)
def test_what_does_not_fit_is_named(values, options, message):
    with pytest.raises(ValueError, match=message):
        activations(values, **options)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("cat", "token 'cat' is neither a label of this text nor .* Did you mean 'cats'"),
        (6, "token 6 is out of range"),
        (True, "integer"),
    ],
)
def test_tokens_that_are_not_there_are_named(token, message):
    with pytest.raises((ValueError, IndexError, TypeError), match=message):
        activations().strongest(token)
    with pytest.raises(ValueError, match="'b' is at 1, 2; give one of these numbers"):
        aw.results.FeatureActivations(np.ones((3, 2)), axis=["a", "b", "b"]).strongest("b")
    with pytest.raises(ValueError, match="k must be at least 1"):
        activations().strongest(1, k=0)


# -- of a trace --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traced():
    model, tokenizer = tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece()
    return aw.trace(model, tokenizer, "the unbelievable cat sat.")


@pytest.mark.parametrize("layer", [0, 1])
def test_activations_are_those_of_the_traces_own_states(traced, layer):
    sae = made.sae(d_in=32, site=f"blocks.{layer}.hook_resid_post")
    result = aw.sae_features(traced, sae)
    with torch.no_grad():
        hidden = traced.model(**traced.inputs, output_hidden_states=True).hidden_states[layer + 1][0]
    assert result.shape == (len(traced.tokens), 20)
    assert result.labels == traced.tokens
    np.testing.assert_allclose(result.values, sae.encode(hidden).numpy(), atol=1e-6)
    missed = (hidden - sae(hidden)).norm(dim=-1) / hidden.norm(dim=-1)
    np.testing.assert_allclose(result.error, missed.numpy(), rtol=1e-4)
    lecture = aw.sae_features(traced, sae, activation="lecture")
    np.testing.assert_allclose(
        lecture.values, result.values * sae.W_dec.norm(dim=-1).numpy(), rtol=1e-5, atol=1e-6
    )
    assert "SAE features (lecture)" in lecture.title
    assert result.trace_id == traced.id
    assert result.provenance["options"]["site"] == sae.site


def test_words_of_the_trace_are_words_of_its_features(traced):
    result = aw.sae_features(traced, made.sae(d_in=32, site="blocks.0.hook_resid_post")).to("word")
    assert "unbelievable" in result.labels


def test_heads_and_hidden_units_are_sites_as_well(traced):
    for site, width in (("blocks.1.attn.hook_z", 32), ("blocks.1.mlp.hook_post", 37)):
        result = aw.sae_features(traced, made.sae(d_in=width), site=site)
        assert result.shape == (len(traced.tokens), 20)


def test_of_two_stacks_the_sites_own_tokens_are_taken():
    tokenizer = tiny.wordpiece()
    trace = aw.trace(tiny.build(tiny.SEQ2SEQ["T5"]), tokenizer, "the cat sat.", target_text="new york")
    sae = made.sae(d_in=32)
    for side in ("encoder", "decoder"):
        result = aw.sae_features(trace, sae, site=f"{side}.1.hook_resid_post")
        assert result.stack == side
        assert result.labels == trace.axes(side)[0].tokens
    with pytest.raises(UnsupportedModelError, match="pass the stack they belong to"):
        aw.sae_features(trace, sae, site="encoder.1.hook_resid_post", stack="decoder")


def test_live_objects_are_taken(traced):
    state = {
        name: tensor
        for name, tensor in made.weights(32).items()
        if name in ("W_enc", "W_dec", "b_enc", "b_dec")
    }
    config = {"architecture": "standard", "metadata": {"hook_name": "blocks.0.hook_resid_post"}}
    kind = type("SAE", (), {"__module__": "sae_lens", "state_dict": lambda _: state, "W_enc": 0})
    there = kind()
    there.cfg = type("Config", (), {"to_dict": lambda _: dict(config)})()
    ours = aw.sae_features(traced, made.sae(d_in=32, site="blocks.0.hook_resid_post"))
    assert np.array_equal(aw.sae_features(traced, there).values, ours.values)


def test_the_model_comes_back_as_it_was(traced):
    traced.model.train()
    hooks = [dict(module._forward_hooks) for module in traced.model.modules()]
    first = aw.sae_features(traced, made.sae(d_in=32, site="blocks.0.hook_resid_post"))
    again = aw.sae_features(traced, made.sae(d_in=32, site="blocks.0.hook_resid_post"))
    assert np.array_equal(first.values, again.values)  # no dropout
    assert traced.model.training
    assert hooks == [dict(module._forward_hooks) for module in traced.model.modules()]
    traced.model.eval()


def test_what_cannot_be_encoded_is_refused(traced):
    with pytest.raises(
        ValueError, match=r"width 8, but 'blocks.1.hook_resid_post' of BertForMaskedLM is 32 wide"
    ):
        aw.sae_features(traced, made.sae(site="blocks.1.hook_resid_post"))
    with pytest.raises(ValueError, match="block 5 does not exist in BertForMaskedLM, which has 2"):
        aw.sae_features(traced, made.sae(d_in=32, site="blocks.5.hook_resid_post"))
    with pytest.raises(TypeError, match="not a trace"):
        aw.sae_features([traced], made.sae())
    with pytest.raises(TypeError, match=r"opened with aw.SAE.from_pretrained"):
        aw.sae_features(traced, "some/folder")
    given_ = aw.from_attentions(np.full((1, 1, 1, 3, 3), 1 / 3), list("abc"))
    with pytest.raises(UnsupportedModelError, match="this trace has no model"):
        aw.sae_features(given_, made.sae())


def test_a_decoders_first_token_is_not_ranked():
    model = tiny.build(lambda: tiny._plain("GPT2", "LMHeadModel", initializer_range=0.3))
    trace = aw.trace(model, None, [17, 9, 30, 22, 9])
    result = aw.sae_features(trace, made.sae(d_in=32, site="blocks.0.hook_resid_post"))
    assert result.skips_first
    largest = result.values[1:].max(axis=0)
    assert {item.feature: item.activation for item in result.ranked(99)} == {
        int(j): float(largest[j]) for j in np.flatnonzero(largest)
    }
    everywhere = result.values.max(axis=0)
    assert len(result.ranked(99, special=True)) == (everywhere > 0).sum()
