"""Tests of the alignment of two texts, and of the difference of their traces and explanations."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.tracing.text.alignment import Alignment, align, letters
from attnwidgets.tracing.text.units import TokenAxis, Unit
from tests.tracing import chats, tiny


def axis(text: str, special: str = "") -> TokenAxis:
    """An axis whose tokens are letters; those in `special` are special."""
    unit = Unit(
        "token", tuple(text), tuple((i,) for i in range(len(text))), tuple(sign in special for sign in text)
    )
    return TokenAxis(tuple(text), {"token": unit})


def distance(first: str, other: str) -> int:
    """The Levenshtein distance, by its definition."""
    if not first or not other:
        return len(first) + len(other)
    table = [list(range(len(other) + 1))]
    for i, item in enumerate(first):
        line = [i + 1]
        for j, two in enumerate(other):
            line.append(min(table[i][j] + (item != two), table[i][j + 1] + 1, line[j] + 1))
        table.append(line)
    return table[-1][-1]


def check_columns(alignment: Alignment, first: int, other: int) -> None:
    """Every element of both texts is in one column, in its order."""
    for side, count in enumerate((first, other)):
        assert [i for group in alignment.groups(side) for i in group] == list(range(count))


def test_as_few_edits_as_brute_force_finds() -> None:
    draw = random.Random(15)
    for _ in range(400):
        first, other = ("".join(draw.choices("abcd", k=draw.randint(0, 9))) for _ in range(2))
        result = align(axis(first), axis(other))
        check_columns(result, len(first), len(other))
        assert len(result.differing) == distance(first, other), (first, other)
        for number, column in enumerate(result.columns):
            assert column.same == (result.label(number, 0) == result.label(number, 1))
            assert column.first or column.second


def test_the_same_text_is_aligned_with_itself() -> None:
    result = align(axis("abcab"), axis("abcab"))
    assert result.groups(0) == result.groups(1) == tuple((i,) for i in range(5))
    assert result.differing == ()
    assert align(axis(""), axis("")).columns == ()


def test_special_tokens_stand_with_special_tokens() -> None:
    result = align(axis("[ab]", "[]"), axis("(abc)", "()"))
    assert list(result.changes()) == [("[", "("), ("", "c"), ("]", ")")]
    result = align(axis("[x", "["), axis("xy"))
    assert not any(len(item) == len(two) == 1 and item == "[" for item, two in result.changes())


def test_ties_keep_words_with_words() -> None:
    words, signs = ("he", ","), ("!", "she", "?")
    result = align(TokenAxis.plain(words), TokenAxis.plain(signs))
    assert ("he", "she") in list(result.changes())
    assert (",", "?") in list(result.changes())


def test_four_thousand_tokens_take_a_second() -> None:
    draw = random.Random(4)
    first, other = (TokenAxis.plain([str(draw.randint(0, 400)) for _ in range(4096)]) for _ in range(2))
    start = time.process_time()  # of this process: others may load the cores
    check_columns(align(first, other), 4096, 4096)
    assert time.process_time() - start < 5  # 0.3 s, by one thread


def test_texts_too_long_to_align_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnwidgets.tracing.text.alignment.MOST_CELLS", 8)
    with pytest.raises(ValueError, match="differ over 3 and 3 elements"):
        align(axis("abc"), axis("xyz"))
    with pytest.raises(ValueError, match="Did you mean 'token'"):
        align(axis("a"), axis("a"), "tokn")


@pytest.mark.slow
def test_two_tokenizers_align_by_characters(smollm2: Any) -> None:
    text = "The unbelievably naïve keys of 3.14 cabinets weren't there!"
    encoded, decoded = (aw.trace(*model, text).axes()[0] for model in (aw.demo_model("encoder"), smollm2))
    result = align(encoded, decoded, by="character")
    check_columns(result, len(encoded), len(decoded))
    assert [result.label(i, 0) for i in result.differing] == ["[CLS]", "[SEP]"]
    for column in result.columns:
        spelled = [
            "".join(letters(side.tokens[i]) for i in group)
            for side, group in zip((encoded, decoded), column[:2], strict=True)
        ]
        assert len(set(spelled)) == 1 or not column.second
    assert any(len(column.second) > 1 or len(column.first) > 1 for column in result.columns)
    changed = aw.trace(*smollm2, text.replace("keys", "key")).axes()[0]
    result = align(encoded, changed, by="character")
    assert [pair for pair in result.changes() if all(pair)] == [("keys", "␣key")]


@pytest.fixture(scope="module")
def films() -> tuple[Any, Any]:
    """Traces of a sentence and of its negation."""
    model = aw.demo_model("classifier")
    good, bad = (aw.trace(*model, f"The film was {word}.") for word in ("good", "not good"))
    return good, bad


def test_a_trace_less_itself_is_zero(films: tuple[Any, Any]) -> None:
    for trace in films:
        same = trace.diff(aw.trace(trace.model, trace.tokenizer, trace.text))
        assert (same.total_variation, same.largest_logit_change, same.flipped) == (0, 0, False)
        assert all(output.before == output.after for output in same.predictions)
        assert not same.attention["self"].any()
        assert not same.unpaired["self"].any()
        assert same.warning == ""
        for explain in (aw.attention, aw.rollout, aw.lrp):
            np.testing.assert_array_equal(explain(trace).diff(explain(trace)).values, 0)


def test_the_difference_of_two_texts(films: tuple[Any, Any]) -> None:
    good, bad = films
    result = good.diff(bad)
    assert list(result.alignment.changes()) == [("", "not")]
    assert result.flipped
    p, q = (trace.logits.double().softmax(-1) for trace in films)
    assert result.total_variation == pytest.approx(float((p - q).abs().sum() / 2))
    assert result.largest_logit_change == pytest.approx(float((good.logits - bad.logits).abs().max()))
    # By hand: the rows that both have, and the column that only the first has.
    rows = [i for i in range(len(bad.tokens)) if bad.tokens[i] != "not"]
    only = bad.tokens.index("not")
    first, second = (trace.attention_layer(5).double().numpy() for trace in films)
    shared = np.abs(first - second[:, rows][:, :, rows]).sum(-1)
    alone = np.abs(second[:, rows, only])
    np.testing.assert_allclose(result.attention["self"][5], (shared + alone).mean(-1) / 2, atol=1e-12)
    np.testing.assert_allclose(result.unpaired["self"][5], alone.mean(-1) / 2, atol=1e-12)


@pytest.mark.slow
def test_outputs_of_other_models_are_not_compared(smollm2: Any) -> None:
    decoder, encoder = (aw.trace(*model, "The film.") for model in (smollm2, aw.demo_model("classifier")))
    result = decoder.diff(encoder)
    assert result.predictions == ()
    assert np.isnan(result.total_variation)
    assert "predictions: 49152 tokens and 2 classes" in result.warning
    assert (
        "attention of the stack 'self': 9 heads in layers 0 to 29 and 12 heads in layers 0 to 5"
        in result.warning
    )
    assert result.attention == {}
    with pytest.raises(ValueError, match="other has the layer"):
        aw.attention(decoder).diff(aw.attention(encoder))


def test_attributions_differ_by_tokens_and_by_what_no_token_has(films: tuple[Any, Any]) -> None:
    both = [aw.lrp(trace, target=0, foil=1) for trace in films]
    result = both[0].diff(both[1])
    targets = [float(trace.logits[0] - trace.logits[1]) for trace in films]
    assert result.values.sum() + result.residual == pytest.approx(targets[0] - targets[1], abs=1e-4)
    assert result.labels == ("[CLS]", "the", "film", "was", "− not", "good", ".", "[SEP]")
    assert result.value(4) == pytest.approx(-both[1].value(4))
    assert result.value(5) == pytest.approx(both[0].value(4) - both[1].value(5))
    assert "minus that of 'The film was not good.'" in result.title
    by_word = both[0].to("word").diff(both[1].to("word"))
    assert by_word.values.sum() == pytest.approx(result.values.sum())
    with pytest.raises(ValueError, match=r"other has the target 'negative', this one 'positive'.*target="):
        aw.lrp(films[0]).diff(aw.lrp(films[1]))
    with pytest.raises(TypeError, match="other is MixingMap"):
        both[0].diff(aw.attention(films[1]))


def test_maps_differ_cell_by_cell(films: tuple[Any, Any]) -> None:
    first, second = (aw.attention(trace) for trace in films)
    result = first.diff(second)
    assert result.value(5, 5, layer=2, head=3) == pytest.approx(
        first.value(4, 4, layer=2, head=3) - second.value(5, 5, layer=2, head=3)
    )
    # The row that only the second text has sums to -1; rows of both texts sum to 0.
    np.testing.assert_allclose(result.layer(2).sum(-1)[:, 4], -1, atol=1e-6)
    np.testing.assert_allclose(result.layer(2).sum(-1)[:, 5], 0, atol=1e-6)
    mean = first.mean("head").diff(second.mean("head"))
    np.testing.assert_allclose(mean.layer(2), result.layer(2).mean(0), atol=1e-6)


def test_an_encoder_decoder_is_aligned_on_both_sides() -> None:
    model, tokenizer = tiny.build(tiny.SEQ2SEQ["T5"]), tiny.wordpiece()
    single = aw.trace(model, tokenizer, "unbelievable cat", target_text="cat cat")
    two = aw.trace(model, tokenizer, "cat", target_text="cat cat")
    result = single.diff(two)
    queries, keys = result.alignments["cross"]
    assert not queries.differing
    assert keys.differing
    assert result.attention.keys() == {"encoder", "decoder", "cross"}
    assert not result.unpaired["decoder"].any()
    assert result.unpaired["cross"].all()


def test_messages_are_aligned_by_their_text_where_one_before_them_is_missing():
    chat = [
        {"role": "user", "content": "My sister is called Clara, and my cousin is called Anna: two names."},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "My sister is called Clara, and my cousin is called Anna: who is who?"},
    ]
    model, tokenizer = chats.model(), chats.tokenizer("chatml")
    traces = [aw.trace(model, tokenizer, messages=part) for part in (chat, chat[1:], [chat[2], *chat[1:]])]
    axes = [trace.axes("self")[0] for trace in traces]
    changes = [pair for pair in align(axes[0], axes[1], "message").changes() if pair[0][:1].isdigit()]
    assert [first[:6] for first, other in changes] == ["0 user"]
    assert changes[0][1] == ""
    # Their labels are the same, which are cut.
    [(first, other)] = align(axes[0], axes[2], "message").changes()
    assert first == other
