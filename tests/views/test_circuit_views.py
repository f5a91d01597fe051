"""PatchView, LensView and ClaimView: they send the results' numbers, and compute exactly."""

from __future__ import annotations

import csv
import io
import json
import re
import types

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.base import expressions
from attnwidgets.views.still.circuits import folded
from tests.circuits import made


@pytest.fixture(scope="module")
def pair():
    return made.induction()


@pytest.fixture(scope="module")
def both(pair):
    return aw.circuits.patch(*pair, "c", foil="a", how="both")


@pytest.fixture(scope="module")
def loaded(both, tmp_path_factory):
    path = both.denoise.save(tmp_path_factory.mktemp("patching") / "denoise.safetensors")
    return aw.load(path)


def asked(view, topic, **args):
    return view.requests.answer(topic, args)


def evaluated(view, monkeypatch, args, **names):
    """Return the code of Copy as Python, and its value in a reader's names."""
    namespace = {"aw": aw, "view": view, **names}
    monkeypatch.setattr(expressions, "running_shell", lambda: types.SimpleNamespace(user_ns=namespace))
    answer = view.requests.answer("expression", args)[0]
    assert answer["note"] == "", answer
    return answer["code"], eval(answer["code"], {}, namespace)


def test_a_patching_travels_whole_and_exactly(both):
    view = both.view()
    for result in both:
        meta, buffers = asked(view, "patching", direction=result.direction, estimate=False)
        json.dumps(meta, allow_nan=False)
        assert meta["gap"] == result.gap
        assert meta["cleanTokens"] == list(result.clean_tokens)
        assert (meta["first"], meta["differs"]) == (6, [6])
        for site, data in zip(meta["sites"], buffers, strict=True):
            np.testing.assert_array_equal(
                np.frombuffer(data, "<f4").reshape(2, -1), result.raw[site].astype("f4")
            )
    opened = view.requests.opening(150_000)
    assert b"patched_cells" in opened, "the first run travels with the view"


def test_it_opens_on_the_head_that_carries_most_and_moves_no_other_view(both, pair):
    other = aw.Heatmap(pair[0])
    opened = other.selection.layer, other.selection.head
    view = both.view()
    assert view.options["cells"] == [["head", 1, None, 0]]
    assert other.selection is view.selection, "it is linked with the views of the clean text"
    assert (other.selection.layer, other.selection.head) == opened
    both.view(cells=[("head", 0, None, 1)])
    aw.circuits.lens(pair[0], "c").view()
    assert (other.selection.layer, other.selection.head) == opened


def test_a_target_that_no_run_changes_opens_without_a_chosen_cell(pair):
    result = aw.circuits.patch(*pair, "d", foil="e")
    assert np.isnan(result.gap)
    view = result.view()
    assert view.options["cells"] == []
    assert view.describe().endswith("Shares are undefined.")
    view.close()


def test_a_clicked_cell_is_run_exactly_and_once(both, pair):
    view = both.view()
    runs = []
    hook = pair[0].model.register_forward_hook(lambda *_: runs.append(1))
    cells = [["state", 1, 6, None], ["head", 1, None, 0]]
    meta, _ = asked(view, "patched_cells", direction="noise", cells=cells)
    made_runs = len(runs)
    again, _ = asked(view, "patched_cells", direction="noise", cells=cells)
    hook.remove()
    assert again == meta
    assert len(runs) == made_runs
    exact = aw.circuits.patch_cells(*pair, [("state", 1, 6), ("head", 1, 0)], "c", foil="a", how="noise")
    assert (meta["share"], meta["before"], meta["after"]) == (exact.share, exact.before, exact.after)
    assert meta["now"][0][0] == "a", "the noised run answers as the corrupt text does"
    assert meta["was"][0][0] == "c"
    assert sum(p for _, p in meta["now"]) <= 1 + 1e-6


def test_patched_predictions_are_those_of_a_model_with_the_activations_set(pair):
    clean, corrupt = pair
    result = aw.circuits.patch_cells(*pair, [("state", 1, 6)], "c", foil="a")
    with aw.circuits.set_activations(corrupt, "state", 1, clean, tokens=[6]):
        changed = corrupt.rerun()
    expected = {prediction.id: prediction.probability for prediction in changed.predictions(9)}
    assert result.predictions
    for prediction in result.predictions:
        assert prediction.probability == pytest.approx(expected[prediction.id], abs=1e-6)


