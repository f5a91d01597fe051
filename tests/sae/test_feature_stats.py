from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.tracing import tiny

from . import made


@pytest.fixture(scope="module")
def plain(bert, sae):
    """Texts in order, cut by hand into windows of 18 tokens between [CLS] and [SEP]."""
    model, tokenizer = bert
    result = []
    for number, text in enumerate(made.CORPUS):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        for begin in range(0, len(ids), 18):
            cut = [2, *ids[begin : begin + 18], 3]
            with torch.no_grad():
                states = model(torch.tensor([cut]), output_hidden_states=True).hidden_states[2][0]
            result.append((number, begin, cut, sae.encode(states).numpy()))
    return result


def test_counts_are_those_of_a_plain_loop(stats, plain, sae):
    inside = np.concatenate([a[1:-1] for _, _, _, a in plain])
    assert stats.tokens == len(inside)
    assert stats.shape == (20,)
    np.testing.assert_allclose(stats.density, (inside > 0).mean(0), atol=2e-3)
    np.testing.assert_allclose(stats.maxima, inside.max(0), atol=1e-5)
    for j in range(20):
        feature = stats.feature(j)
        values = inside[:, j][inside[:, j] > 0]
        assert feature.count == pytest.approx(len(values), abs=1)
        assert sum(feature.histogram) == feature.count == sum(part.tokens for part in feature.intervals)
        if len(values):
            assert feature.mean == pytest.approx(values.mean(), rel=1e-2)
            assert feature.edges[-1] / 2 < feature.maximum <= feature.edges[-1]
    assert stats.dead == tuple(np.flatnonzero(inside.max(0) == 0))


def test_examples_are_real_places_of_the_corpus_by_their_ids(stats, plain):
    windows = {(number, begin): (cut, a) for number, begin, cut, a in plain}
    seen = 0
    for j in range(20):
        feature = stats.feature(j)
        for example in (*feature.top, *(e for part in feature.intervals for e in part.examples)):
            begin = example.place - example.place % 18
            cut, a = windows[example.text, begin]
            at = example.place - begin + 1
            low, high = max(at - 3, 0), min(at + 3, len(cut))
            assert list(example.ids) == cut[low:high]
            assert example.at == at - low
            assert example.activation == pytest.approx(a[at, j], abs=1e-5)
            np.testing.assert_allclose(example.activations, a[low:high, j], atol=1e-5)
            assert [tiny.WORDPIECE[i] for i in example.ids] == list(example.tokens)
            seen += 1
        for part in feature.intervals:
            assert all(part.low < e.activation <= part.high for e in part.examples)
    assert seen > 100


def test_the_top_examples_are_the_best_of_their_windows(stats, plain):
    for j in range(20):
        best = sorted((float(a[1:-1, j].max()) for _, _, _, a in plain if len(a) > 2), reverse=True)[:6]
        result = [example.activation for example in stats.feature(j).top]
        np.testing.assert_allclose(result, [value for value in best if value > 0], atol=1e-5)


def test_directions_and_companions_are_those_of_brute_force(stats, plain, sae):
    unit = torch.nn.functional.normalize(sae.W_dec, dim=-1)
    cosines = (unit @ unit.T).fill_diagonal_(-2)
    inside = np.concatenate([a[1:-1] for _, _, _, a in plain]) > 0
    together = inside.T.astype(int) @ inside.astype(int)
    for j in range(20):
        feature = stats.feature(j)
        assert [n.feature for n in feature.neighbours] == cosines[j].topk(5).indices.tolist()
        np.testing.assert_allclose(
            [n.cosine for n in feature.neighbours], cosines[j].topk(5).values, atol=1e-6
        )
        for companion in feature.companions:
            both, other = together[j, companion.feature], together[companion.feature, companion.feature]
            assert companion.share == pytest.approx(both / together[j, j], abs=0.02)
            assert companion.jaccard == pytest.approx(both / (together[j, j] + other - both), abs=0.02)
        shares = [companion.jaccard for companion in feature.companions]
        assert shares == sorted(shares, reverse=True)


