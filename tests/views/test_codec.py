"""The browser sees the computed numbers, within the precision of a byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnwidgets.views.wire.reader import pool
from attnwidgets.views.wire.thumbnails import decode, encode, scale_of
from tests.examples import examples

MATRICES = arrays(
    np.float32,
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    elements=st.floats(0, 1, width=32, allow_subnormal=False),
)


@settings(max_examples=examples(60))
@given(MATRICES)
def test_shares_come_back_within_a_256th(values):
    data, codec = encode(values, scale=1.0)
    assert codec == "u8"
    assert len(data) == values.size
    assert np.abs(decode(data, codec, *values.shape, 1.0) - values).max() <= 1 / 255


@settings(max_examples=examples(60))
@given(MATRICES, st.floats(0.25, 1000))
def test_signed_values_keep_their_sign_and_size(values, peak):
    values = (values * 2 - 1) * np.float32(peak)
    scale = scale_of(values, stochastic=False)
    data, codec = encode(values, scale=scale, signed=True)
    back = decode(data, codec, *values.shape, scale)
    assert codec == "i8"
    assert np.abs(back - values).max() <= scale / 100
    assert not np.any(np.sign(back) * np.sign(values) < 0)


def test_real_attention_comes_back_within_0_0036_wherever_no_token_takes_nearly_all(minilm_trace):
    for layer in range(6):
        for head in minilm_trace.attention_layer(layer).numpy():
            data, codec = encode(head, scale=1.0)
            error = np.abs(decode(data, codec, *head.shape, 1.0) - head)
            assert error[head <= 0.84].max() <= 0.0036
            assert error.max() <= 0.0040  # the step between the two largest codes, halved


def test_small_weights_do_not_vanish():
    values = np.full((1, 400), 0.001, dtype=np.float32)
    data, codec = encode(values, scale=1.0)
    assert decode(data, codec, 1, 400, 1.0).min() > 0.0008


def test_causal_maps_take_half_a_byte_a_value():
    values = np.tril(np.random.default_rng(0).random((64, 64))).astype(np.float32)
    data, codec = encode(values, scale=1.0, causal=True)
    assert codec == "u8tri"
    assert len(data) == 64 * 65 // 2
    assert np.abs(decode(data, codec, 64, 64, 1.0) - values).max() <= 1 / 255


@pytest.mark.parametrize("shape", [(3, 5), (5, 3)])
def test_a_causal_flag_on_a_rectangle_loses_nothing(shape):
    values = np.full(shape, 0.25, dtype=np.float32)
    data, codec = encode(values, scale=1.0, causal=True)
    assert np.allclose(decode(data, codec, *shape, 1.0), values, atol=0.004)


def test_what_looks_ahead_is_kept_even_if_called_causal():
    values = np.tril(np.full((4, 4), 0.5, dtype=np.float32))
    values[0, 3] = 0.5
    data, codec = encode(values, scale=1.0, causal=True)
    assert decode(data, codec, 4, 4, 1.0)[0, 3] > 0.49


def test_values_that_are_no_numbers_do_not_break_a_tile():
    values = np.array([[np.nan, np.inf, -np.inf, 0.25]], dtype=np.float32)
    scale = scale_of(values, stochastic=False)
    data, codec = encode(values, scale=scale, signed=True)
    result = decode(data, codec, 1, 4, scale)[0]
    assert np.isnan(result).tolist() == [True, False, False, False]  # no number is no zero
    assert result[1:].tolist() == [0.25, -0.25, 0.25]


@settings(max_examples=examples(60))
@given(MATRICES, st.integers(1, 9), st.integers(1, 9))
def test_thumbnails_keep_the_peak(values, rows, cols):
    small = pool(values, min(rows, values.shape[0]), min(cols, values.shape[1]))
    assert small.max() == values.max()
    assert small.min() >= values.min()


def test_thumbnails_of_signed_maps_keep_the_strongest_of_either_sign():
    values = np.zeros((8, 8), dtype=np.float32)
    values[1, 1], values[6, 6] = -3.0, 2.0
    assert pool(values, 2, 2).tolist() == [[-3.0, 0.0], [0.0, 2.0]]