def test_what_is_missing_is_computed_and_then_held(both, pair):
    result = aw.circuits.patch(*pair, "c", foil="a", sites="head")
    view = result.view()
    assert view.options["held"] == [["denoise", False]]
    meta, (data,) = asked(view, "more_patching", direction="noise", estimate=False)
    assert meta["sites"] == ["head"]
    np.testing.assert_array_equal(
        np.frombuffer(data, "<f4").reshape(2, 2), both.noise.raw["head"].astype("f4")
    )
    assert view.options["held"] == [["denoise", False], ["noise", False]]
    estimate, _ = asked(view, "more_patching", direction="denoise", estimate=True)
    assert estimate["checked"], "an estimate is never shown without checked places"


def test_a_loaded_patching_is_shown_and_says_what_it_cannot_run(loaded, both):
    view = loaded.view()
    assert not view.options["runs"]
    assert "patched_cells" not in {topic for topic, *_ in view.requests.for_page()}
    with pytest.raises(ValueError, match="loaded without its traces"):
        asked(view, "patched_cells", direction="denoise", cells=[["head", 1, None, 0]])
    with pytest.raises(ValueError, match="pass the other result in others="):
        view.patching("noise")
    assert aw.views.PatchView(loaded, others=[both.noise]).patching("noise") is both.noise


def test_code_returns_the_number_that_is_shown(both, pair, monkeypatch):
    view = both.view(cells=[("state", 1, 6), ("head", 1, 0)])
    clean, corrupt = pair
    share = {"of": "share", "direction": "noise", "estimate": False, "cells": [["head", 1, None, 0]]}
    code, value = evaluated(view, monkeypatch, share, noise=both.noise)
    assert (code, value) == ("noise.heads[1, 0].item()", both.noise.heads[1, 0])
    code, value = evaluated(view, monkeypatch, share)
    assert code.startswith("view.patching('noise')")
    assert value == both.noise.heads[1, 0]
    several = {"of": "share", "direction": "denoise", "estimate": False, "cells": view.options["cells"]}
    code, value = evaluated(view, monkeypatch, several, clean=clean, corrupt=corrupt)
    assert code.startswith("aw.circuits.patch_cells(clean, corrupt, [('state', 1, 6), ('head', 1, 0)]")
    assert value == pytest.approx(view.share())


def test_a_claim_is_written_that_can_be_checked(both, pair, monkeypatch):
    view = both.view()
    args = {"of": "claim", "layer": 1, "head": 0}
    code, claims = evaluated(view, monkeypatch, args, model=pair[0].model, tokenizer=pair[0].tokenizer)
    assert "head 1.0 moves changed to last" in code
    assert claims.result().verdict == "undecided", "one pair decides nothing"
    assert claims.result().mean == pytest.approx(both.denoise.heads[1, 0])


def test_a_claim_of_two_places_is_about_the_head_between_them(both, pair, monkeypatch):
    view = both.view(cells=[("state", 1, 6), ("attention", 1, 11)])
    assert not [expression for expression in view._expressions() if expression["of"] == "claim"], "one layer"
    view = both.view(cells=[("attention", 1, 11), ("state", 0, 6)])
    (args,) = [expression for expression in view._expressions() if expression["of"] == "claim"]
    names = {"model": pair[0].model, "tokenizer": pair[0].tokenizer}
    code, claims = evaluated(view, monkeypatch, args, **names)
    assert "head 1.0 moves changed to last" in code
    assert claims.result().mean == pytest.approx(both.denoise.heads[1, 0])
    args = {"of": "claim", "cells": [["state", 0, 7, None], ["attention", 1, 10, None]]}
    code, claims = evaluated(view, monkeypatch, args, **names)
    assert "head 1.0 attends from later to earlier" in code, "the texts are the same there"
    assert (claims.result().texts[0].source, claims.result().texts[0].target) == ((10,), (7,))