def test_some_features_alone_count_the_same(bert, sae, stats):
    some = aw.feature_stats(
        *bert,
        sae,
        made.CORPUS,
        features=[7, 3],
        dashboard=aw.FeatureDashboard(window=(3, 2), examples=6),
        context=20,
    )
    assert some.features == (7, 3)
    assert some.feature(3).count == stats.feature(3).count
    assert some.feature(3).histogram == stats.feature(3).histogram
    near = [[n.feature for n in result.feature(7).neighbours] for result in (some, stats)]
    assert near[0] == near[1]  # of all features
    assert [e.ids for e in some.feature(7).top] == [e.ids for e in stats.feature(7).top]
    assert np.isnan(some.maxima[0])
    with pytest.raises(IndexError, match="feature 0 is out of range: there are features 7, 3"):
        some.feature(0)
    with pytest.raises(ValueError, match="lack some of these features"):
        aw.steer(bert[0], sae, [3, 4], 1.0, maximum=some)


def test_top_k_chooses_among_all_features_also_for_some(bert):
    sae = made.sae("topk", d_in=32, site=made.SITE)
    whole = aw.feature_stats(*bert, sae, made.CORPUS)
    some = aw.feature_stats(*bert, sae, made.CORPUS, features=[7, 3])
    assert [some.feature(j).count for j in (7, 3)] == [whole.feature(j).count for j in (7, 3)]


