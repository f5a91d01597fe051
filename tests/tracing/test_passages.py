"""Passages of a text and of messages: given, documents, or begun by headings."""

from __future__ import annotations

from typing import Any

import pytest

import attnwidgets as aw
from attnwidgets.tracing.chat.passages import headed_passages
from tests.tracing import chats

ADA, BOB = ("Ada", "She lives in Rome."), ("Bob", "He lives in Oslo.")
TEXT = "Ada: She lives in Rome.\nBob: He lives in Oslo.\n\nWho lives in Oslo?"


@pytest.fixture(scope="module")
def model() -> Any:
    return chats.model()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return chats.tokenizer("chatml")


def elements(trace: Any) -> dict[str, str]:
    """Return the text of each element of the unit passage, without special elements."""
    unit = trace.units["passage"]
    return {
        label: "".join(trace.tokens[i] for i in span).replace("␣", " ").replace("↵", "\n").strip()
        for label, span, apart in zip(unit.labels, unit.spans, unit.special, strict=True)
        if not apart
    }


def test_given_passages_of_a_text(model: Any, tokenizer: Any) -> None:
    trace = aw.trace(model, tokenizer, TEXT, passages=[ADA, BOB])
    assert elements(trace) == {
        "Ada": "Ada: She lives in Rome.",
        "Bob": "Bob: He lives in Oslo.",
        "Who lives in Oslo?": "Who lives in Oslo?",
    }
    read = aw.attention(trace).to("passage")
    assert read.values.sum(-1) == pytest.approx(1, abs=1e-5)
    # Read again after a continuation.
    longer = aw.trace(model, tokenizer, TEXT, passages=[ADA, BOB], max_new_tokens=2)
    assert [*elements(longer)][:2] == ["Ada", "Bob"]
    assert longer.units["passage"].spans[:2] == trace.units["passage"].spans[:2]


def test_given_passages_of_messages(model: Any, tokenizer: Any) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}]
    trace = aw.trace(model, tokenizer, messages=messages, passages=[ADA, BOB])
    labels = elements(trace)
    assert [*labels] == [
        "0 system: Be brief.",
        "Ada",
        "Bob",
        "1 user: Who lives in Oslo?",
    ]
    assert labels["Bob"] == "Bob: He lives in Oslo."
    assert [*labels.values()][3] == "Who lives in Oslo?"


def test_passages_that_are_not_there(model: Any, tokenizer: Any) -> None:
    with pytest.raises(
        ValueError, match=r"passages\[1\] \('He lives in Bergen.'\) is not in the text after pass"
    ):
        aw.trace(model, tokenizer, TEXT, passages=[ADA, ("Bob", "He lives in Bergen.")])
    with pytest.raises(ValueError, match=r"passages\[0\] must be a title and a text"):
        aw.trace(model, tokenizer, TEXT, passages=["She lives in Rome."])
    with pytest.raises(ValueError, match="passages= are parts of one text"):
        aw.trace(model, tokenizer, [TEXT, TEXT], passages=[ADA])
    thinking = [
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "Ada.", "thinking": "She lives in Rome."},
    ]
    with pytest.raises(ValueError, match="is not in what the chat template writes"):
        aw.trace(model, tokenizer, messages=thinking, passages=[ADA])


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ("[1] One.\n[2] Two.\n\nWhich?", {"[1] One.": "[1] One.", "[2] Two.": "[2] Two."}),
        (
            "Document 1: One.\nmore\nDocument 2: Two.",
            {"Document 1: One.": "Document 1: One.\nmore", "Document 2: Two.": "Document 2: Two."},
        ),
        ("# Ada\n\nOne.\n\n# Bob\n\nTwo.\n\nWhich?", {"Ada": "# Ada\n\nOne.", "Bob": "# Bob\n\nTwo."}),
        ("Title: Ada\nOne.\nTitle: Bob\nTwo.", {"Ada": "Title: Ada\nOne.", "Bob": "Title: Bob\nTwo."}),
        (
            '<doc title="Ada">\nOne.\n</doc>\n<doc title="Bob">\nTwo.\n</doc>\nWhich?',
            {"Ada": '<doc title="Ada">\nOne.\n</doc>', "Bob": '<doc title="Bob">\nTwo.\n</doc>'},
        ),
        ("# Only one\n\nText.", {}),
        ("No headings.\n\nNone at all.", {}),
    ],
)  # fmt: skip
def test_headings_begin_passages(text: str, passages: dict[str, str]) -> None:
    result = headed_passages([text], lambda _, start, end: ((start, end),))
    assert {passage.title: text[slice(*passage.runs[0])].strip() for passage in result} == passages


def test_a_text_without_passages_has_no_such_unit(model: Any, tokenizer: Any) -> None:
    assert "passage" not in aw.trace(model, tokenizer, TEXT).units