def test_a_role_is_a_word_of_the_text_or_places_in_it(pair):
    from attnwidgets.circuits.claims.writing import role_entry
    from attnwidgets.views.circuits.circuit_view import between

    tokenizer, text = pair[0].tokenizer, "fadebcfadeb"
    assert role_entry(tokenizer, text, (6,)) == "c"
    assert role_entry(tokenizer, text, (7,)) == [(6, 7)], "the second f"
    assert role_entry(tokenizer, text, (1, 6)) == [(0, 1), (5, 6)]
    states = aw.circuits.patch(*pair, "c", foil="a", sites="state")
    with pytest.raises(LookupError, match="heads were not patched"):
        between(states, [("state", 0, 6, None), ("state", 1, 11, None)])
    with pytest.raises(LookupError, match="a later one in a later layer"):
        between(states, [("state", 1, 6, None), ("state", 0, 11, None)])


def test_its_table_and_its_words_are_the_results(both):
    view = both.view()
    rows = list(csv.DictReader(io.StringIO(asked(view, "csv", method="attention")[0])))
    assert len(rows) == 2 * (3 * 2 * 12 + 4)
    heads = {(row["result"], row["layer"], row["head"]): float(row["share"]) for row in rows if row["head"]}
    assert heads["denoise", "1", "0"] == both.denoise.heads[1, 0]
    assert "head 1.0 1.00" in view.describe()


@pytest.mark.parametrize(
    ("cells", "error"),
    [([("head", 1)], ValueError), ([("heads", 1, 0)], ValueError), ([("head", 1, 2)], IndexError),
     ([("state", 2, 0)], IndexError), ([("mlp", 0, 12)], IndexError)],
)  # fmt: skip
def test_cells_that_are_not_there_are_refused(both, cells, error):
    with pytest.raises(error, match=r"cells are|out of range"):
        both.view(cells=cells)


def test_results_of_other_kinds_or_texts_are_refused(both, pair):
    with pytest.raises(TypeError, match=r"the result of aw\.circuits\.patch"):
        aw.views.PatchView(pair[0])
    other = aw.circuits.patch(*pair, "c", foil="b", sites="head")
    with pytest.raises(ValueError, match="different foil"):
        aw.views.PatchView(both, others=[other])
    with pytest.raises(TypeError, match=r"the result of aw\.circuits\.lens"):
        aw.views.LensView(pair[0])
    with pytest.raises(TypeError, match=r"the result of claim\.check"):
        aw.views.ClaimView(both.denoise)


def test_a_lens_travels_whole(pair):
    lens = aw.circuits.lens(pair[0], "c", top=3)
    meta, buffers = asked(lens.view(), "lens", fitted=False, answer=None)
    assert (meta["layers"], meta["k"]) == (2, 3)
    for name, data in zip(("probability", "entropy", "kl"), buffers, strict=False):
        np.testing.assert_array_equal(np.frombuffer(data, "<f4").reshape(3, 12), getattr(lens, name))
    np.testing.assert_array_equal(np.frombuffer(buffers[3], "<i4").reshape(3, 12), lens.rank)
    names = np.array(meta["labels"])[np.frombuffer(buffers[4], "<i4")].reshape(3, 12, 3)
    top = lens.top_tokens(layer=[1], token=[4])[0][0]
    assert names[1, 4].tolist() == [item.label for item in top]
    ids = np.frombuffer(buffers[5], "<i4").reshape(3, 12, 3)
    assert ids[1, 4].tolist() == [item.id for item in top]


def test_another_answer_and_the_plain_lens_are_read_when_asked(pair, monkeypatch):
    model, tokenizer = pair[0].model, pair[0].tokenizer
    texts = ["fadebcfadeb", "cgaehdcgaeh", "hbdfaghbdfa", "gcfbdegcfbd"]
    translator = aw.circuits.fit_translator(model, tokenizer, texts)
    view = aw.circuits.lens(pair[0], "c", translator=translator).view()
    assert (view.options["fitted"], view.options["kinds"]) == (True, [False, True])
    meta, _ = asked(view, "more_lens", fitted=False, answer=None)
    assert meta["answer"] == "c"
    plain = aw.circuits.lens(pair[0], "a")
    meta, buffers = asked(view, "more_lens", fitted=False, answer=plain.answer_id)
    assert meta["answer"] == "a"
    np.testing.assert_array_equal(np.frombuffer(buffers[3], "<i4").reshape(3, 12), plain.rank)
    args = {
        "of": "lens",
        "measure": "rank",
        "fitted": False,
        "answer": plain.answer_id,
        "row": 2,
        "token": 11,
    }
    _, value = evaluated(view, monkeypatch, args)
    assert value == plain.rank[2, 11]
    topics = [topic for topic, *_ in view.requests.for_page()]
    assert {"lens", "more_lens"} <= set(topics), "a page holds both lenses"


