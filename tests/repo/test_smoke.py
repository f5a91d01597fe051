"""The least that must work with every Python and every version of the dependencies: `make test-matrix`."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw


@pytest.mark.slow
def test_given_numbers_become_maps_views_files_and_pages(tmp_path):
    rows = np.random.default_rng(0).dirichlet(np.ones(5), (3, 2, 5)).astype(np.float32)
    trace = aw.from_attentions(rows, ["a", "black", "cat", "sat", "."])
    rollout = aw.rollout(trace)
    np.testing.assert_allclose(rollout.values.sum(-1), 1, atol=1e-5)
    saved = aw.load(rollout.save(tmp_path / "rollout.safetensors"))
    np.testing.assert_array_equal(saved.values, rollout.values)
    kinds = (aw.Explorer, aw.Heatmap, aw.HeadGrid, aw.HeadView, aw.FlowView, aw.LayerSlider)
    views = [*(kind(trace) for kind in kinds), aw.TokenStrip(saved), aw.views.CompareView([saved, rollout])]
    views[0].selection.layer = 2
    assert views[1].selection.layer == 2
    page = aw.to_html(views, tmp_path / "page.html").read_text()
    assert all(kind.__name__ in page for kind in kinds)
    for view in views:
        data, _ = view._repr_mimebundle_()
        assert {"application/vnd.jupyter.widget-view+json", "text/plain"} <= set(data)
        assert ("image/png" in data) == (view.name != "LayerSlider")
        view.close()


@pytest.mark.slow
def test_a_real_model_is_traced_shown_and_run_again_without_a_head(minilm, tmp_path):
    trace = aw.trace(*minilm, "The black cat sat on the mat.")
    for measure in (aw.attention, aw.rollout, aw.value_zeroing, aw.alti):
        values = np.asarray(measure(trace).values)
        assert values.shape[0] == 6, measure.__name__
        np.testing.assert_allclose(values.sum(-1), 1, atol=1e-3, err_msg=measure.__name__)
    attributions = aw.lrp(aw.trace(*aw.demo_model("classifier"), "A wonderful film."))
    assert attributions.labels[np.argmax(attributions.values)] == "wonderful"
    without = trace.rerun(aw.ablate_heads(trace, {3: [1]}))
    assert np.abs(np.asarray(aw.attention(without).values - aw.attention(trace).values))[4:].max() > 1e-3
    explorer = aw.Explorer(trace)
    assert "mat" in explorer.to_html(tmp_path / "explorer.html").read_text()
    explorer.close()
