"""Words, sentences and given groups over tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnwidgets as aw
from attnwidgets.explanations.explanation import restore
from attnwidgets.explanations.mixing.attention import attention
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.tracing.recording.inputs import encode
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.text.words import (
    given_spans,
    sentence_spans,
    unit_from_ids,
    unit_from_spans,
    word_spans,
)
from tests.examples import examples
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path


def words_of(text: str, rule: str = "standard") -> list[str]:
    return [text[b:e] for b, e in word_spans(text, rule)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat sat.", ["The", "cat", "sat", "."]),
        ("don't state-of-the-art 3.14 1,000", ["don't", "state-of-the-art", "3.14", "1,000"]),
        ("'quoted' (x)", ["'", "quoted", "'", "(", "x", ")"]),
        ("the U.S. is", ["the", "U.S", ".", "is"]),
        ("我爱 Tōkyō", ["我", "爱", "Tōkyō"]),
        ("東京タワー", ["東", "京", "タワー"]),
        ("שלום עולם!", ["שלום", "עולם", "!"]),
        ("مرحبا بالعالم", ["مرحبا", "بالعالم"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("e\u0301te\u0301 👩\u200d👧", ["e\u0301te\u0301", "👩\u200d👧"]),
        ("my_var = 1", ["my_var", "=", "1"]),
        ("می\u200cخواهم به خانه\u200cام", ["می\u200cخواهم", "به", "خانه\u200cام"]),
        ("ב\u200fבית\u200e הגדול", ["ב\u200fבית\u200e", "הגדול"]),
        ("co\u00adoperate \u200fnow \u2066", ["co\u00adoperate", "\u200fnow", "\u2066"]),
        ("see 🏴\U000e0067\U000e0062\U000e007f!", ["see", "🏴\U000e0067\U000e0062\U000e007f", "!"]),
        ("क्\u200cष है", ["क्\u200cष", "है"]),
        ("  \n ", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


HARD = "the state-of-the-art U.S. law, don't (e.g. Dr. A.B. at 3.14)."


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("standard", "the|state-of-the-art|U.S|.|law|,|don't|(|e|.|g|.|Dr|.|A.B|.|at|3.14|)|."),
        ("abbreviations", "the|state-of-the-art|U.S.|law|,|don't|(|e.g.|Dr.|A.B.|at|3.14|)|."),
        (
            "punctuation",
            "the|state|-|of|-|the|-|art|U|.|S|.|law|,|don|'|t|(|e|.|g|.|Dr|.|A|.|B|.|at|3|.|14|)|.",
        ),
        ("whitespace", "the|state-of-the-art|U.S.|law,|don't|(e.g.|Dr.|A.B.|at|3.14)."),
    ],
)
def test_words_follow_the_rule_that_is_named(rule: str, words: str) -> None:
    assert words_of(HARD, rule) == words.split("|")
    model, tokenizer = tiny.build(tiny.TEXT["GPT-2"]), tiny.byte_level()
    model.resize_token_embeddings(len(tokenizer))
    tokens = [*f" {HARD}".replace(" ", "Ġ")]
    made_of = from_attentions(np.full((1, 1, len(tokens), len(tokens)), 1 / len(tokens)), tokens, words=rule)
    single, several = (trace(model, tokenizer, text, words=rule) for text in (HARD, [HARD, "a cat"]))
    for result in (single, several[0], made_of):
        assert result.units["word"].labels == tuple(words.split("|"))
    for result in (single, several[1], made_of, trace(model, None, list(range(4)), words=rule)):
        made = attention(result)
        assert made.provenance["words"] == rollout(made).provenance["words"] == rule
        assert made.query.units["word"].rule == rule


@pytest.mark.parametrize(
    "text", ["It is. No", "the end.", "etcetera. x.y", "U.S.A is", "a.b.cd", "...", "e.g.,"]
)
def test_only_abbreviations_keep_their_full_stops(text: str) -> None:
    expected = {"e.g.,": ["e.g.", ","]}
    assert words_of(text, "abbreviations") == expected.get(text, words_of(text))


def test_the_rule_is_saved_with_the_words_and_files_without_one_still_open(tmp_path: Path) -> None:
    made = attention(from_attentions(np.eye(2)[None], ["don", "'t"], words="whitespace"))
    described, arrays = made.to_description()
    again = restore(described, arrays)
    assert again.key.units["word"].rule == "whitespace"
    assert aw.load(made.save(tmp_path / "made.safetensors")).provenance["words"] == "whitespace"
    for side in ("query", "key"):
        for unit in (described[side] or {"units": {}})["units"].values():
            del unit["rule"]
    old = restore(described, arrays)
    assert (old.key.units["word"].rule, old.key) == ("", made.key)


def test_a_view_says_the_rule_that_is_not_the_usual_one() -> None:
    def note(words: Any) -> str:
        made = attention(from_attentions(np.eye(3)[None], ["do", "n't", "Ġgo"], words=words))
        sources = aw.Heatmap(made, units=["word"]).store.header["sources"]
        return next(source["note"] for source in sources if source["unit"] == "word")

    assert note("whitespace").startswith("words by the rule 'whitespace'; sum over")
    assert note(None) == note([0, 0, 1]) == "sum over key pieces, mean over query pieces"


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Mr. Smith met J. Doe. He left.", ["Mr. Smith met J. Doe.", "He left."]),
        ('She said "no." Then 3.5 went.', ['She said "no."', "Then 3.5 went."]),
        ("a line\nanother", ["a line", "another"]),
        ("我爱。你呢？", ["我爱。", "你呢？"]),
        ("no stop", ["no stop"]),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert [text[b:e] for b, e in sentence_spans(text)] == sentences


def test_a_word_in_three_pieces_is_one_element() -> None:
    axis = encode(tiny.wordpiece(), "Unbelievable cat.", text_pair="the cat").text
    assert axis is not None
    word = axis.axis().units["word"]
    assert word.labels == ("[CLS]", "Unbelievable", "cat", ".", "[SEP]", "the", "cat", "[SEP]")
    assert word.spans == ((0,), (1, 2, 3), (4,), (5,), (6,), (7,), (8,), (9,))
    assert word.special == (True, False, False, False, True, False, False, True)
    assert axis.segment == (0,) * 7 + (1,) * 3


def test_aggregation_by_hand() -> None:
    """Clark et al. 2019: sum over the source word's tokens, mean over the target word's."""
    unit = unit_from_ids("word", [0, 1, 1, 1], ["a", "un", "##believ", "##able"], [False] * 4)
    weights = np.array(
        [[0.1, 0.2, 0.3, 0.4], [0.4, 0.2, 0.2, 0.2], [0.7, 0.1, 0.1, 0.1], [0.1, 0.3, 0.3, 0.3]]
    )
    member = unit.membership(4)
    mean = member / member.sum(1, keepdims=True)
    np.testing.assert_allclose(mean @ weights @ member.T, [[0.1, 0.9], [0.4, 0.6]])
    assert unit.labels == ("a", "unbelievable")


@settings(max_examples=examples(80))
@given(st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=1, max_size=12), st.integers(0, 2**31))
def test_rows_still_sum_to_one_for_any_groups(ids: list[int | None], seed: int) -> None:
    """Groups may be split apart; every token is in a single element."""
    n = len(ids)
    unit = unit_from_ids("span", ids, [str(i) for i in range(n)], [False] * n)
    assert sorted(i for span in unit.spans for i in span) == list(range(n))
    weights = np.random.default_rng(seed).random((n, n)) + 1e-3
    weights /= weights.sum(1, keepdims=True)
    member = unit.membership(n)
    mean = member / member.sum(1, keepdims=True)
    np.testing.assert_allclose((mean @ weights @ member.T).sum(1), 1.0)


@settings(max_examples=examples(80))
@given(st.data())
def test_every_token_is_in_one_word_whatever_the_tokens(data: st.DataObject) -> None:
    text = data.draw(st.text(alphabet="ab .,'é👩\u200d我\n\u0301", min_size=1, max_size=25))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    spans = list(zip([0, *cuts], [*cuts, len(text)], strict=True))
    unit = unit_from_spans(
        "word", text, word_spans(text), spans, [False] * len(spans), [str(i) for i in range(len(spans))]
    )
    assert sorted(i for span in unit.spans for i in span) == list(range(len(spans)))
    assert len(unit.labels) == len(unit.spans) == len(unit.special)


def test_a_token_over_two_words_merges_them() -> None:
    unit = unit_from_spans(
        "word", "a b c", word_spans("a b c"), [(0, 3), (4, 5)], [False, False], ["a b", "c"]
    )
    assert unit.labels == ("a b", "c")


def test_given_words() -> None:
    model, tokenizer = tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece()
    result = trace(model, tokenizer, words=["New York", "unbelievable", "don't"])
    assert result.text == "New York unbelievable don't"
    assert result.units["word"].labels == ("[CLS]", "New York", "unbelievable", "don't", "[SEP]")
    result = trace(model, tokenizer, "我爱北京", words=["我", "爱", "北京"])
    assert result.units["word"].labels == ("[CLS]", "我", "爱", "北京", "[SEP]")
    result = trace(model, tokenizer, words=(["the", "cat"], ["sat"]))
    assert result.units["word"].labels == ("[CLS]", "the", "cat", "[SEP]", "sat", "[SEP]")
    assert trace(model, tokenizer, words=["我", "爱"]).text == "我爱"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["the", " "], r"words\[1\] is empty"),
        ("the cat", "list of words.*'the cat'"),
        ("whitespaces", "or a rule to find them by, 'standard', .*'whitespace'"),
        ([], "list of words"),
        ([1], "list of words"),
    ],
)
def test_bad_words_are_refused(words: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        trace(tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece(), words=words)


def test_words_that_are_not_in_the_text_are_named() -> None:
    with pytest.raises(ValueError, match=r"words\[1\] = 'dog' does not follow 'the'"):
        given_spans("the cat", ["the", "dog"])
