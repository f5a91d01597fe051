"""A WhyView by the features of an SAE: rows, sentences, its menu, and where an Explorer has an SAE."""

from __future__ import annotations

import types

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.base import expressions
from attnwidgets.views.circuits.why_view import WhyView
from tests.sae import made
from tests.tracing.families import FAMILIES

from .test_why_view import answer, said

SITE = "blocks.0.hook_resid_post"
SITES = {"T5": "encoder.block.0"}
TEXT = "the animal did not cross the street because it was too tired ."


def sae_of(**options):
    return made.sae(**{"d_in": 32, "d_sae": 60, "site": SITE, **options})


@pytest.fixture(scope="module")
def animal():
    """A trace, an SAE of the input of layer 3, and its statistics."""
    model, tokenizer = aw.demo_model("encoder")
    sae = made.fitted(model, tokenizer, "blocks.2.hook_resid_post", rank=12)
    sae.metadata["exclude_special_tokens"] = True
    stats = aw.feature_stats(model, tokenizer, sae, [TEXT, "the dog was tired .", "a cat and a street ."])
    return aw.trace(model, tokenizer, TEXT), sae, stats


@pytest.mark.parametrize("family", ["Llama", "BERT", "T5"])
@pytest.mark.parametrize("foil", ["others", 1, None])
def test_rows_and_pairs_sum_and_what_no_feature_describes_has_rows_of_its_own(family, foil):
    trace = FAMILIES[family].traced()
    sae = sae_of(architecture="topk", k=8, site=SITES.get(family, SITE))
    why = aw.why(trace, 6, 2, layer=1, head=1, by=sae, foil=foil)
    shown = answer(WhyView(why))
    pairs = np.array(shown["pairs"])
    for axis, side, shares in ((1, "asks", why.asks), (0, "offers", why.offers)):
        rows = shown[side]
        # Each number is sent with seven digits.
        np.testing.assert_allclose(pairs.sum(axis), [row["value"] for row in rows], rtol=1e-5, atol=2e-5)
        assert sum(row["value"] for row in rows) == pytest.approx(why.pairs.sum(), abs=2e-5)
        by_name = {row["name"]: row for row in rows}
        error = by_name["not described (error)"]
        assert (error["kind"], error["value"]) == ("error", pytest.approx(shares[-2], rel=1e-5))
        # A term that all keys share drops out of a contrast where no norm divides it.
        same = by_name.get("same for every token", {"value": 0.0, "kind": "constant"})
        assert same["kind"] == "constant"
        assert same["value"] == pytest.approx(shares[-3] + shares[-1], rel=1e-5, abs=1e-5)
        features = [row for row in rows if row["kind"] == "part"]
        assert [row["name"] for row in features] == [f"feature {row['feature']}" for row in features]
        assert len(features) == 6
        [rest] = [row for row in rows if row["kind"] == "rest"]
        assert rest["name"].endswith(" other features")
    assert shown["grid"]["names"] == []
    numbers = [f"{value:+.2f}".replace("-", "−") for value in why.described]
    assert all(number in shown["more"] for number in numbers)
    assert f"60 features of {sae.site}" in shown["about"]


def test_features_are_named_in_rows_in_the_sentence_and_in_removals(animal):
    trace, sae, stats = animal
    view = aw.why(trace, "it", "animal", layer=3, head=1, by=sae, stats=stats).view()
    shown = answer(view)
    first = max((row for row in shown["asks"] if row["kind"] == "part"), key=lambda row: row["value"])
    assert first["name"] == stats.called(first["feature"]) != ""
    assert said(shown).startswith(f"“it” asks with {first['name']}")
    assert ", then " in said(shown)
    assert "feature " not in said(shown)
    named = view.why().without(3)
    assert shown["removals"][0]["parts"] == [stats.called(int(part.split()[1])) for part in named.parts]
    assert shown["removals"][0]["after"] == pytest.approx(named.after)
    assert "fire most" in shown["about"]
    assert "; ".join(shown["removals"][0]["parts"]) in view.describe()


