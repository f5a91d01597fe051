"""Attention flow against the authors' numbers and flows that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from attnwidgets._errors import duration
from attnwidgets.explanations.mixing.attention_flow import LIMIT, attention_flow
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.tracing.recording.run import trace


def square(*layers, **options):
    values = np.asarray(layers, dtype=np.float32)
    return MixingMap(values, query=[f"t{i}" for i in range(values.shape[-1])], **options)


def random(n_layers, n, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(n), size=(n_layers, n))


def test_the_first_layer_is_its_own_capacity():
    weights = random(2, 5)
    result = attention_flow(square(*weights))
    assert np.allclose(result.layer(0), 0.5 * weights[0] + 0.5 * np.eye(5), atol=1e-6)


def test_a_flow_is_bounded_by_the_narrowest_cut():
    # Token 1 of the top reads 0 by 0.6 and 1 by 0.4; below, 0 reads itself only and 1 reads 0 by 0.3.
    upper, lower = [[1, 0], [0.6, 0.4]], [[1, 0], [0.3, 0.7]]
    result = attention_flow(square(lower, upper), residual_weight=0.0, normalize=False)
    assert np.allclose(result.layer(1), [[1, 0], [0.6 + 0.3, 0.4]], atol=1e-6)
    shares = attention_flow(square(lower, upper), residual_weight=0.0).layer(1)
    assert np.allclose(shares[1], [0.9 / 1.3, 0.4 / 1.3], atol=1e-6)


def test_equal_weights_stay_equal_and_identity_stays_identity():
    equal = np.full((3, 4, 4), 0.25)
    assert np.allclose(attention_flow(square(*equal), residual_weight=0.0).values, 0.25)
    assert np.allclose(attention_flow(square(*equal), residual_weight=1.0).values, np.eye(4))


def test_causal_maps_keep_their_triangle_and_heads_are_reduced():
    weights = np.tril(random(6, 5).reshape(2, 3, 5, 5))
    weights /= weights.sum(-1, keepdims=True)
    result = attention_flow(square(*weights))
    assert result.causal
    assert not np.triu(result.values, 1).any()
    assert np.allclose(result.values, attention_flow(square(*weights.mean(1))).values, atol=1e-6)


def test_words_can_be_asked_for_by_their_map(tiny_bert):
    given = trace(tiny_bert, None, [1, 5, 7, 9])
    assert attention_flow(given).shape == (2, 4, 4)
    assert attention_flow(given).provenance["options"]["of"] == "attention"


@pytest.mark.slow
def test_long_inputs_are_refused_with_an_estimate():
    n = LIMIT + 1
    long = square(*np.tile(np.eye(n), (2, 1, 1)))
    with pytest.raises(
        ValueError, match=rf"over {n} tokens takes about (a|\d+) (second|minute)s? for layer 1.*force=True"
    ):
        attention_flow(long)
    forced = attention_flow(square(np.eye(n)), force=True)
    assert np.array_equal(forced.layer(0), np.eye(n))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.01, "a second"), (80, "80 seconds"), (95, "2 minutes"), (7000, "2 hours"), (2e8, "2,315 days")],
)
def test_times_are_said_in_units_that_can_be_pictured(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (square(np.eye(2)), {"residual_weight": 1.5}, "residual_weight must be between 0 and 1, not 1.5"),
        (square([[1, -1], [0, 1]]), {}, "this map is signed"),
        (square(np.eye(2)), {"stack": "encoder"}, "stack=.encoder. was passed with a map of stack"),
        (square(*np.tile(np.eye(2), (3, 1, 1))).select(layer=[0, 2]), {}, "consecutive layers, not 0, 2"),
        (
            MixingMap(np.ones((1, 2, 3)), query=list("ab"), key=list("cde")),
            {},
            "from one sequence to another",
        ),
    ],
)
def test_wrong_input_is_named(given, options, message):
    with pytest.raises(ValueError, match=message):
        attention_flow(given, **options)
