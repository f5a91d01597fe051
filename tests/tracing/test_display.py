"""Tokens are shown as a reader expects them, for every way of spelling tokens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnwidgets.tracing.recording.inputs import encode, text_of_ids
from attnwidgets.tracing.text.display import graphemes, visible
from tests.examples import examples
from tests.tracing import tiny


def test_byte_level_tokens_are_decoded() -> None:
    result = encode(tiny.byte_level(), "the cat the\n\tcat")
    assert result.text is not None
    assert result.text.tokens == ("t", "he", "␣", "cat", "␣the", "↵", "⇥", "cat")


def test_characters_split_over_bytes_are_whole() -> None:
    family = "👩\u200d👧"
    shown = encode(tiny.byte_level(), f"é {family}!").text
    assert shown is not None
    # Each byte is a token: é has 2, the space 1, the family 4 + 3 + 4.
    assert shown.tokens == ("é", "⋯", "␣", family, *("⋯",) * 10, "!")
    assert shown.axis().units["word"].labels == ("é", family, "!")


def test_combining_characters_stay_with_their_letter() -> None:
    assert [("e\u0301a"[b:e]) for b, e in graphemes("e\u0301a")] == ["e\u0301", "a"]
    assert len(graphemes("🇫🇷🇩🇪")) == 2
    assert len(graphemes("👍🏽👍")) == 2


def test_stray_bytes_are_shown_as_bytes() -> None:
    tokenizer = tiny.byte_level()
    ids = tokenizer("é")["input_ids"][:1]
    assert text_of_ids(tokenizer, ids).tokens == ("⟨C3⟩",)


def test_sentencepiece_spaces_and_byte_fallback() -> None:
    tokenizer = tiny.metaspace()
    shown = encode(tokenizer, "the 爱").text
    assert shown is not None
    assert shown.tokens == ("␣the", "␣", "爱", "⋯", "⋯")
    assert shown.axis().units["word"].labels == ("the", "爱")


def test_wordpiece_keeps_its_marks() -> None:
    shown = encode(tiny.wordpiece(), "unbelievable cat").text
    assert shown is not None
    assert shown.tokens == ("[CLS]", "un", "##believ", "##able", "cat", "[SEP]")


@pytest.mark.parametrize("tokenizer", [tiny.byte_level(), tiny.metaspace(), tiny.wordpiece()])
def test_ids_beyond_the_vocabulary_are_shown_as_ids(tokenizer: object) -> None:
    assert text_of_ids(tokenizer, [7, 50_000]).tokens[1] == "⟨#50000⟩"


@pytest.mark.parametrize(("text", "seen"), [(" ", "␣"), ("a\r\n", "a␍↵"), ("\u00a0", "⍽"), ("\t", "⇥")])
def test_whitespace_is_visible(text: str, seen: str) -> None:
    assert visible(text) == seen


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.text(min_size=1, max_size=20).filter(lambda t: t.strip()))
def test_byte_level_loses_nothing(text: str) -> None:
    tokenizer = tiny.byte_level()
    ids = tokenizer(text)["input_ids"]
    read = text_of_ids(tokenizer, ids)
    assert read.texts[0] == text
    assert len(read.tokens) == len(ids)
    assert all(read.tokens)
    assert "".join(read.tokens).replace("⋯", "") == visible(text).replace("⋯", "")
