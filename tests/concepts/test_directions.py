"""Directions without labels: to their definitions, and open in the views of features."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw


@pytest.fixture(scope="module")
def clouds() -> Any:
    """Three clouds of states [example, dim], and the cloud of each."""
    rng = np.random.default_rng(0)
    which = rng.integers(0, 3, 150)
    return 6 * np.eye(12)[[1, 4, 9]][which] + rng.normal(size=(150, 12)) + 2, which


def encoded(directions: Any, values: Any) -> Any:
    with torch.no_grad():
        return directions.encode(torch.tensor(values, dtype=torch.float32)).numpy()


def test_principal_components_reconstruct_as_much_as_they_must(clouds) -> None:
    values, _ = clouds
    result = aw.concepts.directions(values, 3, method="pca", site="blocks.0.hook_resid_post")
    spectrum = np.linalg.svd(values - values.mean(0), compute_uv=False) ** 2
    assert result.metadata["explained"] == pytest.approx(spectrum[:3].sum() / spectrum.sum(), abs=1e-3)
    active = encoded(result, values)
    assert active.shape == (150, 6)
    assert (active >= 0).all()
    assert not (active[:, :3] * active[:, 3:]).any()  # never both signs
    assert aw.concepts.directions(values, 12, method="pca").metadata["explained"] == pytest.approx(
        1, abs=1e-6
    )


def test_the_active_cluster_is_the_nearest(clouds) -> None:
    pytest.importorskip("sklearn")
    values, which = clouds
    active = encoded(aw.concepts.directions(values, 3, method="kmeans"), values)
    assert ((active > 0).sum(1) == 1).all()
    pairs = set(zip(which.tolist(), active.argmax(1).tolist(), strict=True))
    assert len(pairs) == 3


def test_parts_are_found_with_their_sign(clouds) -> None:
    pytest.importorskip("sklearn")
    values, which = clouds
    result = aw.concepts.directions(values, 3, method="nmf")
    active = encoded(result, values)
    strongest = [active[which == cloud].mean(0).argmax() for cloud in range(3)]
    assert sorted(strongest) == [0, 1, 2]
    for cloud, axis in enumerate([1, 4, 9]):
        assert result.W_dec[strongest[cloud]].argmax() == axis
    assert result.metadata["explained"] > 0.4


def test_without_scikit_learn_it_is_said_what_to_install(clouds, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.decomposition", None)
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    for method in ("nmf", "kmeans"):
        with pytest.raises(ModuleNotFoundError, match=r"attnwidgets\[concepts\].*method='pca'"):
            aw.concepts.directions(clouds[0], 3, method=method)


@pytest.mark.slow
def test_they_open_where_features_do() -> None:
    model, tokenizer = aw.demo_model("classifier")
    texts = [each.text for each in aw.demo_texts("train")[:12]]
    states = aw.concepts.states(model, tokenizer, texts, layers=[0, 3, 6], at="tokens")
    result = aw.concepts.directions(states, 4, method="pca", layer=3)
    assert result.site == "blocks.2.hook_resid_post"
    assert aw.concepts.directions(states, 4, method="pca", layer=0).site == "blocks.0.hook_resid_pre"
    assert aw.concepts.directions(states, 4, method="pca", layer=-1).site == "blocks.5.hook_resid_post"
    trace = aw.trace(model, tokenizer, texts[0])
    features = aw.sae_features(trace, result)
    row = features.values[1:-1]
    expected = encoded(result, states.layer(3)[: len(row)])
    np.testing.assert_allclose(row, expected, atol=1e-4)
    stats = aw.feature_stats(model, tokenizer, result, texts, dashboard=aw.FeatureDashboard(examples=3))
    assert stats.shape == (8,)
    table, panel = aw.FeatureTable(stats), aw.FeaturePanel(stats)
    assert table.stats[0] is stats
    assert panel.stats[0] is stats


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        (np.zeros((5, 4)), {"count": 9}, "from 1 to 4"),
        (np.zeros((5, 4)), {"method": "nfm"}, "Did you mean 'nmf'"),
        (np.zeros(5), {}, r"must be \[example, dim\]"),
        (np.full((5, 4), np.nan), {"count": 2}, "NaN"),
    ],
)
def test_bad_input_is_refused(values, options, said) -> None:
    with pytest.raises(ValueError, match=said):
        aw.concepts.directions(values, **options)