def test_an_sae_that_scales_each_token_says_so():
    sae = sae_of(normalize_activations="layer_norm")
    shown = answer(WhyView(aw.why(FAMILIES["Llama"].traced(), 6, 2, layer=1, head=1, by=sae)))
    assert {row["name"] for row in shown["asks"]} >= {"decoder bias and constant", "not described (error)"}
    assert "same for every token" not in shown["more"]


def test_parts_are_chosen_among_words_components_and_features(animal):
    trace, sae, stats = animal
    why = aw.why(trace, "it", "animal", layer=3, head=1)
    assert WhyView(why).options["kinds"] == ["word", "component"]
    view = why.view(sae=sae, stats=stats)
    assert view.options["kinds"] == ["word", "component", "feature"]
    by_feature = aw.why(trace, "it", "animal", layer=3, head=1, by=sae, stats=stats, foil="others")
    np.testing.assert_array_equal(view.why("feature").pairs, by_feature.pairs)
    assert by_feature.view().options["kinds"] == view.options["kinds"]
    assert by_feature.view().why("component").total == pytest.approx(why.total)
    assert len({row["name"] for row in answer(by_feature.view(), by="word")["asks"]}) > 3
    by_token = aw.why(trace, "it", "animal", layer=3, head=1, by="token").view()
    assert by_token.options["kinds"] == ["token", "word", "component"]


def test_another_cell_of_the_layer_is_split_and_one_of_another_layer_is_refused_in_words(animal):
    trace, sae, stats = animal
    view = aw.why(trace, "it", "animal", layer=3, head=1, by=sae, stats=stats).view()
    view.selection.pinned = (9, 7)
    expected = aw.why(trace, 9, 7, layer=3, head=1, by=sae, stats=stats)
    assert answer(view)["total"] == expected.total
    assert view.why().foil == expected.foil == "words"
    with pytest.raises(ValueError, match=r"reads 'blocks.2.hook_resid_post'; head 4.1 reads"):
        answer(view, layer=4)


def test_python_names_the_sae(animal, monkeypatch):
    trace, sae, stats = animal
    view = aw.why(trace, "it", "animal", layer=3, head=1, by=sae, stats=stats).view()
    names = {"aw": aw, "trace": trace, "sae": sae}
    monkeypatch.setattr(expressions, "running_shell", lambda: types.SimpleNamespace(user_ns=names))
    args = next(view._expressions())
    code = view.requests.answer("expression", args)[0]["code"]
    assert code == "aw.why(trace, 9, 2, layer=3, head=1, by=sae).total"
    assert eval(code, {}, names) == pytest.approx(view.why().total)
    code = view.requests.answer("expression", args | {"foil": "others"})[0]["code"]
    assert code == "aw.why(trace, 9, 2, layer=3, head=1, by=sae, foil='others').total"


def test_an_explorer_offers_features_where_it_has_an_sae_of_what_the_head_reads(animal):
    trace, sae, stats = animal
    args = {"stack": "self", "layer": 3, "head": 1, "query": 9, "key": 2}
    other = made.sae(d_in=384, site="blocks.4.hook_resid_post")
    for given, counted, has in (
        (sae, stats, True),
        ([other, sae], None, True),
        (other, None, False),
        (aw.sae_features(trace, sae), stats, False),
        (None, None, False),
    ):
        explorer = aw.Explorer(trace, features=given, stats=counted)
        explorer.requests.answer("below", args)
        [below] = explorer.inner
        assert ("feature" in below.options["kinds"]) == has
        if has:
            shown = answer(below, by="feature")
            row = next(row for row in shown["offers"] if row["feature"] is not None)
            name = stats.called(row["feature"]) if counted is not None else f"feature {row['feature']}"
            assert row["name"] == name
        explorer.close()


def test_the_figure_has_the_grey_rows(animal, tmp_path):
    trace, sae, stats = animal
    view = aw.why(trace, "it", "animal", layer=3, head=1, by=sae, stats=stats).view()
    written = view.save(tmp_path / "why.svg").read_text()
    for words in ("not described (error)", "same for every token", "Features × features", "fire most"):
        assert words in written
