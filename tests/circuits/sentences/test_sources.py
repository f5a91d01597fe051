"""On which message an answer rests: by hiding each, beside a mask made by hand and planted chats."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.circuits.sentences.written_without import written_without
from tests.tracing import chats, tiny

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "My name is Ada. I like tea."},
    {"role": "assistant", "content": "Hello Ada."},
    {"role": "user", "content": "What is my name?"},
    {"role": "assistant", "content": "It is Ada. You like tea."},
]


@pytest.fixture(scope="module")
def trace(model: Any) -> Any:
    return aw.trace(model, chats.tokenizer("chatml"), messages=MESSAGES)


def log_p(model: Any, trace: Any, hidden: list[int], readers: range) -> np.ndarray:
    """Return log p of every token after the first, by a mask that hides keys from readers [token - 1]."""
    n = len(trace.tokens)
    allowed = torch.tril(torch.ones(n, n, dtype=torch.bool))
    for reader in readers:
        if reader not in hidden:
            allowed[reader, hidden] = False
    bias = torch.zeros(n, n).masked_fill(~allowed, torch.finfo(torch.float32).min)
    with torch.no_grad():
        logits = model(torch.as_tensor(trace.input_ids)[None], attention_mask=bias[None, None]).logits[0]
    rows = logits[:-1].double().log_softmax(-1)
    return rows[torch.arange(n - 1), torch.as_tensor(trace.input_ids)[1:]].numpy()


def test_scores_are_those_of_a_mask_made_by_hand(model: Any, trace: Any) -> None:
    result = aw.circuits.sources(trace)
    n = len(trace.tokens)
    sentences = [trace.units["sentence"].spans[at] for at in trace.messages[4].sentences]
    assert result.scores.target == ("It is Ada.", "You like tea.")
    plain = log_p(model, trace, [], range(0))
    expected = np.zeros((2, 5))
    for number in range(4):
        hidden = [*trace.messages[number].tokens]
        changed = plain - log_p(model, trace, hidden, range(hidden[0], n))
        for row, span in enumerate(sentences):
            expected[row, number] = changed[[token - 1 for token in span]].sum()
    # The second sentence without the first.
    last = sentences[1][0] - 1
    changed = plain - log_p(model, trace, [*range(sentences[0][0], last)], range(last, n))
    expected[1, 4] = changed[[token - 1 for token in sentences[1]]].sum()
    np.testing.assert_allclose(result.scores.values, expected, atol=1e-4)
    assert result.roles == ("system", "", "", "question", "answer")
    assert result.scores.labels[1] == "1 user: My name is Ada. I like tea."
    assert result.scores.labels[4] == "the answer so far"
    assert len(result.to_rows()) == 10


def test_parts_of_another_unit_and_of_several_stretches(model: Any, trace: Any) -> None:
    by_role = aw.circuits.sources(trace, unit="role")
    # Messages of the assistant are no part: the answer is among them.
    assert by_role.scores.labels == ("system", "user", "the answer so far")
    users = [token for number in (1, 3) for token in trace.messages[number].tokens]
    plain = log_p(model, trace, [], range(0))
    changed = plain - log_p(model, trace, users, range(users[0], len(trace.tokens)))
    answer = trace.messages[4].tokens
    assert by_role.scores.values[:, 1].sum() == pytest.approx(
        changed[[token - 1 for token in answer]].sum(), abs=1e-4
    )


def test_a_gap_of_any_size_is_weak_below_the_threshold(trace: Any) -> None:
    result = aw.circuits.sources(trace)
    values = np.asarray(result.scores.values)
    for row, part in zip(values, result.strongest(), strict=True):
        inside = row[[1, 2]]
        assert part == (None if inside.max() < 0.6 else result.scores.labels[1 + int(inside.argmax())])


def test_what_is_refused(model: Any, trace: Any) -> None:
    text = aw.trace(model, chats.tokenizer("chatml"), "the cat sat on the mat")
    with pytest.raises(ValueError, match=r"unit 'message' is not known .* made from text; pass messages="):
        aw.circuits.sources(text, (4, 6))
    with pytest.raises(ValueError, match="the answer has no tokens"):
        aw.circuits.sources(text, unit="word")
    with pytest.raises(ValueError, match="answer 7 is out of range: the trace has 5 messages"):
        aw.circuits.sources(trace, 7)
    with pytest.raises(ValueError, match="nothing before the answer is a message"):
        aw.circuits.sources(trace, 0)
    bert = aw.trace(tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece(), "the cat")
    with pytest.raises(ValueError, match="models that continue a text"):
        aw.circuits.sources(bert, (1, 2), unit="word")


NAMES = [
    *("Tom", "Anna", "Paul", "Clara", "Mark", "Alice", "Peter", "Laura"),
    *("David", "Emma", "James", "Sarah", "Daniel", "Julia", "Robert", "Maria"),
]
CITIES = [
    *("Paris", "Rome", "London", "Berlin", "Boston", "Madrid", "Chicago", "Dublin"),
    *("Oslo", "Vienna", "Milan", "Prague"),
]
COLOURS = [
    *("red", "blue", "green", "yellow", "black", "white", "brown", "purple"),
    *("orange", "pink"),
]
WHO = ["sister", "brother", "cousin", "boss", "teacher", "doctor", "neighbor", "uncle"]
THINGS = ["car", "house", "bicycle", "coat", "door", "bag", "boat", "kitchen"]
KINDS = [
    ("My {e} is called {v}.", "So your {e} is called {v}.", "What is my {e} called?", WHO, NAMES),
    ("My {e} lives in {v}.", "So your {e} lives in {v}.", "Where does my {e} live?", WHO, CITIES),
    ("My {e} is {v}.", "So your {e} is {v}.", "What color is my {e}?", THINGS, COLOURS),
]
STARTS = ("Your {e} is called", "Your {e} lives in", "Your {e} is")
FILL = [
    *("I slept well.", "It is warm today.", "I had soup.", "The train was late."),
    *("I like walks.", "I was busy.", "The shop was closed.", "It rained."),
]
REPLY = [
    *("That sounds good.", "Thank you.", "I see.", "Good to know."),
    *("Tell me more.", "I understand.", "Nice."),
]


def planted(seed: int) -> tuple[list[dict[str, str]], str]:
    """Return the chat of a seed, with facts of a kind in four of eight messages, and the answer's start."""
    draw = random.Random(seed)
    user, assistant, question, entities, values = KINDS[seed % 3]
    entity, value = draw.sample(entities, 4), draw.sample(values, 4)
    where = draw.sample(range(8), 4)
    facts = dict(zip(where, zip(entity, value, strict=True), strict=True))
    said = draw.sample(FILL, 4), draw.sample(REPLY, 4)
    messages = [{"role": "system", "content": "Be brief."}]
    for number in range(8):
        text = said[number % 2][number // 2]
        if number in facts:
            fact = (user, assistant)[number % 2].format(e=facts[number][0], v=facts[number][1])
            text = f"{fact} {text}" if draw.random() < 0.5 else f"{text} {fact}"
        messages.append({"role": ("user", "assistant")[number % 2], "content": text})
    messages.append({"role": "user", "content": question.format(e=entity[0])})
    return messages, STARTS[seed % 3].format(e=entity[0])


@pytest.mark.slow
def test_planted_chats_agree_with_the_reference(shared: Path, smollm2: Any) -> None:
    reference = np.load(shared / "reference" / "chats" / "which.npz")
    model, tokenizer = smollm2
    for at in range(2):
        messages, start = planted(int(reference["seed"][at]))
        answer = str(reference["answer"][at])
        trace = aw.trace(
            model, tokenizer, messages=[*messages, {"role": "assistant", "content": start + answer}]
        )
        last = trace.messages[-1].tokens[-1]
        result = aw.circuits.sources(trace, (last, last + 1))
        # The reference's logits are in bfloat16: near 16, its numbers are 1/8 apart.
        np.testing.assert_allclose(result.scores.values[0, 1:9], reference["suppress"][at], atol=0.2)
        source = int(reference["source"][at])
        assert int(np.argmax(result.scores.values[0, 1:9])) == source
        assert result.strongest() == (result.scores.labels[1 + source],)


def test_an_answer_is_written_as_with_a_mask_made_by_hand(model: Any, trace: Any) -> None:
    answer, hidden = trace.messages[4].tokens, [*trace.messages[1].tokens]
    ids = torch.as_tensor(trace.input_ids)[: answer[0]].tolist()
    for _ in range(len(answer) + 16):
        n = len(ids)
        allowed = torch.tril(torch.ones(n, n, dtype=torch.bool))
        allowed[hidden[-1] + 1 :, hidden] = False
        bias = torch.zeros(n, n).masked_fill(~allowed, torch.finfo(torch.float32).min)
        with torch.no_grad():
            ids.append(
                int(model(torch.tensor([ids]), attention_mask=bias[None, None]).logits[0, -1].argmax())
            )
    text = written_without(trace, hidden, answer)
    assert text == trace.tokenizer.decode(ids[answer[0] :], skip_special_tokens=True).strip()
    assert text != written_without(trace, (), answer)


ADA, BOB = ("Ada", "She lives in Rome."), ("Bob", "He lives in Oslo.")


def roles(model: Any, messages: list[dict[str, str]], unit: str, **options: Any) -> list[tuple[str, str]]:
    """Return the parts before an answer with their roles, without the answer's words."""
    answered = [*messages, {"role": "assistant", "content": "In Oslo."}]
    trace = aw.trace(model, chats.tokenizer("chatml"), messages=answered, **options)
    result = aw.circuits.sources(trace, unit=unit)
    return list(zip(result.scores.labels, result.roles, strict=True))[:-1]


@pytest.mark.parametrize("role", ["user", "system"])
def test_passages_do_not_stand_apart_from_the_question_below_them(model: Any, role: str) -> None:
    texts = "Ada: She lives in Rome.\nBob: He lives in Oslo."
    asked = "Where does Bob live?"
    messages = [{"role": "user", "content": f"{texts}\n\n{asked}"}]
    if role == "system":
        messages = [{"role": "system", "content": texts}, {"role": "user", "content": asked}]
    number = len(messages) - 1
    assert roles(model, messages, "passage", passages=[ADA, BOB]) == [
        ("Ada", ""),
        ("Bob", ""),
        (f"{number} user: {asked}", "question"),
    ]
    assert [name for _, name in roles(model, messages, "sentence", passages=[ADA, BOB])] == [
        "",
        "",
        "question",
    ]


def test_passages_below_a_question_do_not_stand_apart(model: Any) -> None:
    content = "Where does Bob live?\n\nAda: She lives in Rome.\nBob: He lives in Oslo."
    parts = roles(model, [{"role": "user", "content": content}], "passage", passages=[ADA, BOB])
    assert parts == [("0 user: Where does Bob live?", "question"), ("Ada", ""), ("Bob", "")]


def test_sentences_above_a_question_do_not_stand_apart(model: Any) -> None:
    messages = [
        {"role": "system", "content": "Be brief. Ada lives in Rome."},
        {"role": "user", "content": "Bob lives in Oslo. Where does Bob live?"},
    ]
    assert roles(model, messages, "sentence") == [
        ("Be brief.", ""),
        ("Ada lives in Rome.", ""),
        ("Bob lives in Oslo.", ""),
        ("Where does Bob live?", "question"),
    ]
    assert [role for _, role in roles(model, messages, "message")] == ["system", "question"]
    assert [role for _, role in roles(model, messages, "word")][-5:] == ["question"] * 5
