"""Tokens left out of rollout, flow and Chefer's rules: against loops over plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations import MixingMap
from attnwidgets.tracing.text.units import TokenAxis, Unit
from tests.explanations.made import random_classifier
from tests.tracing import tiny
from tests.tracing.families import needs

TOKENS = ["[CLS]", "a", "b", "[SEP]", "c"]
SPECIAL = (True, False, False, True, False)
N = len(TOKENS)


def axis() -> TokenAxis:
    single = Unit("token", tuple(TOKENS), tuple((i,) for i in range(N)), SPECIAL)
    words = Unit(
        "word", ("[CLS]", "ab", "[SEP]", "c"), ((0,), (1, 2), (3,), (4,)), (True, False, True, False)
    )
    return TokenAxis(tuple(TOKENS), {"token": single, "word": words})


def weights(layers: int = 4, heads: int = 2, *, sink: float = 8.0) -> Any:
    """Causal rows that mostly rest on the first token."""
    raw = np.tril(np.random.default_rng(0).gamma(1.0, size=(layers, heads, N, N)))
    raw[..., 0] += sink
    return raw / raw.sum(-1, keepdims=True)


def made(*, sink: float = 8.0) -> MixingMap:
    return MixingMap(weights(sink=sink), query=axis(), method="attention", dtype="float64")


def layers_by_hand(places: list[int], weight: float, *, normalize: bool = True) -> list[Any]:
    """Every layer's A' by loops: columns to zero, residual, rows divided by their sums."""
    result = []
    for layer in weights():
        matrix = [[sum(head[i][j] for head in layer) / len(layer) for j in range(N)] for i in range(N)]
        for i in range(N):
            for j in range(N):
                matrix[i][j] = 0.0 if j in places else matrix[i][j]
                matrix[i][j] = (1 - weight) * matrix[i][j] + weight * (i == j)
            total = sum(matrix[i])
            if normalize and total:
                matrix[i] = [value / total for value in matrix[i]]
        result.append(np.array(matrix))
    return result


DISCARDS = [("first", [0]), ("special", [0, 3]), ([1, -1], [1, 4]), ((2,), [2]), (np.array([0, 0]), [0])]


@pytest.mark.parametrize(("discard", "places"), DISCARDS)
@pytest.mark.parametrize("weight", [0.5, 0.2])
def test_rollout_leaves_columns_out_and_divides_rows_again(
    discard: Any, places: list[int], weight: float
) -> None:
    result = aw.rollout(made(), weight, discard=discard)
    state = np.eye(N)
    for number, layer in enumerate(layers_by_hand(places, weight)):
        state = layer @ state
        np.testing.assert_allclose(result.layer(number), state, atol=1e-12)
    np.testing.assert_allclose(result.values.sum(-1), 1.0)
    others = [i for i in range(N) if i not in places]
    assert not result.values[:, others][..., places].any()
    unnormalized = aw.rollout(made(), weight, discard=discard, normalize=False)
    product = layers_by_hand(places, weight, normalize=False)
    np.testing.assert_allclose(unnormalized.layer(1), product[1] @ product[0], atol=1e-12)


def test_rows_with_nothing_left_are_their_own_token_or_zero() -> None:
    assert aw.rollout(made(), discard="first").layer(3)[0].tolist() == [1, 0, 0, 0, 0]
    bare = aw.rollout(made(), discard="first", residual=None)
    np.testing.assert_allclose(bare.layer(0).sum(-1), [0, 1, 1, 1, 1])
    assert not bare.layer(3)[0].any()


@pytest.mark.parametrize(("discard", "places"), DISCARDS[:3])
def test_flow_leaves_them_out_of_its_capacities(discard: Any, places: list[int]) -> None:
    result = aw.attention_flow(made(), discard=discard)
    below, above = layers_by_hand(places, 0.5)[:2]
    np.testing.assert_allclose(result.layer(0), below, atol=1e-6)
    # Over two layers a flow is the sum over the tokens between of the narrower edge, where no edge is shared.
    for query in range(N):
        flows = [max_flow(above, below, query, key) for key in range(N)]
        np.testing.assert_allclose(result.layer(1)[query], np.array(flows) / sum(flows), atol=1e-6)


def max_flow(above: Any, below: Any, query: int, key: int) -> float:
    return float(sum(min(above[query][j], below[j][key]) for j in range(N)))


@pytest.mark.parametrize(("discard", "places"), [("first", [0]), ("special", [0, 4]), ([1, -1], [1, 4])])
@pytest.mark.parametrize("rule", ["iccv2021", "cvpr2021"])
@pytest.mark.parametrize("clamp", [True, False])
def test_chefers_rows_keep_their_size(discard: Any, places: list[int], rule: Any, clamp: bool) -> None:
    trace = aw.trace(random_classifier().double(), tiny.wordpiece(), "the cat sat")
    n = len(trace.tokens)
    # One layer says what a layer is: R = I + A'.
    layers = [aw.chefer(trace, 1, rule=(rule, {"clamp": clamp}), start_layer=0).map.layer(0) - np.eye(n)]
    both = aw.chefer(trace, 1, rule=(rule, {"clamp": clamp})).map.layer(1)
    layers.append(both @ np.linalg.inv(np.eye(n) + layers[0]) - np.eye(n))
    state = np.eye(n)
    for layer in layers:
        remaining = np.array([[0.0 if j in places else layer[i][j] for j in range(n)] for i in range(n)])
        for i in range(n):
            left = sum(abs(value) for value in remaining[i])
            remaining[i] *= sum(abs(value) for value in layer[i]) / left if left else 0
        state = state + remaining @ state
    result = aw.chefer(trace, 1, rule=(rule, {"clamp": clamp}), discard=discard)
    np.testing.assert_allclose(result.map.layer(1), state, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(result.values, state[0], rtol=1e-6, atol=1e-9)


def test_chefer_leaves_out_tokens_of_the_source_that_the_decoder_reads() -> None:
    needs("interface", "T5")
    trace = aw.trace(tiny.build(tiny.SEQ2SEQ["T5"]).double(), None, input_ids=[5, 6, 7, 8], max_new_tokens=3)
    target = aw.targets.token(3, position=1)
    whole, result = (aw.chefer(trace, target, discard=discard) for discard in (None, [2]))
    assert whole.values[2] > 0
    assert result.values[2] == pytest.approx(0, abs=1e-15)
    assert (result.values[[0, 1, 3]] > 0).all()
    decoded = aw.chefer(trace, target, stack="decoder", discard="first")
    assert decoded.values[0] == pytest.approx(0, abs=1e-15)
    assert decoded.values[1] >= 1  # the residual alone


def test_words_are_left_out_where_words_are_followed() -> None:
    words = made().to("word")
    result = aw.rollout(words, discard=[1])
    expected = aw.rollout(MixingMap(words.values, query=list(words.query_labels)), discard=[1])
    np.testing.assert_allclose(result.values, expected.values, atol=1e-6)
    assert "without words 1" in result.note


@pytest.mark.parametrize("method", [aw.rollout, aw.attention_flow])
def test_the_option_is_kept_and_said(method: Any) -> None:
    assert "discard" in aw.methods()[method.__name__].options
    assert method(made()).provenance["options"]["discard"] is None
    assert method(made(), discard="first").title.endswith(", without the first token")
    assert "without special tokens" in method(made(), discard="special").note
    result = method(made(), discard=[0, 3])
    assert result.provenance["options"]["discard"] == (0, 3)
    assert "without tokens 0, 3" in result.note


def test_what_chefer_leaves_out_is_not_its_menus_answer() -> None:
    trace = aw.trace(random_classifier(), tiny.wordpiece(), "the cat")
    result = aw.chefer(trace, discard="special")
    assert "without special tokens" in result.title
    assert aw.views.RelevanceMap(result).options["method"] != "chefer"
    assert aw.views.RelevanceMap(aw.chefer(trace)).options["method"] == "chefer"


@pytest.mark.parametrize(
    ("discard", "error", "says"),
    [
        ("frist", ValueError, r"discard 'frist' is not 'first', 'special' or a list.*'first'"),
        (0.9, ValueError, "discard 0.9 is not 'first', 'special' or a list"),
        (0, ValueError, r"discard 0 is not .*\[0\]"),
        ([5], IndexError, "names position 5; there are 0 to 4"),
        (["a"], TypeError, "discard holds 'a'"),
        (range(5), ValueError, "leaves none of the 5 tokens"),
    ],
)
def test_what_names_nothing_is_refused(discard: Any, error: type[Exception], says: str) -> None:
    for method in (aw.rollout, aw.attention_flow):
        with pytest.raises(error, match=f"{method.__name__}: .*{says}"):
            method(made(), discard=discard)
    trace = aw.trace(tiny.build(tiny.TEXT["Llama"]), None, input_ids=[5, 6, 7, 8, 9])
    with pytest.raises(error, match="chefer: "):
        aw.chefer(trace, discard=discard)
    with pytest.raises(ValueError, match="needs a special token"):
        aw.rollout(trace, discard="special")


def test_the_note_says_what_the_first_token_holds_once_a_layer_shows_it() -> None:
    calls: list[int] = []
    source = made(sink=40.0)

    def layer(number: int) -> Any:
        calls.append(number)
        return source.layer(number)

    lazy = MixingMap.lazy(
        layer, query=axis(), layers=range(4), heads=range(2), method="attention", causal=True, dtype="float64"
    )
    result = aw.rollout(lazy)
    assert result.note == ""
    assert not calls  # nothing is computed for the note
    result.layer(0)
    share = float(result.layer(0)[1:, 0].mean())
    assert (share < 0.9, result.note) == (True, "")
    result.layer(3)
    share = float(result.layer(3)[1:, 0].mean())
    assert share > 0.9
    said = f"the first token holds {share:.1%} of a row at layer 3 (mean over the queries after it)"
    assert result.note == f'{said}; discard="first" leaves it out'
    assert said in repr(result)
    assert calls == [0, 1, 2, 3]
    assert "the first" not in aw.rollout(made(sink=0.0)).note


def test_the_note_names_what_takes_its_place() -> None:
    deep = MixingMap(weights(24, sink=0.5), query=axis(), method="attention", dtype="float64")
    result = aw.rollout(deep, discard="first")
    share = result.layer(23)[2:, 1].mean()
    assert f"token 1, the first remaining one, holds {share:.1%} of a row at layer 23" in result.note
    assert "leaves it out" not in result.note


def test_a_view_shows_the_note() -> None:
    explorer = aw.Heatmap(aw.rollout(made(sink=40.0)))
    sources = {source["unit"]: source["note"] for source in explorer.store.header["sources"]}
    assert sources["token"].startswith("the first token holds 9")
    assert "sum over key pieces, mean over query pieces; the first word holds 9" in sources["word"]