@pytest.mark.slow
def test_statistics_are_opened_again_without_the_model(stats, tmp_path):
    for path in (tmp_path / "stats.safetensors", tmp_path / "stats"):
        again = aw.load(stats.save(path))
        assert made.content(again) == made.content(stats)
        assert again.feature(4) == stats.feature(4)
    probe = (
        f"import attnwidgets as aw, sys; s = aw.load({str(tmp_path / 'stats')!r}); s.feature(19).top[0].ids; "
        "s.to_dataframe(); print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_names_are_kept_and_saved(stats, tmp_path):
    named = stats.named({4: "cats", 5: "towns"}).named({5: ""})
    assert named.names == {4: "cats"}
    assert stats.names == {}
    assert aw.load(named.save(tmp_path / "named")).feature(4).name == "cats"
    assert "feature 4 'cats'" in repr(named.feature(4))
    assert named.to_dataframe().set_index("feature").loc[4, "name"] == "cats"
    with pytest.raises(IndexError, match="feature 20"):
        stats.named({20: "none"})


def test_chunks_do_not_change_what_is_found(bert, sae, stats, monkeypatch):
    monkeypatch.setattr("attnwidgets.sae.corpus_statistics.counting._TOKENS", (25, 25))
    cut = aw.feature_stats(
        *bert, sae, made.CORPUS, dashboard=aw.FeatureDashboard(window=(3, 2), examples=6), context=20
    )
    assert [cut.feature(j).count for j in range(20)] == [stats.feature(j).count for j in range(20)]
    for j in range(20):
        assert sorted(e[5:] for e in cut.feature(j).top) == sorted(e[5:] for e in stats.feature(j).top)


@pytest.mark.parametrize("family", ["Llama", "GPT-2", "Gemma 2"])
def test_logit_effects_are_the_direction_read_by_norm_and_unembedding(family):
    model = tiny.build(tiny.TEXT[family])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", "ln_f.weight")):
                parameter.add_(0.5 * torch.randn_like(parameter))
    sae = made.sae(d_in=32, site="blocks.0.hook_resid_post")
    stats = aw.feature_stats(
        model, None, sae, [[5, 9, 11, 7], [8, 3, 2]], dashboard=aw.FeatureDashboard(logits=3)
    )
    norm = model.get_submodule({"GPT-2": "transformer.ln_f"}.get(family, "model.norm"))
    gain = norm.weight.detach() + (1 if family == "Gemma 2" else 0)
    d = sae.W_dec - (sae.W_dec.mean(-1, keepdim=True) if family == "GPT-2" else 0)
    effects = (d * gain) @ model.lm_head.weight.T.detach()
    for j in range(20):
        feature = stats.feature(j)
        best, worst = effects[j].topk(3), effects[j].topk(3, largest=False)
        assert [e.id for e in feature.promoted] == best.indices.tolist()
        assert [e.id for e in feature.suppressed] == worst.indices.tolist()
        np.testing.assert_allclose([e.effect for e in feature.promoted], best.values, rtol=1e-4)
        np.testing.assert_allclose([e.effect for e in feature.suppressed], worst.values, rtol=1e-4)
        assert feature.promoted[0].token == str(feature.promoted[0].id)


def test_without_an_unembedding_or_outside_the_stream_there_are_no_logit_effects(stats, bert):
    assert stats.feature(4).promoted == ()  # more than a projection stands before BERT's logits
    inner = bert[0].bert
    bare = aw.feature_stats(inner, bert[1], made.sae(d_in=32, site=made.SITE), made.CORPUS[:3])
    assert bare.feature(4).promoted == ()
    llama = tiny.build(tiny.TEXT["Llama"])
    heads = aw.feature_stats(llama, None, made.sae(d_in=32, site="blocks.0.attn.hook_z"), [[5, 9, 11, 7]])
    assert heads.feature(4).suppressed == ()


def test_tokens_split_in_the_middle_of_a_character_are_spelled_together():
    llama, tokenizer = tiny.build(tiny.TEXT["Llama"]), tiny.byte_level()
    llama.resize_token_embeddings(len(tokenizer))
    sae = made.sae(d_in=32).replaced(b_enc=torch.full((20,), 3.0), site="blocks.0.hook_resid_post")
    stats = aw.feature_stats(
        llama, tokenizer, sae, ["the cat é sat"], dashboard=aw.FeatureDashboard(window=(4, 9))
    )
    whole = [example.tokens for j in range(20) for example in stats.feature(j).top]
    text = next(tokens for tokens in whole if "é" in tokens)
    assert text[text.index("é") + 1] == "⋯"  # the second byte of the character


def test_the_first_token_of_a_decoder_does_not_count():
    llama = tiny.build(tiny.TEXT["Llama"])
    sae = made.sae(d_in=32).replaced(b_enc=torch.full((20,), 3.0), site="blocks.0.hook_resid_post")
    stats = aw.feature_stats(llama, None, sae, [[5, 9, 11, 7]])
    assert stats.tokens == 3
    assert {example.place for example in stats.feature(0).top} <= {1, 2, 3}


def test_the_model_comes_back_as_it_was(bert, sae):
    model, tokenizer = bert
    hooks = [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    model.train()
    with pytest.raises(made.StopError):
        aw.feature_stats(model, tokenizer, sae, made.interrupted(made.CORPUS, 4))
    assert model.training
    assert hooks == [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    model.eval()


def test_statistics_have_a_picture_and_a_table(stats):
    assert "image/png" in stats._png()
    assert (
        stats.figure().axes[0].get_title()
        == f"{20 - len(stats.dead)} of 20 features fired on {stats.tokens:,} tokens"
    )
    table = stats.to_dataframe()
    assert [row["token"] for row in stats.to_rows()] == table["token"].tolist()
    best = stats.feature(19).top[0]
    assert table["token"][19] == best.tokens[best.at]
    assert table["maximum"].tolist() == stats.maxima.tolist()
    assert "fires on" in repr(stats.feature(0))
    assert type(stats.view()).__name__ == "FeatureTable"


@pytest.mark.parametrize(
    ("texts", "options", "error", "message"),
    [
        ([], {}, ValueError, "no token that counts"),
        (["", " "], {}, ValueError, "no token that counts"),
        ("the cat", {}, ValueError, "a collection of texts, not one string"),
        (["the cat"], {"features": 20}, IndexError, "feature 20 is out of range"),
        (["the cat"], {"examples": 0}, ValueError, "examples must be at least 1"),
        (["the cat"], {"site": "blocks.7.hook_resid_post"}, ValueError, "block 7 does not exist"),
        (["the cat"], {"site": "blocks.0.mlp.hook_post"}, ValueError, "width 32, but .* is 37 wide"),
        (["the cat"], {"context": 2}, ValueError, "leaves no room"),
    ],
)
def test_what_cannot_be_counted_is_refused(bert, sae, texts, options, error, message):
    with pytest.raises(error, match=message):
        aw.feature_stats(*bert, sae, texts, **options)


def test_names_are_given_in_place_and_saved(stats, tmp_path):
    mine = stats.named({})
    mine.rename({3: "cats", 4: "new york"})
    mine.rename({4: ""})
    assert mine.names == {3: "cats"}
    assert stats.names == {}
    assert mine.feature(3).name == "cats"
    assert aw.load(mine.save(tmp_path / "stats")).names == {3: "cats"}
    with pytest.raises(IndexError, match="feature 20 is out of range"):
        mine.rename({3: "dogs", 20: "none"})
    assert mine.names == {3: "cats"}


def test_the_loudest_features_come_first_and_dead_ones_never(stats):
    order = stats.loudest(50)
    assert set(order) == set(range(20)) - set(stats.dead)
    assert list(stats.maxima[list(order)]) == sorted(stats.maxima[list(order)], reverse=True)
    assert stats.loudest(3) == order[:3]
    best = stats.strongest_tokens()
    assert [best[j] is None for j in range(20)] == [j in stats.dead for j in range(20)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda arrays, _: arrays.update(features=arrays["features"] + 1000),
            "'features' refers to unknown features or tokens",
        ),
        (
            lambda arrays, _: arrays.update({"top.ids": arrays["top.ids"] - 7}),
            "'top.ids' refers to unknown features or tokens",
        ),
        (lambda arrays, _: arrays.update(count=arrays["count"][1:]), "'count' has shape"),
        (lambda arrays, _: arrays.update(suppressed=arrays["near"]), "'suppressed.effect' is missing"),
        (lambda _, facts: facts.update(before=99), "the examples do not fit"),
        (lambda _, facts: facts.pop("pieces"), "'pieces' of 'facts' of the description is None"),
        (lambda _, facts: facts.update(tokens="many"), "'tokens' of 'facts' of the description is 'many'"),
    ],
)
def test_statistics_that_someone_changed_are_refused(stats, tmp_path, change, says):
    import json

    from safetensors.numpy import load_file, save_file

    folder = stats.save(tmp_path / "stats")
    arrays = load_file(folder / "values.safetensors")
    described = json.loads((folder / "explanation.json").read_text())
    change(arrays, described["facts"])
    save_file(arrays, folder / "values.safetensors")
    (folder / "explanation.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match=f"{folder.name}.*{says}"):
        aw.load(folder)


def test_a_file_that_claims_any_number_of_features_takes_no_memory_for_them(stats, tmp_path):
    import json
    import tracemalloc

    folder = stats.save(tmp_path / "stats")
    described = json.loads((folder / "explanation.json").read_text())
    described["facts"]["d_sae"] = 30_000_000
    (folder / "explanation.json").write_text(json.dumps(described))
    tracemalloc.start()
    try:
        aw.load(folder)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_former_keywords_work_and_say_where_they_belong(bert, sae, stats):
    with pytest.warns(
        DeprecationWarning, match=r"'examples', 'window' belong in dashboard=aw.FeatureDashboard"
    ):
        former = aw.feature_stats(*bert, sae, made.CORPUS, window=(3, 2), context=20, examples=6)
    assert former.provenance == stats.provenance
    np.testing.assert_array_equal(former.values, stats.values)
    with pytest.raises(ValueError, match="examples must be at least 1, not 0"):
        aw.FeatureDashboard(examples=0)
    with pytest.raises(TypeError, match=r"dashboard takes an aw\.FeatureDashboard, not 10"):
        aw.feature_stats(*bert, sae, made.CORPUS, dashboard=10)
