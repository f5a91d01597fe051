"""A lecture's example by hand: the closed form, in every way it can be given."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import attnwidgets as aw

TOKENS = ["the", "cat", "sat"]
E = [[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 2.0], [1.0, 1.0, 1.0, 1.0]]
W_Q = [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]
W_K = [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]
W_V = [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]


def softmax(scores):
    """Rows of a list of lists, by the definition."""
    powers = [[math.exp(s) for s in row] for row in scores]
    return np.array([[p / sum(row) for p in row] for row in powers])


def by_hand(scale=3**-0.5, mask=None):
    """softmax(scale q.k + mask), loop by loop."""
    q, k = np.array(E) @ np.array(W_Q), np.array(E) @ np.array(W_K)
    scores = [
        [scale * sum(a * b for a, b in zip(q[i], k[j], strict=True)) for j in range(3)] for i in range(3)
    ]
    if mask is not None:
        scores = [[s if mask[i][j] else -math.inf for j, s in enumerate(row)] for i, row in enumerate(scores)]
    return softmax(scores)


def test_the_closed_form():
    trace = aw.from_qkv(E, W_Q, W_K, W_V, tokens=TOKENS)
    assert trace.dtype == "float64"
    assert trace.tokens == ("the", "cat", "sat")
    np.testing.assert_allclose(trace.attention_layer(0)[0], by_hand(), rtol=1e-12)
    values = np.array(E) @ np.array(W_V)
    np.testing.assert_allclose(trace.values[0], values, rtol=1e-12)
    np.testing.assert_allclose(trace.head_outputs[0], by_hand() @ values, rtol=1e-12)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_and_tensors_do_as_well(kind, dtype):
    given = [kind(np.array(x, dtype=dtype)) for x in (E, W_Q, W_K)]
    trace = aw.from_qkv(*given)
    assert trace.dtype == dtype
    np.testing.assert_allclose(
        trace.attention_layer(0)[0], by_hand(), rtol=1e-5 if dtype == "float32" else 1e-12
    )


@pytest.mark.parametrize(
    "mask",
    [
        "causal",
        np.tri(3, dtype=bool),
        np.tri(3, dtype=int),
        [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
        torch.ones(3, 3).tril().bool(),
        np.where(np.tri(3), 0.0, -np.inf),
    ],
)
def test_a_mask_in_any_way_it_is_written(mask):
    trace = aw.from_qkv(E, W_Q, W_K, mask=mask)
    np.testing.assert_allclose(trace.attention_layer(0)[0], by_hand(mask=np.tri(3)), rtol=1e-12)
    assert trace.is_causal()


def test_scale_is_the_factor_on_the_scores():
    trace = aw.from_qkv(E, W_Q, W_K, scale=1.0)
    np.testing.assert_allclose(trace.attention_layer(0)[0], by_hand(scale=1.0), rtol=1e-12)


def test_heads_take_their_columns_in_order():
    draw = np.random.default_rng(0).normal
    embedded, query, key, value = draw(size=(5, 6)), draw(size=(6, 8)), draw(size=(6, 8)), draw(size=(6, 4))
    both = aw.from_qkv(embedded, query, key, value, heads=2)
    assert both.n_heads() == 2
    assert tuple(both.head_outputs.shape) == (2, 5, 2)
    for head, (qk, v) in enumerate([(slice(0, 4), slice(0, 2)), (slice(4, 8), slice(2, 4))]):
        alone = aw.from_qkv(embedded, query[:, qk], key[:, qk], value[:, v])
        np.testing.assert_allclose(both.attention_layer(0)[head], alone.attention_layer(0)[0], rtol=1e-12)
        np.testing.assert_allclose(both.head_outputs[head], alone.head_outputs[0], rtol=1e-12)


def test_what_is_given_is_copied():
    embedded = torch.eye(3, dtype=torch.float64)
    trace = aw.from_qkv(embedded, torch.eye(3), torch.eye(3), embedded)
    embedded.fill_(7.0)
    assert trace.values[0].tolist() == torch.eye(3).tolist()


def test_it_is_a_trace_like_another():
    trace = aw.from_qkv(E, W_Q, W_K, mask="causal", tokens=TOKENS)
    np.testing.assert_allclose(aw.attention(trace).layer(0)[0], by_hand(mask=np.tri(3)), rtol=1e-12)
    rolled = aw.rollout(trace).layer(0)
    np.testing.assert_allclose(rolled, 0.5 * np.eye(3) + 0.5 * by_hand(mask=np.tri(3)), rtol=1e-12)
    assert aw.statistics.head_statistics(trace)["diagonal"].shape == (1, 1)
    with pytest.raises(ValueError, match="runs the model again, but this trace has no model"):
        aw.value_zeroing(trace)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"W_q": [[1, 0], [0, 1]]}, r"W_q has 2 rows, and E has 4 columns.*E \[3, 4\], W_q \[2, 2\]"),
        ({"W_k": np.ones((4, 2))}, "W_q and W_k must have the same shape"),
        (
            {"W_v": np.ones((4, 3)), "W_q": np.ones((4, 4)), "W_k": np.ones((4, 4)), "heads": 2},
            "W_v has 3 columns",
        ),
        ({"heads": 0}, "heads must be a number of heads"),
        ({"heads": 2}, "W_q has 3 columns, which 2 heads cannot share"),
        ({"tokens": ["a"]}, "tokens has 1 entries, and E has 3 rows"),
        ({"E": [1.0, 2.0]}, r"E has shape \(2,\)"),
        ({"E": [[math.nan, 0, 0, 0]]}, "E holds numbers that are not finite"),
        ({"scale": math.inf}, "scale must be a finite number"),
        ({"scale": "1"}, "scale must be a finite number"),
        ({"mask": "casual"}, "Did you mean 'causal'"),
        ({"mask": np.ones((2, 3), dtype=bool)}, r"mask has shape \(2, 3\)"),
        ({"mask": np.tri(3)}, "mask holds 0.0 and 1.0: pass mask == 1"),
        ({"mask": np.tri(3, k=-1, dtype=bool)}, "mask lets query 0 read nothing"),
        ({"mask": np.full((3, 3), np.nan)}, "NaN"),
    ],
)
def test_what_does_not_fit_is_said_with_all_shapes(change, words):
    given = {"E": E, "W_q": W_Q, "W_k": W_K} | change
    with pytest.raises(ValueError, match=words):
        aw.from_qkv(given.pop("E"), given.pop("W_q"), given.pop("W_k"), given.pop("W_v", None), **given)


V_A = [0.5, -1.0, 2.0]


def additive_by_hand(scale=1.0, mask=None):
    """softmax(scale v . tanh(q + k)), loop by loop (Bahdanau et al. 2015, appendix A.1.2)."""
    q, k = np.array(E) @ np.array(W_Q), np.array(E) @ np.array(W_K)
    scores = [
        [scale * sum(v * math.tanh(a + b) for v, a, b in zip(V_A, q[i], k[j], strict=True)) for j in range(3)]
        for i in range(3)
    ]
    if mask is not None:
        scores = [[s if mask[i][j] else -math.inf for j, s in enumerate(row)] for i, row in enumerate(scores)]
    return softmax(scores)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_additive_scores_are_the_closed_form(kind):
    trace = aw.from_qkv(E, W_Q, W_K, W_V, score="additive", v_a=kind(V_A), tokens=TOKENS)
    rtol = 1e-6 if kind is torch.tensor else 1e-12  # a tensor of Python numbers is float32
    np.testing.assert_allclose(trace.attention_layer(0)[0], additive_by_hand(), rtol=rtol)
    values = np.array(E) @ np.array(W_V)
    np.testing.assert_allclose(trace.head_outputs[0], additive_by_hand() @ values, rtol=rtol)
    masked = aw.from_qkv(E, W_Q, W_K, score="additive", v_a=kind(V_A), mask="causal", scale=0.5)
    np.testing.assert_allclose(masked.attention_layer(0)[0], additive_by_hand(0.5, np.tri(3)), rtol=rtol)
    assert masked.is_causal()


def test_additive_heads_take_their_weights_in_order():
    draw = np.random.default_rng(1).normal
    embedded, query, key, weights = draw(size=(4, 5)), draw(size=(5, 6)), draw(size=(5, 6)), draw(size=6)
    both = aw.from_qkv(embedded, query, key, heads=2, score="additive", v_a=weights)
    for head, part in enumerate([slice(0, 3), slice(3, 6)]):
        alone = aw.from_qkv(embedded, query[:, part], key[:, part], score="additive", v_a=weights[part])
        np.testing.assert_allclose(both.attention_layer(0)[head], alone.attention_layer(0)[0], rtol=1e-12)
    rows = both.attention_rows(0, [1], [2, 0])
    np.testing.assert_array_equal(rows[0], both.attention_layer(0)[1][[2, 0]])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"score": "aditive"}, "Did you mean 'additive'"),
        ({"score": "additive"}, "v_a is missing"),
        ({"v_a": V_A}, "v_a is for score='additive', and score is 'dot'"),
        ({"score": "additive", "v_a": [1.0, 2.0]}, r"v_a has 2 numbers, and W_q has 3 columns.*W_q \[4, 3\]"),
        ({"score": "additive", "v_a": [V_A]}, r"v_a has shape \(1, 3\), and must be a vector"),
        ({"score": "additive", "v_a": 1.0}, r"v_a has shape \(\), and must be a vector"),
        ({"score": "additive", "v_a": []}, r"v_a has shape"),
        ({"score": "additive", "v_a": [1.0, math.nan, 2.0]}, "v_a holds numbers that are not finite"),
    ],
)
def test_what_additive_scores_lack_is_said(change, words):
    with pytest.raises(ValueError, match=words):
        aw.from_qkv(E, W_Q, W_K, **change)


def test_weights_of_additive_scores_that_are_no_numbers_are_named():
    with pytest.raises(TypeError, match="v_a is not a numeric array"):
        aw.from_qkv(E, W_Q, W_K, score="additive", v_a=["a", "b", "c"])


def test_what_is_no_array_is_named():
    with pytest.raises(TypeError, match="W_k is not a numeric array"):
        aw.from_qkv(E, W_Q, [["a", "b"]])


def test_what_heads_write_needs_values():
    with pytest.raises(ValueError, match="pass W_v"):
        _ = aw.from_qkv(E, W_Q, W_K).head_outputs


def recurrence(states, rule, beta, decay, scale=1.0):
    """The outputs of a head, by the state after every token."""
    query, key, value = (np.array(E) @ np.array(weights) for weights in states)
    state = np.zeros((value.shape[1], key.shape[1]))
    outputs = []
    for q, k, v, b, d in zip(query, key, value, beta, decay, strict=True):
        state = d * state
        state = state + (np.outer(v, k) if rule == "linear" else b * np.outer(v - state @ k, k))
        outputs.append(scale * state @ q)
    return np.array(outputs)


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("linear", {}),
        ("linear", {"decay": [1.0, 0.5, 0.9]}),
        ("delta", {"beta": 0.2}),
        ("delta", {"beta": [0.1, 0.2, 0.3], "decay": 0.9}),
    ],
)
def test_a_rule_gives_the_outputs_of_its_recurrence(rule, options):
    trace = aw.from_qkv(E, W_Q, W_K, W_V, rule=(rule, options), scale=0.25, tokens=TOKENS)
    beta, decay = (np.broadcast_to(options.get(name, 1.0), 3) for name in ("beta", "decay"))
    expected = recurrence((W_Q, W_K, W_V), rule, beta, decay, 0.25)
    np.testing.assert_allclose(trace.head_outputs[0], expected, rtol=1e-12)
    kernel = aw.mixing(trace, "kernel").matrix(0, 0)
    np.testing.assert_allclose(kernel @ (np.array(E) @ np.array(W_V)), expected, rtol=1e-12)


def test_a_delta_rule_of_three_tokens_by_hand():
    # The third key is the first again: it replaces three quarters of the stored value.
    trace = aw.from_qkv(np.eye(2)[[0, 1, 0]], np.eye(2), np.eye(2), np.eye(2), rule=("delta", {"beta": 0.75}))
    np.testing.assert_allclose(
        aw.mixing(trace, "kernel").matrix(0, 0), [[0.75, 0, 0], [0, 0.75, 0], [0.75 * 0.25, 0, 0.75]]
    )
    assert aw.Explorer(trace).describe().count("delta rule")
    with pytest.raises(ValueError, match=r"rule='delta' mixes tokens by a state; aw\.mixing"):
        aw.attention(trace)
    with pytest.raises(ValueError, match="rollout needs"):
        aw.rollout(trace)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rule": "hebb"}, "rule"),
        ({"rule": "delta", "W_v": None}, "W_v is missing: rule='delta' writes values"),
        ({"rule": "delta", "mask": np.eye(3)}, "leave mask and score out"),
        ({"rule": ("linear", {"beta": 0.5})}, "rule 'linear': option 'beta' is not one of 'decay'"),
        ({"rule": ("softmax", {"beta": 0.5})}, "rule 'softmax' takes no option 'beta', which is of 'delta'"),
        ({"rule": ("delta", {"beta": 3})}, "beta must be 0 to 2, not 3"),
        ({"rule": ("delta", {"decay": 0.0})}, "decay must be above 0 and at most 1, not 0.0"),
        (
            {"rule": ("delta", {"decay": [0.5, 0.5]})},
            r"decay has shape \(2,\), and must be a number or one for each",
        ),
    ],
)
def test_what_a_rule_does_not_have_is_named(options, words):
    with pytest.raises(ValueError, match=words):
        aw.from_qkv(E, W_Q, W_K, **({"W_v": W_V} | options))


@pytest.mark.parametrize("mask", [None, "causal", [[1, 0, 0], [0, 1, 1], [1, 1, 1]]])
def test_softmax_as_a_recurrence_ends_at_its_output(mask):
    trace = aw.from_qkv(E, W_Q, W_K, W_V, mask=mask)
    weights, values = trace.attention_layer(0)[0].numpy(), np.array(E) @ np.array(W_V)
    for query in range(3):
        running = trace.running(query)
        np.testing.assert_allclose(running.output[-1], trace.head_outputs[0, query], rtol=1e-12)
        # After every key it is the softmax over the keys so far.
        for key in range(3):
            some = weights[query, : key + 1]
            if some.any():
                np.testing.assert_allclose(
                    running.output[key], some @ values[: key + 1] / some.sum(), rtol=1e-12
                )
            else:
                assert np.isnan(running.output[key]).all()
        assert running.m[-1] == running.score.max()


def test_a_running_softmax_survives_scores_that_overflow():
    trace = aw.from_qkv(np.eye(2), np.eye(2), 2000 * np.eye(2), np.eye(2), scale=1.0)
    assert trace.running(1).output[-1].tolist() == [0, 1]
    with pytest.raises(IndexError, match="query 2 is out of range"):
        trace.running(2)
    with pytest.raises(ValueError, match="pass W_v"):
        aw.from_qkv(np.eye(2), np.eye(2), np.eye(2)).running(0)


def test_former_keywords_of_a_rule_warn_and_give_the_same() -> None:
    now = aw.from_qkv(E, W_Q, W_K, W_V, rule=("delta", {"beta": 0.5, "decay": 0.9}))
    with pytest.warns(DeprecationWarning, match=r"'beta', 'decay' belong in rule=\(\"delta\", \{"):
        former = aw.from_qkv(E, W_Q, W_K, W_V, rule="delta", beta=0.5, decay=0.9)
    np.testing.assert_array_equal(former.head_outputs, now.head_outputs)
    with (
        pytest.warns(DeprecationWarning, match="'beta' belong in rule"),
        pytest.raises(ValueError, match="rule 'softmax' takes no option 'beta'"),
    ):
        aw.from_qkv(E, W_Q, W_K, W_V, beta=0.5)