def test_a_loaded_lens_is_shown_and_computes_nothing(pair, tmp_path):
    lens = aw.load(aw.circuits.lens(pair[0], "c").save(tmp_path / "lens.safetensors"))
    view = lens.view()
    assert view.options["kinds"] == [False]
    with pytest.raises(ValueError, match="loaded without its trace"):
        view.lens(answer=1)


def test_a_page_holds_weights_only_beside_a_view_of_them(both, pair, tmp_path):
    def matrices(*views):
        text = aw.to_html(views, tmp_path / "page.html").read_text(encoding="utf-8")
        state = json.loads(re.search(r'id="aw-state">(.*?)</script>', text)[1])
        stores = [
            model["state"]["header"] for model in state["models"].values() if "header" in model["state"]
        ]
        sent = [tile for header in stores for tile in header["tiles"]]
        return len(sent) + sum(len(tiles) for tiles in state["archive"].values())

    lens = aw.circuits.lens(pair[0]).view()
    assert matrices(both.view(), lens) == 0
    assert matrices(lens, aw.Heatmap(pair[0])) > 2


def test_rows_are_folded_before_the_answer_rises():
    ranks = np.array([*range(30, 6, -1), *([0] * 7)])
    rows = folded(31, ranks, 19)
    assert rows == [*range(0, 24, 2), *range(24, 31)]
    assert folded(12, ranks, 24) == list(range(12))
    assert len(folded(200, np.arange(200), 20)) <= 20


def test_claims_travel_with_their_limits(pair):
    model, tokenizer = pair[0].model, pair[0].tokenizer
    texts = ["fadebcfadeb", "cgaehdcgaeh", "hbdfaghbdfa"]
    said = ["head 1.0 is induction", "head 1.1 is induction"]
    report = aw.circuits.check_claims(model, tokenizer, said, texts)
    view = report.view(claim=said[1])
    assert view.options["claim"] == 1
    meta, _ = asked(view, "claims")
    json.dumps(meta, allow_nan=False)
    first, second = meta["claims"]
    assert (first["mean"], first["head"], first["values"]) == (1.0, "1.0", [1.0] * 3)
    assert second["mean"] == pytest.approx(0, abs=1e-9)
    assert second["below"] == 3
    assert first["heads"][0][1][0][:2] == [1, 1]
    assert view.result().claim == said[1]
    assert "head 1.0 is induction" in view.describe()
    with pytest.raises(ValueError, match="Did you mean"):
        report.view(claim="head 1.0 is inductoin")


@pytest.fixture(scope="module")
def claimed(pair):
    """Reports of an observed and of a causal claim."""
    names = pair[0].model, pair[0].tokenizer
    texts = ["fadebcfadeb", "cgaehdcgaeh", "hbdfaghbdfa"]
    roles = {"late": r"(..)$", "early": "^."}
    said = ["head 1.1 attends from late to early", "head 1.0 is induction"]
    pairs = [("fadebcfadeb", "fadebafadeb", "c", "a"), ("cgaehdcgaeh", "cgaehbcgaeh")]
    moves = aw.circuits.claim("head 1.0 moves it to last")
    observed = aw.circuits.check_claims(*names, said, texts, roles=roles)
    return observed, moves.check(*names, pairs, roles={"it": r"^.{5}(.)"})


