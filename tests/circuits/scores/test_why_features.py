"""Scores by the features of an SAE, and words of several tokens as query or key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.sae import made
from tests.tracing.families import FAMILIES, IDS

from .test_why import contrast

SITE = "blocks.0.hook_resid_post"  # the input of heads of layer 1
TEXT = "the animal did not cross the street because it was too tired ."
KINDS = [
    {"architecture": "standard"},
    {"architecture": "topk"},
    {"architecture": "topk", "rescale_acts_by_decoder_norm": True},
    {"architecture": "jumprelu", "normalize_activations": "constant_norm_rescale"},
    {"architecture": "gated", "normalize_activations": "layer_norm"},
    {"architecture": "standard", "centre": True, "apply_b_dec_to_input": False},
]


def sae_of(**options: Any) -> aw.SAE:
    return made.sae(**{"d_in": 32, "d_sae": 60, "site": SITE, **options})


@pytest.fixture(scope="module")
def minilm() -> tuple[Any, Any, aw.SAE]:
    model, tokenizer = aw.demo_model("encoder")
    sae = made.fitted(model, tokenizer, "blocks.2.hook_resid_post", rank=12)
    return model, tokenizer, sae


@pytest.mark.parametrize("options", KINDS, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("family", ["BERT", "Qwen3", "GPT-NeoX"])
def test_features_bias_and_error_sum_to_what_attention_says(family: str, options: dict[str, Any]) -> None:
    trace = FAMILIES[family].traced()
    sae = sae_of(**options)
    for foil in ("others", "row", 5):
        why = aw.why(trace, 6, 2, layer=1, head=1, by=sae, foil=foil)
        assert why.total == pytest.approx(contrast(trace, why, "self"), abs=1e-5)
        assert why.parts[-3:] == ("decoder bias", "error", "constant")
        assert why.described is not None
        assert sum(why.described) == pytest.approx(why.total - sum(why.given.values()), abs=1e-9)
        assert why.described.features != 0 != why.described.error


@pytest.mark.parametrize("options", KINDS, ids=lambda options: "-".join(map(str, options.values())))
def test_features_and_the_bias_sum_to_the_reconstruction(options: dict[str, Any]) -> None:
    sae, h = sae_of(**options), made.states(d_in=32)
    a = sae.encode(h)
    added = sae.added(h, a, range(60))
    np.testing.assert_allclose(added.sum(0), sae.decode(a, h), atol=1e-5)
    for feature in (0, 7, 59):
        alone = sae.change(h, [feature], a[:, [feature]])
        np.testing.assert_allclose(added[feature], alone, atol=1e-6)
    np.testing.assert_array_equal(sae.added(h, a, [7])[0], added[7])


@pytest.mark.parametrize("foil", ["others", "words", "row", "street", None])
def test_pairs_of_features_are_those_of_plain_code(minilm: Any, foil: str | None) -> None:
    """A post-norm block reads its input as it is: every part times W_Q and W_K, in float64."""
    model, tokenizer, sae = minilm
    trace = aw.trace(model, tokenizer, TEXT)
    query, key = (list(trace.tokens).index(word) for word in ("it", "animal"))
    why = aw.why(trace, "it", "animal", layer=3, head=1, by=sae, foil=foil)
    inputs = tokenizer(TEXT, return_tensors="pt")
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**inputs, output_hidden_states=True, output_attentions=True)
    x, weights = output.hidden_states[3][0].double(), output.attentions[3][0, 1, query].double()
    encoder = model.encoder.layer[3].attention.self
    W_enc, W_dec, b_enc, b_dec = (
        getattr(sae, name).double() for name in ("W_enc", "W_dec", "b_enc", "b_dec")
    )
    a = torch.relu((x - b_dec) @ W_enc + b_enc)

    others = weights.clone()
    others[key] = 0
    words = others.clone()
    words[[0, len(x) - 1]] = 0
    street = torch.zeros_like(weights)
    street[list(trace.tokens).index("street")] = 1
    row = torch.full_like(weights, 1 / len(x))
    foils = {"others": others / others.sum(), "words": words / words.sum(), "row": row, "street": street}
    foil_weights = foils[foil] if foil else torch.zeros_like(weights)

    size = model.config.hidden_size // model.config.num_attention_heads
    head = slice(size, 2 * size)
    W_Q, W_K = (linear.weight.double().T[:, head] for linear in (encoder.query, encoder.key))
    b_Q, b_K = (linear.bias.double()[head] for linear in (encoder.query, encoder.key))
    involved = [query, key, *foil_weights.nonzero().flatten().tolist()]
    active = [f for f in range(sae.d_sae) if (a[involved, f] > 0).any()]
    described: torch.Tensor = a[:, active].T[..., None] * W_dec[active][:, None] + torch.zeros_like(x)
    parts = torch.cat([described, b_dec.expand(1, *x.shape), (x - b_dec - described.sum(0))[None]])
    q = torch.cat([parts[:, query] @ W_Q, b_Q[None]])
    k = torch.cat([parts @ W_K, b_K.expand(1, len(x), size)])
    k = k[:, key] - torch.einsum("t,ptd->pd", foil_weights, k)
    assert why.parts == (*(f"feature {f}" for f in active), "decoder bias", "error", "constant")
    # Activations and states are those of single precision.
    np.testing.assert_allclose(why.pairs, (q @ k.T / size**0.5).detach(), atol=2e-5)


def test_only_features_of_the_tokens_that_are_compared_are_parts() -> None:
    trace = FAMILIES["Llama"].traced()
    sae = sae_of(architecture="topk", k=3)
    fired = aw.sae_features(trace, sae)
    for query, key, foil in ((6, 2, 4), (6, 2, "others"), (3, 1, "others")):
        why = aw.why(trace, query, key, layer=1, head=1, by=sae, foil=foil)
        tokens = {query, key, foil} if isinstance(foil, int) else range(query + 1)
        active = sorted({item.feature for token in tokens for item in fired.strongest(token, 60)})
        assert why.parts[:-3] == tuple(f"feature {feature}" for feature in active)


def test_an_sae_without_special_tokens_compares_with_words(minilm: Any) -> None:
    model, tokenizer, sae = minilm
    trace = aw.trace(model, tokenizer, TEXT)
    assert aw.why(trace, "it", "animal", layer=3, head=1, by=sae).foil == "others"
    told = sae.replaced(metadata={"exclude_special_tokens": True})
    assert aw.why(trace, "it", "animal", layer=3, head=1, by=told).foil == "words"
    others = aw.why(trace, "it", "animal", layer=3, head=1, by=told, foil="others")
    assert others.foil == "others"
    share = others.foil_weights[[0, -1]].sum()
    assert f"not trained, are {share:.0%} of the foil" in others.warning
    for by, foil in ((told, "auto"), (sae, "others"), ("component", "others")):
        assert aw.why(trace, "it", "animal", layer=3, head=1, by=by, foil=foil).warning == ""
    assert aw.why(trace, "it", "animal", layer=3, head=1).foil == "others"


@pytest.mark.parametrize(
    "site", ["blocks.0.hook_resid_post", "blocks.1.hook_resid_pre", "model.layers.0", "model.layers.1.input"]
)
def test_every_name_of_what_the_head_reads_is_taken(site: str) -> None:
    why = aw.why(FAMILIES["Llama"].traced(), 6, 2, layer=1, head=1, by=sae_of(site=site))
    assert why.described is not None


def test_an_sae_of_other_states_is_refused_by_name() -> None:
    trace = FAMILIES["Llama"].traced()
    for site in (
        "blocks.1.hook_resid_post",
        "blocks.0.hook_resid_mid",
        "blocks.0.hook_mlp_out",
        "hook_embed",
    ):
        with pytest.raises(ValueError, match=f"reads '{site}'; head 1.1 reads 'blocks.1.hook_resid_pre'"):
            aw.why(trace, 6, 2, layer=1, head=1, by=sae_of(site=site))
    with pytest.raises(ValueError, match=r"head 0.1 reads 'blocks.0.hook_resid_pre'"):
        aw.why(trace, 6, 2, layer=0, head=1, by=sae_of())
    with pytest.raises(ValueError, match=r"set sae.site = 'blocks.1.hook_resid_pre'"):
        aw.why(trace, 6, 2, layer=1, head=1, by=sae_of(site=""))
    with pytest.raises(ValueError, match=r"wide"):
        aw.why(trace, 6, 2, layer=1, head=1, by=sae_of(d_in=8))
    with pytest.raises(TypeError):
        aw.why(trace, 6, 2, layer=1, head=1, by=3)


@pytest.mark.parametrize("family", ["Llama", "BERT"])
def test_attention_without_features_is_that_of_a_model_without_them(family: str) -> None:
    """Features are taken out of the projection's input, in the model's modules: the norm follows."""
    model = FAMILIES[family].model()
    trace = aw.trace(model, None, input_ids=IDS)
    sae = sae_of()
    why = aw.why(trace, 6, 2, layer=1, head=1, by=sae)
    if family == "Llama":
        block, read = model.model.layers[1], model.model.layers[1].input_layernorm
        queries, keys = block.self_attn.q_proj, block.self_attn.k_proj
    else:
        block, read = model.bert.encoder.layer[1], torch.nn.Identity()
        queries, keys = block.attention.self.query, block.attention.self.key
    written: dict[str, torch.Tensor] = {}
    block.register_forward_pre_hook(
        lambda _, args, kwargs: written.update(x=(*args, *kwargs.values())[0]), with_kwargs=True
    )
    model.set_attn_implementation("eager")
    for side, token, linear in (("key", 2, keys), ("query", 6, queries)):
        removal = why.without(2, side)
        with torch.no_grad():
            model(torch.tensor([IDS]))
            a = sae.encode(written["x"][0])
            features = [int(name.split()[1]) for name in removal.parts]
            assert (a[token, features] > 0).all()
            taken = a[:, features] @ sae.W_dec[features]
            replaced = linear(read(written["x"] - taken))

            def swap(_: Any, __: Any, output: Any, token: int = token, replaced: Any = replaced) -> Any:
                output[:, token] = replaced[:, token]
                return output

            handle = linear.register_forward_hook(swap)
            row = model(torch.tensor([IDS]), output_attentions=True).attentions[1][0, 1, 6]
            handle.remove()
        np.testing.assert_allclose(removal.row, row, atol=1e-6)
        assert removal.before == pytest.approx(why.attention)


def test_features_at_random_are_active_ones() -> None:
    """Without a feature that a token lacks, attention would stay as it is."""
    trace = FAMILIES["Llama"].traced()
    why = aw.why(trace, 6, 2, layer=1, head=1, by=sae_of(architecture="topk", k=4))
    assert len(why.parts) > 10
    for side in ("key", "query"):
        assert np.abs(why.without(1, side).random - why.attention).min() > 1e-6
        assert not set(why.without(1, side).parts) & {"decoder bias", "error"}
    assert why.without("error").parts == ("error",)
    assert abs(why.without(["decoder bias"]).after - why.attention) > 1e-6
    with pytest.raises(ValueError, match="more than are left"):
        why.without(why.parts[:-3])


def test_tokens_at_random_are_those_that_the_state_has() -> None:
    """Of a decoder, later tokens have no part in a state."""
    why = aw.why(FAMILIES["Llama"].traced(), 6, 2, layer=1, head=1, by="token")
    assert np.abs(why.without(1).random - why.attention).min() > 1e-6


def test_features_are_grouped_and_called_by_what_they_fire_on(minilm: Any) -> None:
    model, tokenizer, sae = minilm
    stats = aw.feature_stats(model, tokenizer, sae, [TEXT, "the dog was tired .", "a cat and a street ."])
    trace = aw.trace(model, tokenizer, TEXT)
    why = aw.why(trace, "it", "animal", layer=3, head=1, by=sae, stats=stats)
    plain = aw.why(trace, "it", "animal", layer=3, head=1, by=sae)
    np.testing.assert_array_equal(why.pairs, plain.pairs)
    for name in why.parts[:-3]:
        number, _, tokens = name.removeprefix("feature ").partition(" (")
        top = stats.feature(int(number)).top
        strongest = list(dict.fromkeys(example.tokens[example.at] for example in top))[:3]
        assert tokens == f"{', '.join(strongest)})"
    kinds = why.to("kind")
    assert kinds.parts == ("features", "biases", "error")
    assert why.described is not None
    assert kinds.pairs[0, 0] == pytest.approx(why.described.features)
    assert kinds.pairs[2].sum() + kinds.pairs[:2, 2].sum() == pytest.approx(why.described.error)
    together = why.to(dict.fromkeys(why.parts[:2], "both"))
    assert together.offers[0] == pytest.approx(why.offers[:2].sum())
    assert sum(share.value for share in why.top(3, "offers")) == pytest.approx(why.total)
    with pytest.raises(ValueError, match='split by="component"'):
        why.to(2)
    stats.rename({int(why.parts[0].split()[1]): "animals"})
    renamed = aw.why(trace, "it", "animal", layer=3, head=1, by=sae, stats=stats)
    assert renamed.parts[0].endswith(" (animals)")
    assert "Pairs of two features make" in repr(why)


def test_statistics_of_another_sae_are_refused(minilm: Any) -> None:
    model, tokenizer, sae = minilm
    trace = aw.trace(model, tokenizer, TEXT)
    other = made.sae(d_in=384, d_sae=8, site=sae.site)
    stats = aw.feature_stats(model, tokenizer, other, [TEXT])
    with pytest.raises(ValueError, match="stats are of an SAE with 8 features; this one has 64"):
        aw.why(trace, "it", "animal", layer=3, head=1, by=sae, stats=stats)
    with pytest.raises(TypeError, match=r"stats must be the result of aw.feature_stats, not dict"):
        aw.why(trace, "it", "animal", layer=3, head=1, by=sae, stats={1: "one"})
    with pytest.raises(ValueError, match=r"stats name the features"):
        aw.why(trace, "it", "animal", layer=3, head=1, stats=stats)


def test_a_word_asks_with_its_last_token_and_offers_the_one_that_is_read_most(minilm: Any) -> None:
    model, tokenizer, _ = minilm
    trace = aw.trace(model, tokenizer, "A bewildering unputdownable thriller.")
    words = trace.axes("self")[0].units["word"]
    spans = dict(zip(words.labels, words.spans, strict=True))
    last = spans["bewildering"][-1]
    for layer, head in ((0, 1), (3, 1), (5, 7)):
        row = np.asarray(aw.attention(trace).layer(layer))[head, last]
        read = max(spans["unputdownable"], key=lambda token: row[token])
        why = aw.why(trace, "bewildering", "unputdownable", layer=layer, head=head)
        assert (why.query, why.key) == (last, read)
        assert f"'bewildering' is {len(spans['bewildering'])} tokens: it asks with the last" in why.warning
        assert f"'{trace.tokens[read]}' ({read})" in why.warning
        assert why.total == aw.why(trace, last, read, layer=layer, head=head).total
        foil = aw.why(trace, last, "thriller", layer=layer, head=head, foil="unputdownable").foil
        assert foil == read
    assert aw.why(trace, "thriller", "a", layer=3, head=1).warning == ""
    with pytest.raises(ValueError, match=r"neither a label"):
        aw.why(trace, "unputdown", "a", layer=3, head=1)
    twice = aw.trace(model, tokenizer, "unputdownable, and unputdownable.")
    with pytest.raises(ValueError, match=r"query 'unputdownable' is a word that ends at 4, 10"):
        aw.why(twice, "unputdownable", "and", layer=3, head=1)
