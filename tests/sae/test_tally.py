from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnwidgets.sae.corpus_statistics import tally as exact_sums
from attnwidgets.sae.corpus_statistics.summary import BINS, INTERVALS, NONE, Slots, rank_in_group
from attnwidgets.sae.corpus_statistics.tally import STATE, Chunk, Tally
from tests.examples import examples

FEATURES = 6


def stack(seed: int, windows: int = 40) -> list[Chunk]:
    """Windows of random length with activations of very different sizes, a chunk for each window."""
    generator = np.random.default_rng(seed)
    result, position = [], 0
    for window in range(windows):
        n = int(generator.integers(2, 9))
        if window % 3 == 0:
            position = 0
        sizes = 10.0 ** generator.uniform(-2, 2, size=(n, FEATURES))
        fires = generator.random((n, FEATURES)) < np.linspace(0.02, 0.9, FEATURES)
        activations = np.where(fires, sizes, 0).astype(np.float32)
        activations[generator.random((n, FEATURES)) < 0.05] = 4.0  # ties, and a power of two
        counts = np.ones(n, dtype=bool)
        counts[0] = False
        result.append(
            Chunk(
                activations,
                generator.integers(0, 99, n),
                counts,
                np.full(n, window),
                np.full(n, window // 3),
                position + np.arange(n) - 1,
            )
        )
        position += n - 1
    return result


def joined(parts: list[Chunk]) -> Chunk:
    names = ("activations", "ids", "counts", "window", "text", "place")
    return Chunk(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def tallied(parts: list[Chunk], cut: int = 1, **options) -> Tally:
    tally = Tally(
        FEATURES, **({"examples": 4, "per_interval": 2, "before": 2, "after": 1, "seed": 0} | options)
    )
    for begin in range(0, len(parts), cut):
        tally.add(joined(parts[begin : begin + cut]))
    return tally


def same(first_tally: Tally, second_tally: Tally) -> bool:
    """Bit for bit."""
    first, second = first_tally.state(), second_tally.state()
    assert set(first) == set(second) == set(STATE)
    return all(first[name].tobytes() == second[name].tobytes() for name in first)


def merged(parts: list[Chunk], cuts: list[int], **options) -> Tally:
    """Tallies of parts that begin at certain windows, each with other texts, merged in order."""
    whole = tallied([], **options)
    for begin, end in pairwise([0, *cuts, len(parts)]):
        shift = parts[begin].text[0]
        shifted = [replace(part, text=part.text - shift) for part in parts[begin:end]]
        result = tallied(shifted, 5, **options)
        result.texts = len({int(part.text[0]) for part in shifted})
        whole.merge(result)
    return whole


@given(seed=st.integers(0, 1000), cut=st.sampled_from([2, 3, 7, 40]))
@settings(max_examples=examples(20))
def test_how_tokens_are_cut_into_chunks_does_not_matter(seed, cut):
    assert same(tallied(stack(seed)), tallied(stack(seed), cut))


@given(seed=st.integers(0, 1000), cuts=st.sets(st.integers(1, 13), max_size=4), sizes=st.integers(1, 6))
@settings(max_examples=examples(30))
def test_parts_that_are_merged_are_one_whole(seed, cuts, sizes):
    """Also where texts are repeated, and where a part's activations are much larger than another's."""
    parts = stack(seed)
    parts += [replace(part, text=part.text + 14, window=part.window + 40) for part in parts[:9]]
    options = {"examples": sizes, "per_interval": sizes, "seed": seed}
    whole = tallied(parts, **options)
    whole.texts = 17
    assert same(whole, merged(parts, sorted(3 * cut for cut in cuts), **options))


def test_of_a_context_that_comes_again_and_again_one_is_drawn():
    context = stack(1)[0]
    parts = [replace(context, text=context.text + i, window=context.window + i) for i in range(50)]
    drawn = tallied(parts, 7).drawn.fields
    first = tallied(parts[:1]).drawn.fields
    assert all(np.array_equal(drawn[name], first[name]) for name in drawn)  # of the first text


def test_sums_are_those_of_fractions():
    """From the smallest numbers that there are to the largest, in any order."""
    generator = np.random.default_rng(0)
    values = (generator.standard_normal(3000) * 2.0 ** generator.integers(-148, 126, 3000)).astype(np.float32)
    values[:50] = np.float32(1e-45)
    rows = generator.integers(0, 3, 3000)
    once = exact_sums.zeros(3)
    exact_sums.add(once, rows, values)
    parts = exact_sums.zeros(3)
    for chosen in np.array_split(generator.permutation(3000), 7):
        exact_sums.add(parts, rows[chosen], values[chosen])
    assert np.array_equal(once, parts)
    exact = [float(sum(map(Fraction, values[rows == row].tolist()))) for row in range(3)]
    assert exact_sums.to_floats(once).tolist() == exact


@given(seed=st.integers(0, 1000))
@settings(max_examples=examples(20))
def test_counts_and_histograms_are_those_of_a_plain_loop(seed):
    parts = stack(seed)
    tally = tallied(parts, 5)
    whole = joined(parts)
    inside = whole.activations[whole.counts]
    assert tally.tokens == len(inside)
    assert np.array_equal(tally.count, (inside > 0).sum(0))
    assert np.array_equal(tally.maxima, inside.max(0))
    np.testing.assert_allclose(exact_sums.to_floats(tally.sums), inside.sum(0, dtype=np.float64))
    fired = (inside > 0).astype(int)
    assert np.array_equal(tally.pairs().toarray(), fired.T @ fired)
    assert tally.paired_tokens == tally.tokens
    for j in range(FEATURES):
        values = inside[:, j][inside[:, j] > 0].astype(np.float64)
        if not len(values):
            continue
        top = 2.0 ** tally.exponent[j]
        assert top / 2 < values.max() <= top
        edges = top * np.arange(BINS + 1) / BINS
        expected = [int(((values > low) & (values <= high)).sum()) for low, high in pairwise(edges)]
        assert tally.histogram[j].tolist() == expected


@given(seed=st.integers(0, 1000))
@settings(max_examples=examples(20))
def test_the_top_examples_are_the_largest_activations_one_a_window(seed):
    parts = stack(seed)
    tally = tallied(parts, 4)
    whole = joined(parts)
    for j in range(FEATURES):
        best = []
        first = 0
        for part in parts:
            values = np.where(part.counts, part.activations[:, j], 0)
            if values.max() > 0:
                at = int(values.argmax())
                best.append((-values[at], first + at))
            first += len(part.ids)
        expected = sorted(best)[:4]
        result = {name: field[j] for name, field in tally.top.fields.items()}
        assert [-value for value, _ in expected] == result["value"][: len(expected)].tolist()
        assert (result["text"][len(expected) :] == NONE).all()
        for slot, (_, token) in enumerate(expected):
            assert whole.text[token] == result["text"][slot]
            assert whole.place[token] == result["place"][slot]
            for offset in range(-2, 2):
                inside = 0 <= token + offset < len(whole.ids)
                inside = inside and whole.window[token + offset] == whole.window[token]
                assert result["ids"][slot][offset + 2] == (whole.ids[token + offset] if inside else NONE)
                shown = whole.activations[token + offset, j] if inside else 0
                assert result["activations"][slot][offset + 2] == shown


@given(seed=st.integers(0, 1000))
@settings(max_examples=examples(10))
def test_drawn_examples_lie_in_their_intervals_and_are_as_many_as_there_are(seed):
    tally = tallied(stack(seed), 3)
    fields = tally.drawn.fields
    per = BINS // INTERVALS
    for j in range(FEATURES):
        counts = tally.histogram[j].reshape(INTERVALS, per).sum(-1)
        for interval in range(INTERVALS):
            row = j * INTERVALS + interval
            values = fields["value"][row][np.isfinite(fields["key"][row])].astype(np.float64)
            assert len(values) == min(2, counts[interval])
            if len(values):
                width = 2.0 ** tally.exponent[j] / INTERVALS
                assert (values > interval * width).all()
                assert (values <= (interval + 1) * width).all()


@pytest.mark.slow
def test_draws_are_even():
    """Of 64 tokens with equal activations, each is among the two examples about as often."""
    equal = np.ones((64, 1), dtype=np.float32)
    index = np.arange(64)
    chunk = Chunk(equal, index, np.ones(64, dtype=bool), index, index, index)
    seen: Counter[int] = Counter()
    for seed in range(800):
        tally = Tally(1, examples=1, per_interval=2, before=0, after=0, seed=seed)
        tally.add(chunk)
        row = tally.drawn.fields["text"][INTERVALS - 1]
        assert row[0] != row[1]
        seen.update(row.tolist())
    expected = 2 * 800 / 64
    assert sum((seen[i] - expected) ** 2 / expected for i in range(64)) < 120  # chi square, 63 degrees


def test_a_checkpoint_goes_on_as_if_nothing_had_happened():
    parts = stack(3)
    first = tallied(parts[:17])
    again = Tally(FEATURES, examples=4, per_interval=2, before=2, after=1, seed=0)
    again.restore(first.state())
    for part in parts[17:]:
        again.add(part)
    assert same(again, tallied(parts))


def test_nothing_grows_with_the_tokens():
    sizes = [
        sum(a.nbytes for n, a in tallied(stack(0, k)).state().items() if "pairs" not in n) for k in (20, 80)
    ]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("groups", [[], [3], [1, 1, 1], [0, 0, 2, 5, 5, 5]])
def test_ranks_begin_anew_in_every_group(groups):
    seen: Counter[int] = Counter()
    expected = []
    for group in groups:
        expected.append(seen[group])
        seen[group] += 1
    assert rank_in_group(np.array(groups, dtype=np.int64)).tolist() == expected


def test_slots_keep_the_smallest_keys_and_the_first_of_equals():
    slots = Slots(2, 3, 1)
    for first, keys in ((0, [5.0, 1.0, 3.0]), (10, [3.0, 0.5, 9.0])):
        values = np.arange(3, dtype=np.float32)

        def payload(chosen, values=values, first=first):
            zeros = np.zeros((len(chosen), 1))
            texts = first + chosen
            return {
                "value": values[chosen],
                "text": texts,
                "place": chosen,
                "ids": zeros,
                "activations": zeros,
            }

        slots.insert(np.array([1, 1, 1]), np.array(keys), np.arange(3), payload)
    assert slots.fields["key"][1].tolist() == [0.5, 1.0, 3.0]
    assert slots.fields["text"][1].tolist() == [11, 1, 2]  # 3.0 of the first, not the second
    assert not np.isfinite(slots.fields["key"][0]).any()