def test_a_text_opens_at_the_head_of_the_claim_with_its_cells_pinned(claimed):
    view = claimed[0].view()
    assert (view.options["opens"], view.opened) == ("below", None)
    below = view.open_text(1)
    assert isinstance(below, aw.Heatmap)
    assert below.trace.text == claimed[0].results[0].worst()[1].text
    assert (below.selection.layer, below.selection.head) == (1, 1)
    assert [tuple(cell) for cell in below.selection.pins] == [(10, 1), (11, 1)]
    assert view.options["inner"] == [{"name": "Heatmap", "model": f"anywidget:{below.model_id}", "parts": []}]
    along = aw.Explorer(below.trace)
    assert view.open_text(claim="head 1.0 is induction") is below, "the same view goes on"
    assert along.trace is below.trace
    assert (along.selection.head, along.selection.pins) == (0, ())
    assert view.options["opened"] == [1, 0]
    with pytest.raises(IndexError, match="texts 0 to 2 are listed"):
        view.open_text(3)
    view.close()
    assert below.comm is None
    assert view.opened is None
    view._repr_mimebundle_()
    assert view.options["inner"] == []


def test_a_pair_opens_as_patching_with_its_own_answers(claimed, monkeypatch):
    view = claimed[1].view()
    shown = view.open_text(0)
    assert isinstance(shown, aw.views.PatchView)
    assert shown.options["cells"] == [["head", 1, None, 0]]
    assert (shown.patching().clean, shown.trace.text) == (pytest.approx(10), "fadebcfadeb")
    assert [tuple(cell) for cell in shown.selection.pins] == [(11, 6)]
    code = view._data()[0]["claims"][0]["worst"][0][4]
    names = {"aw": aw, "model": claimed[1].model, "tokenizer": claimed[1].tokenizer}
    again = eval(code, names)
    assert (again.patching().target, again.patching().foil) == ("c", "a")
    assert again.options["cells"] == shown.options["cells"]


def test_a_text_opens_in_linked_views(claimed):
    names = claimed[0].model, claimed[0].tokenizer
    linked, beside = (aw.Explorer(trace) for trace in [aw.trace(*names, "abc")] * 2)
    view = claimed[0].view(linked=linked)
    assert view.open_text(0) is linked
    assert linked.trace.text == claimed[0].results[0].worst()[0].text
    assert beside.trace is linked.trace
    assert (beside.selection.layer, beside.selection.head) == (1, 1)
    assert [tuple(cell) for cell in beside.selection.pins] == [(10, 1), (11, 1)]
    assert view.inner == ()
    with pytest.raises(ValueError, match="give a view of a trace of that model"):
        claimed[0].view(linked=aw.Heatmap(aw.trace(*aw.zoo.dyck(), "(()")))
    with pytest.raises(TypeError, match="takes a view of a trace"):
        claimed[0].view(linked=aw.attention(linked.trace))


def test_a_report_that_was_read_says_what_it_lacks(claimed, tmp_path):
    loaded = aw.load(claimed[1].save(tmp_path / "claims.safetensors"))
    assert (loaded.model, loaded.tokenizer) == (None, None)
    assert loaded.results == claimed[1].results
    view = loaded.view()
    assert (view.options["opens"], "open" in view._all_handlers()) == ("", False)
    with pytest.raises(ValueError, match=r"holds no model; linked=aw\.Explorer\(trace\)"):
        view.open_text()
    linked = aw.Heatmap(aw.trace(claimed[1].model, claimed[1].tokenizer, "abc"))
    assert loaded.view(linked=linked).open_text().trace.text == claimed[1].results[0].worst()[0].text


def test_a_line_of_python_opens_a_text_with_its_cells(claimed):
    view = claimed[0].view()
    code = view._data()[0]["claims"][0]["worst"][2][4]
    names = {"aw": aw, "model": claimed[0].model, "tokenizer": claimed[0].tokenizer}
    shown = eval(code, names)
    assert shown.trace.text == claimed[0].results[0].worst()[2].text
    assert [tuple(cell) for cell in shown.selection.pins] == [(10, 1), (11, 1)]


def test_reports_save_to_a_page(claimed, tmp_path):
    page = claimed[0].save(tmp_path / "claims.html").read_text(encoding="utf-8")
    assert "head 1.1 attends from late to early" in page
    assert claimed[0].view().to_html(tmp_path / "view.html").stat().st_size == len(page.encode())
