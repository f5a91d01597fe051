"""Correlation with derivatives by layer: against Jacobians by autograd and scipy's rho."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import attnwidgets as aw
from attnwidgets.evaluate import layer_correlation
from attnwidgets.evaluate.metrics.correlation import derivatives
from tests.tracing.families import FAMILIES


@pytest.fixture(scope="module")
def bert() -> Any:
    return FAMILIES["BERT"].traced(torch.float64)


def jacobians(trace: Any, row: int) -> list[np.ndarray]:
    """Return ||d h_row / d e_j times e_j||_F of every layer [token], by torch's Jacobian."""
    layers = trace.model.bert.encoder.layer
    start = trace.model.bert.embeddings(trace.inputs["input_ids"]).detach()

    def through(count: int) -> Any:
        def run(states: torch.Tensor) -> torch.Tensor:
            for layer in layers[:count]:
                result = layer(states)
                states = result[0] if isinstance(result, tuple) else result
            return states[0, row]

        return run

    return [
        (torch.autograd.functional.jacobian(through(count), start)[:, 0] * start[0])
        .square()
        .sum((0, 2))
        .sqrt()
        .numpy()
        for count in range(1, len(layers) + 1)
    ]


def test_the_reference_is_the_jacobian_and_rho_is_scipys(bert: Any) -> None:
    card = layer_correlation(bert, ["globenc", "rollout"])
    assert card.metrics == ("spearman",)
    expected = jacobians(bert, 0)
    maps = {"globenc": aw.globenc(bert), "rollout": aw.rollout(bert)}
    for layer, norms in enumerate(expected):
        np.testing.assert_allclose(derivatives(bert, [0])[layer][0], norms, rtol=1e-6)
        for method, result in maps.items():
            rho = spearmanr(result.layer(layer)[0], norms).statistic
            assert card.of(method)[0, 0, layer] == pytest.approx(rho)


def test_rows_are_those_of_hidden_token_attribution(bert: Any) -> None:
    attributed = aw.hidden_token_attribution(bert, times_input=True, normalize=False)
    for layer in range(2):
        np.testing.assert_allclose(
            derivatives(bert, [2, 5])[layer], attributed.layer(layer)[[2, 5]], rtol=1e-5
        )
    given = layer_correlation(
        bert, "globenc", row=3, reference=("hidden_token_attribution", {"times_input": True})
    )
    np.testing.assert_allclose(given.mean, layer_correlation(bert, "globenc", row=3).mean, atol=1e-12)
    itself = layer_correlation(
        bert, {"same": ("hidden_token_attribution", {"times_input": True})}, row="each"
    )
    np.testing.assert_allclose(itself.mean, 1)


def test_a_decoder_ranks_what_its_row_can_see() -> None:
    trace = FAMILIES["GPT-2"].traced(torch.float64)
    last = layer_correlation([trace, trace], "attention", row=-1)
    assert last.n_examples == 2
    assert np.isfinite(last.mean).all()
    first = layer_correlation(trace, "attention", row=0)
    assert np.isnan(first.mean).all()
    assert "fewer than two sources" in first.warning


def test_bad_input_is_named(bert: Any) -> None:
    with pytest.raises(ValueError, match="traces is empty"):
        layer_correlation([])
    with pytest.raises(ValueError, match="row must be 'each' or the number"):
        layer_correlation(bert, row=99)
    with pytest.raises(ValueError, match=r"traces\[1\] has"):
        layer_correlation([bert, aw.trace(*aw.demo_model("encoder"), "Hi")], "attention")
