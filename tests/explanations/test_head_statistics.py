"""Statistics of heads: against closed forms, a count by hand, and findings about real models."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnwidgets as aw
from attnwidgets import statistics
from attnwidgets.statistics.panels import panels
from tests.examples import examples
from tests.explanations.made import TOKENS, axis, shares, unit

N = len(TOKENS)
CLS, SEP = 0, N - 1


def special_axis():
    """The tokens of `made`, with [CLS] and [SEP] marked as special, in one sentence or two texts."""
    from dataclasses import replace

    plain = axis()
    flags = tuple(token in ("[CLS]", "[SEP]") for token in TOKENS)
    spans = [(0,), (1, 2, 3), (4, 5), (6,)]
    units = {
        "token": replace(plain.units["token"], special=flags),
        "word": replace(plain.units["word"], special=(True, False, False, False, True)),
        "sentence": replace(unit("sentence", spans), special=(True, False, False, True)),
    }
    return replace(plain, units=units, segment=(0, 0, 0, 0, 1, 1, 1))


def one_head(matrix, **options):
    return aw.results.MixingMap(
        np.asarray(matrix, dtype=np.float32)[None, None],
        query=options.pop("query", special_axis()),
        **options,
    )


def shifted(by: int):
    """Every query looks at the element `by` positions on; at itself where there is none."""
    positions = np.clip(np.arange(N) + by, 0, N - 1)
    positions = np.where((np.arange(N) + by >= 0) & (np.arange(N) + by < N), positions, np.arange(N))
    return np.eye(N)[positions]


def test_a_head_that_looks_at_itself():
    stats = aw.statistics.head_statistics(one_head(np.eye(N), causal=False))
    assert stats["diagonal"].item() == 1
    assert stats["mean_distance"].item() == 0
    assert stats["entropy"].item() == 0
    assert stats["previous_token"].item() == stats["next_token"].item() == stats["other_text"].item() == 0
    assert stats["special_tokens"].item() == pytest.approx(2 / N)


@pytest.mark.parametrize(("by", "name"), [(-1, "previous_token"), (1, "next_token")])
def test_a_head_that_looks_at_its_neighbour(by, name):
    stats = aw.statistics.head_statistics(one_head(shifted(by), causal=False))
    assert stats[name].item() == 1
    assert stats["mean_distance"].item() == pytest.approx((N - 1) / N)
    assert stats["diagonal"].item() == pytest.approx(1 / N)


def test_a_uniform_head():
    stats = aw.statistics.head_statistics(one_head(np.full((N, N), 1 / N), causal=False))
    assert stats["entropy"].item() == pytest.approx(math.log(N), abs=1e-9)
    assert stats["cls_entropy"].item() == pytest.approx(math.log(N), abs=1e-9)
    assert stats["relative_entropy"].item() == pytest.approx(1, abs=1e-9)
    assert stats["mean_distance"].item() == pytest.approx((N * N - 1) / (3 * N), abs=1e-9)
    assert stats["separators"].item() == stats["first_token"].item() == pytest.approx(1 / N)
    # Two queries of the second sentence see three tokens of the first, three of the first see two.
    assert stats["other_sentences"].item() == pytest.approx((3 * 2 + 2 * 3) / (5 * N))


def test_a_uniform_causal_head_counts_no_row_of_one_key():
    rows = np.tril(np.ones((N, N))) / np.arange(1, N + 1)[:, None]
    stats = aw.statistics.head_statistics(one_head(rows))
    seen = np.arange(2, N + 1)
    assert stats["entropy"].item() == pytest.approx(np.log(seen).mean(), abs=1e-6)
    assert stats["relative_entropy"].item() == pytest.approx(1, abs=1e-6)
    assert stats["first_token"].item() == stats["diagonal"].item() == pytest.approx((1 / seen).mean())
    assert stats["mean_distance"].item() == pytest.approx(((seen - 1) / 2).mean())
    # Queries of the first text see nothing of the second, and are left out.
    assert stats["other_text"].item() == pytest.approx(np.mean([3 / 5, 3 / 6]))
    assert "causal" in stats.left_out["next_token"]
    assert "itself" in stats.left_out["cls_entropy"]


def by_hand(matrix, name, *, causal, queries):
    """A statistic of a head, row by row."""
    flags = [token in ("[CLS]", "[SEP]") for token in TOKENS]
    sentence, text = [-1, 1, 1, 1, 2, 2, -1], [-1, 0, 0, 0, 1, 1, -1]
    result = []
    for i, weights in enumerate(matrix):
        if (causal and i == 0) or weights.sum() == 0 or (queries == "text" and flags[i]):
            continue
        row = weights / weights.sum()
        seen = range(i + 1 if causal else N)
        entropy = -sum(a * math.log(a) for a in row if a > 0)
        owner = {"other_sentences": sentence, "other_text": text}.get(name)
        if owner is not None:
            other = [j for j in seen if owner[j] >= 0 and owner[i] >= 0 and owner[j] != owner[i]]
            if other:
                result.append(sum(row[j] for j in other))
        elif name == "mean_distance":
            result.append(sum(row[j] * abs(i - j) for j in range(N)))
        elif name in ("entropy", "relative_entropy"):
            result.append(entropy / (math.log(len(seen)) if name == "relative_entropy" else 1))
        elif name == "previous_token":
            result += [row[i - 1]] if i else []
        elif name == "same_word":
            other = [j for j in seen if {i, j} <= {1, 2, 3} and j != i]  # un ##believ ##able
            result += [sum(row[j] for j in other)] if other else []
        elif name == "next_token":
            result += [row[i + 1]] if i + 1 < N else []
        else:
            keys = {
                "diagonal": [i],
                "first_token": [0],
                "special_tokens": [CLS, SEP],
                "separators": [SEP],
            }[name]
            result.append(sum(row[j] for j in keys))
    return np.mean(result)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", ["all", "text"])
def test_every_statistic_is_the_one_counted_by_hand(causal, queries):
    values = shares(3, 4, N, N, causal=causal) * np.array([1, 0.5, 3, 1])[:, None, None].astype(np.float32)
    values[1, 2, 3] = 0  # a query that is masked altogether
    made = aw.results.MixingMap(values, query=special_axis())
    stats = aw.statistics.head_statistics(made, queries=queries)
    names = [name for name in stats.names if name not in ("cls_entropy", "inner_sink")]
    assert len(names) == (11 if causal else 12)
    for name in names:
        expected = [[by_hand(m, name, causal=causal, queries=queries) for m in layer] for layer in values]
        np.testing.assert_allclose(stats[name], expected, atol=1e-7, err_msg=name)
        assert getattr(statistics, name)(made, queries=queries) == pytest.approx(stats[name])


def test_the_entropy_of_cls_is_that_of_its_row_whatever_rows_count():
    made = aw.results.MixingMap(shares(1, 2, N, N), query=special_axis())
    row = made.values[0, :, 0].astype(np.float64)
    expected = -(row * np.log(row)).sum(-1)
    for queries in ("all", "text"):
        assert aw.statistics.head_statistics(made, queries=queries)["cls_entropy"][0] == pytest.approx(
            expected
        )


def test_words_count_as_elements():
    stats = aw.statistics.head_statistics(one_head(shifted(-1), causal=False), unit="word")
    # Of the three pieces of the first word one looks at the start, two at the word itself.
    assert stats.unit == "word"
    assert stats["previous_token"].item() == pytest.approx((1 / 3 + 3) / 4)
    assert stats["diagonal"].item() == pytest.approx((1 + 2 / 3) / 5)
    with pytest.raises(ValueError, match="Did you mean 'word'"):
        aw.statistics.head_statistics(one_head(np.eye(N)), unit="wrd")


def test_between_two_sequences_only_what_needs_no_common_places(tiny_stacks):
    stats = aw.statistics.head_statistics(tiny_stacks, stack="cross")
    assert stats.shape == (3, 2, 3)
    assert stats.names == ("first_token", "entropy", "relative_entropy")
    assert "different sequences" in stats.left_out["mean_distance"]
    with pytest.raises(ValueError, match="different sequences"):
        statistics.diagonal(tiny_stacks, stack="cross")


def test_one_token_is_all_there_is():
    stats = aw.statistics.head_statistics(aw.results.MixingMap(np.ones((1, 2, 1, 1)), query=["a"]))
    assert stats["diagonal"].tolist() == [[1, 1]]
    assert stats["entropy"].tolist() == [[0, 0]]
    assert {"previous_token", "relative_entropy", "inner_sink"} <= set(stats.left_out)


def test_a_head_that_is_masked_altogether_has_no_number_and_no_rank():
    values = shares(1, 2, N, N)
    values[0, 0] = 0
    stats = aw.statistics.head_statistics(aw.results.MixingMap(values, query=special_axis()))
    assert all(np.isnan(stats[name][0, 0]) and not np.isnan(stats[name][0, 1]) for name in stats.names)
    assert [(head.layer, head.head) for head in stats.top("entropy")] == [(0, 1)]


def test_pruned_layers_have_fewer_heads():
    layers = [shares(3, N, N), shares(2, N, N, seed=1)]
    stats = aw.statistics.head_statistics(aw.from_attentions(layers, list(TOKENS)))
    assert np.isnan(stats["diagonal"]).tolist() == [[False] * 3, [False, False, True]]
    expected = np.einsum("hii->h", layers[1]) / N
    assert stats["diagonal"][1, :2] == pytest.approx(expected, abs=1e-6)


def test_a_map_without_heads_has_statistics_of_its_layers():
    made = aw.results.MixingMap(shares(3, N, N), query=special_axis(), layers=[2, 4, 5])
    stats = aw.statistics.head_statistics(made, ["entropy", "diagonal"])
    assert stats.axis_names == ("statistic", "layer")
    assert stats.shape == (2, 3)
    lead = stats.top("entropy", 1)[0]
    assert lead.head is None
    assert lead.layer == (2, 4, 5)[int(stats["entropy"].argmax())]
    assert list(stats.to_dataframe().columns) == ["statistic", "layer", "value"]


def test_what_has_no_statistics_is_refused_in_words():
    signed = aw.results.MixingMap(-np.ones((1, 1, N, N)), query=special_axis())
    with pytest.raises(ValueError, match="negative"):
        aw.statistics.head_statistics(signed)
    late = aw.results.MixingMap.lazy(
        lambda _: -np.ones((1, N, N)), query=special_axis(), layers=[0], heads=[0], method="mine"
    )
    with pytest.raises(ValueError, match="layer 0 has negative"):
        aw.statistics.head_statistics(late)
    with pytest.raises(ValueError, match="'entropy'"):
        aw.statistics.head_statistics(one_head(np.eye(N)), "entropi")
    with pytest.raises(ValueError, match="induction_score"):
        aw.statistics.head_statistics(one_head(np.eye(N)), ["induction"])
    with pytest.raises(ValueError, match="'text'"):
        aw.statistics.head_statistics(one_head(np.eye(N)), queries="tex")
    with pytest.raises(ValueError, match="stack 'self'"):
        aw.statistics.head_statistics(one_head(np.eye(N)), stack="cross")
    with pytest.raises(TypeError, match="not a trace"):
        aw.statistics.head_statistics("text")
    plain = aw.results.MixingMap(shares(1, 1, 3, 3), query=list("abc"))
    with pytest.raises(ValueError, match="'special_tokens' is not defined here: no element is special"):
        aw.statistics.head_statistics(plain, ["special_tokens"])


def test_layers_are_read_one_at_a_time_and_left_alone():
    built = []

    def layer(number):
        built.append(number)
        return shares(2, N, N, seed=number)

    lazy = aw.results.MixingMap.lazy(
        layer, query=special_axis(), layers=[0, 1, 2], heads=[0, 1], causal=False, keep=False, method="mine"
    )
    by_word = aw.statistics.head_statistics(lazy, unit="word", layers=[0, 2])
    assert built == [0, 2]
    assert by_word.layers == (0, 2)
    assert not lazy._cache


@pytest.mark.parametrize("causal", [True, False])
def test_a_long_text_is_worked_on_in_blocks_of_queries_with_the_same_result(monkeypatch, causal):
    n = 90
    values = shares(2, 3, n, n, causal=causal)
    values[0, 1, 40] = 0  # a fully masked query
    read = []

    def rows(layer, heads, queries):
        read.append(len(queries))
        return values[layer][heads or slice(None)][:, list(queries)]

    words = [["the", "cat", "sat", "on", "it", "."][i % 6] for i in range(n)]
    plain = aw.from_attentions(list(values), words).axes()[0]
    made = aw.results.MixingMap.lazy(
        lambda layer: values[layer],
        query=plain,
        layers=[0, 1],
        heads=[0, 1, 2],
        causal=causal,
        row_fn=rows,
        keep=False,
        method="mine",
    )
    whole = statistics.head_statistics(made)
    sinks, alike = statistics.sink_importance(made), statistics.similar_heads(made, 0, 2)
    read.clear()
    monkeypatch.setattr("attnwidgets.statistics.row_shares._WHOLE_LAYER", 0)
    monkeypatch.setattr("attnwidgets.statistics.row_shares._BLOCK_BYTES", 0)
    monkeypatch.setattr("attnwidgets.explanations.results.lazy_layers._LARGE", 0)
    in_blocks = statistics.head_statistics(made)
    assert max(read) < n
    assert len(in_blocks.names) >= 7
    np.testing.assert_allclose(in_blocks.values, whole.values, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(statistics.sink_importance(made), sinks, atol=1e-6)
    again = statistics.similar_heads(made, 0, 2)
    assert [head[:2] for head in again] == [head[:2] for head in alike]
    np.testing.assert_allclose([head.value for head in again], [head.value for head in alike], atol=1e-6)


# Sinks


def test_a_sink_inside_the_text_is_found_where_it_is():
    n, at = 20, 4
    matrix = np.full((n, n), 0.4 / n)
    matrix[:, at] += 0.6
    made = aw.results.MixingMap(matrix[None, None], query=[f"t{i}" for i in range(n)])
    assert statistics.inner_sink(made).item() == pytest.approx(0.62)
    sinks = statistics.attention_sinks(made)
    assert [(sink.layer, sink.head, sink.position, sink.label) for sink in sinks] == [(0, 0, at, "t4")]
    assert sinks[0].importance == pytest.approx(0.62)
    assert statistics.sink_rate(made) == 0
    assert statistics.sink_rate(made, position=at) == 1
    with pytest.raises(IndexError, match="0 to 19"):
        statistics.sink_rate(made, position=20)


def test_importance_is_the_mean_over_the_queries_that_see_an_element():
    n = 12
    values = shares(2, 3, n, n, causal=True)
    made = aw.results.MixingMap(values, query=[f"t{i}" for i in range(n)])
    result = statistics.sink_importance(made)
    for k in range(n):
        assert result[:, :, k] == pytest.approx(values[:, :, k:, k].mean(-1), abs=1e-6)
    assert statistics.sink_rate(made, threshold=0.5) == (values[..., 0].mean(-1) > 0.5).mean()


def test_a_previous_token_head_is_no_sink_and_late_tokens_are_none():
    n = 24
    previous = np.eye(n)[np.maximum(np.arange(n) - 1, 0)]
    made = aw.results.MixingMap(previous[None, None], query=[f"t{i}" for i in range(n)])
    assert made.causal
    # The last element that eight others see gets a row of theirs.
    assert statistics.inner_sink(made).item() == pytest.approx(1 / 8)
    assert statistics.attention_sinks(made) == []


# Tables


def test_a_table_is_frozen_sorted_joined_and_saved(tmp_path):
    made = aw.results.MixingMap(
        shares(3, 4, N, N), query=special_axis(), layers=[1, 3, 5], heads=[0, 2, 4, 6]
    )
    stats = aw.statistics.head_statistics(made)
    ranked = stats.top("entropy", None)
    assert [head.value for head in ranked] == sorted(stats["entropy"].ravel().tolist(), reverse=True)
    assert stats.top("entropy", 2, lowest=True) == ranked[:-3:-1]
    assert ranked[0].layer in (1, 3, 5)
    assert ranked[0].head in (0, 2, 4, 6)
    with pytest.raises(ValueError, match="read-only"):
        stats["entropy"][0, 0] = 0
    with pytest.raises(AttributeError, match="immutable"):
        stats.names = ()
    with pytest.raises(KeyError, match="'entropy'"):
        stats["entropie"]
    two = stats.select(["diagonal"]).join(stats.select(["entropy"]))
    assert two.names == ("diagonal", "entropy")
    with pytest.raises(ValueError, match="both tables"):
        two.join(stats.select("entropy"))
    with pytest.raises(ValueError, match="layers differ"):
        two.join(stats.select("first_token", layer=[1, 3]))
    part = stats.select("diagonal", layer=3, head=[2, 6])
    assert part["diagonal"].tolist() == [stats["diagonal"][1, [1, 3]].tolist()]
    again = aw.load(stats.save(tmp_path / "stats.safetensors"))
    assert again.names == stats.names
    assert again.left_out == stats.left_out
    np.testing.assert_array_equal(again["entropy"], stats["entropy"])
    frame = stats.to_dataframe()
    assert len(frame) == len(stats.names) * 12
    chosen = frame[(frame.statistic == "entropy") & (frame.layer == 3) & (frame["head"] == 4)]
    assert chosen.value.item() == stats["entropy"][1, 2]


def test_texts_are_averaged_alike_and_only_over_what_all_have():
    first = aw.statistics.head_statistics(aw.results.MixingMap(shares(1, 2, N, N), query=special_axis()))
    masked = shares(1, 2, N, N, seed=1)
    masked[0, 0] = 0
    second = aw.statistics.head_statistics(aw.results.MixingMap(masked, query=[f"t{i}" for i in range(N)]))
    mean = statistics.averaged([first, second])
    assert set(mean.names) == set(first.names) & set(second.names)
    assert mean["entropy"][0, 0] == first["entropy"][0, 0]
    assert mean["entropy"][0, 1] == pytest.approx((first["entropy"][0, 1] + second["entropy"][0, 1]) / 2)
    assert "no element is special" in mean.left_out["special_tokens"]
    assert "mean over 2 texts" in mean.title
    other = aw.statistics.head_statistics(aw.results.MixingMap(shares(2, 2, N, N), query=special_axis()))
    with pytest.raises(ValueError, match=r"tables\[1\] has layers"):
        statistics.averaged([first, other])


@given(st.integers(1, 14), st.booleans(), st.integers(0, 1000), st.sampled_from(["all", "text"]))
@settings(max_examples=examples(40))
def test_every_statistic_is_in_its_range_or_undefined_for_a_head_without_rows(n, causal, seed, queries):
    values = shares(2, 2, n, n, seed=seed, causal=causal)
    values[np.random.default_rng(seed).random((2, 2, n)) < 0.3] = 0
    tokens = ["[CLS]", *(f"t{i}" for i in range(n - 1))]
    stats = aw.statistics.head_statistics(
        aw.results.MixingMap(values, query=aw.from_attentions(values, tokens).axes()[0]), queries=queries
    )
    tops = {"mean_distance": n - 1, "entropy": math.log(n), "cls_entropy": math.log(n)}
    for name in stats.names:
        result = stats[name]
        defined = result[~np.isnan(result)]
        assert (defined >= 0).all(), name
        assert (defined <= tops.get(name, 1) + 1e-9).all(), name


def test_every_statistic_says_what_it_is():
    table = statistics.statistics()
    assert list(table)[:2] == ["mean_distance", "diagonal"]
    assert {"induction", "retrieval"} <= set(table)
    for name, item in table.items():
        assert item.name == name
        assert all((item.title, item.definition.endswith("."), item.scale, item.high)), name


@pytest.mark.slow
def test_tables_and_figures_show_every_statistic():
    made = aw.results.MixingMap(shares(2, 3, N, N), query=special_axis(), provenance={"text": "<b>"})
    stats = aw.statistics.head_statistics(made)
    shown = stats._repr_html_()
    titles = [about.title for about in stats.statistics]
    assert all(title in shown for title in titles)
    assert "sink inside the text" not in titles
    assert "no inner sink" in shown
    assert [axes.get_title() for axes in panels(stats).axes if axes.get_title()] == titles
    with pytest.raises(TypeError, match="figure"):
        stats.view()
