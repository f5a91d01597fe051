"""Measure which methods find the message that an answer rests on, in chats where a single message holds it.

    python benchmarks/planted_chats.py --keep chats.jsonl --write

A chat has a system line, eight messages with four facts of one kind, and a question about one of them. The
start of the answer is given, and the model's own first choice among the four values is explained: the truth
is the message with this value, whether or not it is the one that was asked for. Chats in which the model
says something else are left out. Kinds of facts in `HELD_OUT` were not looked at while methods were made.
Writes the tables of docs/chats.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from pages import write_between

import attnwidgets as aw

PAGE = Path(__file__).parents[1] / "docs" / "chats.md"
MARKS = ("<!-- measured -->", "<!-- end of measured -->")


class Kind(NamedTuple):
    """Facts of a kind as both say them, the question, the answer's start, of what, and values."""

    user: str
    assistant: str
    question: str
    start: str
    entities: tuple[str, ...]
    values: tuple[str, ...]


WHO = ("sister", "brother", "cousin", "boss", "teacher", "doctor", "neighbor", "uncle")
THINGS = ("car", "house", "bicycle", "coat", "door", "bag", "boat", "kitchen")
NAMES = "Tom Anna Paul Clara Mark Alice Peter Laura David Emma James Sarah Daniel Julia Robert Maria"
PLACES = "Paris Rome London Berlin Boston Madrid Chicago Dublin Oslo Vienna Milan Prague"
COLOURS = "red blue green yellow black white brown purple orange pink"
JOBS = "baker pilot lawyer farmer nurse writer singer cook painter driver"
DRINKS = "tea coffee milk water wine beer juice soda"
MONTHS = "January February March April June July August September October November December"
KINDS = (
    Kind(
        *("My {e} is called {v}.", "So your {e} is called {v}.", "What is my {e} called?"),
        *("Your {e} is called", WHO, tuple(NAMES.split())),
    ),
    Kind(
        *("My {e} lives in {v}.", "So your {e} lives in {v}.", "Where does my {e} live?"),
        *("Your {e} lives in", WHO, tuple(PLACES.split())),
    ),
    Kind(
        *("My {e} is {v}.", "So your {e} is {v}.", "What color is my {e}?"),
        *("Your {e} is", THINGS, tuple(COLOURS.split())),
    ),
)
HELD_OUT = (
    Kind(
        *("My {e} works as a {v}.", "So your {e} works as a {v}.", "What does my {e} work as?"),
        *("Your {e} works as a", WHO, tuple(JOBS.split())),
    ),
    Kind(
        *("My {e} drinks {v}.", "So your {e} drinks {v}.", "What does my {e} drink?"),
        *("Your {e} drinks", WHO, tuple(DRINKS.split())),
    ),
    Kind(
        *("My {e} was born in {v}.", "So your {e} was born in {v}.", "When was my {e} born?"),
        *("Your {e} was born in", WHO, tuple(MONTHS.split())),
    ),
)
FILL = (
    *("I slept well.", "It is warm today.", "I had soup.", "The train was late."),
    *("I like walks.", "I was busy.", "The shop was closed.", "It rained."),
)
REPLY = (
    *("That sounds good.", "Thank you.", "I see.", "Good to know."),
    *("Tell me more.", "I understand.", "Nice."),
)
FACTS = 4
METHODS = {
    "hidden": "hidden, places kept",
    "removed": "removed, places close up",
    "subsets": "random subsets, sparse fit",
    "lrp": "LRP (AttnLRP)",
    "attention": "attention of the last token",
    "rollout": "rollout",
}
SAMPLES = 12
WEAK = 0.6


class Chat(NamedTuple):
    """A chat without its answer.

    Attributes:
        messages: A system line, eight messages and a question.
        start: Of the answer.
        facts: The values, by the number of their message without the system line.
    """

    messages: list[dict[str, str]]
    start: str
    facts: dict[int, str]


def planted(seed: int, kinds: tuple[Kind, ...] = KINDS, copies: int = 1) -> Chat:
    """Return the chat of a seed, whose first fact, the one asked for, stands in `copies` messages."""
    draw = random.Random(seed)
    kind = kinds[seed % len(kinds)]
    entities, values = draw.sample(kind.entities, FACTS), draw.sample(kind.values, FACTS)
    where = draw.sample(range(8), FACTS - 1 + copies)
    numbers = [0] * copies + list(range(1, FACTS))
    facts = {at: (entities[number], values[number]) for at, number in zip(where, numbers, strict=True)}
    said = draw.sample(FILL, 4), draw.sample(REPLY, 4)
    messages = [{"role": "system", "content": "Be brief."}]
    for number in range(8):
        text = said[number % 2][number // 2]
        if number in facts:
            entity, value = facts[number]
            fact = (kind.user, kind.assistant)[number % 2].format(e=entity, v=value)
            text = f"{fact} {text}" if draw.random() < 0.5 else f"{text} {fact}"
        messages.append({"role": ("user", "assistant")[number % 2], "content": text})
    messages.append({"role": "user", "content": kind.question.format(e=entities[0])})
    start = kind.start.format(e=entities[0])
    return Chat(messages, start, {number: " " + value for number, (_, value) in facts.items()})


def answered(model: Any, tokenizer: Any, chat: Chat) -> tuple[Any, tuple[int, int], str] | None:
    """Return a trace with the model's answer, the answer's tokens, and its value; None if it is no value."""

    def trace_of(value: str) -> tuple[Any, tuple[int, int]]:
        ids = tokenizer(value, add_special_tokens=False)["input_ids"]
        answer = {"role": "assistant", "content": chat.start + value}
        trace = aw.trace(model, tokenizer, messages=[*chat.messages, answer])
        last = trace.messages[-1].tokens[-1] + 1
        return trace, (last - len(ids), last)

    first = next(iter(chat.facts.values()))
    trace, (begin, end) = trace_of(first)
    said = int(trace.logits[begin - 1].argmax())
    for value in chat.facts.values():
        if tokenizer(value, add_special_tokens=False)["input_ids"][0] == said:
            return (trace, (begin, end), value) if value == first else (*trace_of(value), value)
    return None


def scores(trace: Any, answer: tuple[int, int], method: str) -> list[float]:
    """Return the scores of the eight messages by a method."""
    spans = [message.tokens for message in trace.messages[1:9]]
    row = answer[0] - 1
    if method in ("attention", "rollout"):
        if method == "rollout":
            weights = np.asarray(aw.rollout(trace).layer(-1))[row]
        else:
            layers = [
                np.asarray(aw.attention(trace).layer(layer))[:, row] for layer in range(trace.n_layers())
            ]
            weights = np.mean(layers, axis=(0, 1))
        return [float(weights[list(span)].sum()) for span in spans]
    result = aw.circuits.sources(trace, answer, unit=eight(trace), method=method, samples=SAMPLES)
    return np.asarray(result.scores.values)[0, :8].tolist()


def eight(trace: Any) -> aw.results.Unit:
    """Return the eight messages as a unit; all else is special, and is not hidden."""
    spans = [message.tokens for message in trace.messages[1:9]]
    inside = {token for span in spans for token in span}
    rest = tuple(token for token in range(len(trace.tokens)) if token not in inside)
    labels = (*(str(number) for number in range(8)), "all else")
    return aw.results.Unit("message of eight", labels, (*spans, rest), (False,) * 8 + (True,))


def measured(model: Any, tokenizer: Any, seed: int, held: bool, copies: int) -> dict[str, Any]:
    """Return what a chat gives: of one fact by all methods, of a fact in two messages the pairs."""
    chat = planted(seed, HELD_OUT if held else KINDS, copies)
    line: dict[str, Any] = {"seed": seed, "held": held, "copies": copies}
    explained = answered(model, tokenizer, chat)
    if explained is None:
        return line
    trace, answer, value = explained
    line["true"] = [number for number, text in chat.facts.items() if text == value]
    line["asked"] = value == next(iter(chat.facts.values()))
    line["tokens"] = len(trace.tokens)
    if copies > 1:
        began = time.monotonic()
        pairs = aw.circuits.sources(trace, answer, unit=eight(trace), method="lrp").pairs()
        line["seconds"] = {"pairs": time.monotonic() - began}
        line["alone"], line["both"] = pairs.alone[0].tolist(), pairs.both[0].tolist()
        line["covering"] = [int(label) for label in pairs.covering()[0] or ()]
        return line
    line["scores"], line["seconds"] = {}, {}
    for method in METHODS:
        if method == "subsets" and seed % 2:
            continue
        began = time.monotonic()
        line["scores"][method] = scores(trace, answer, method)
        line["seconds"][method] = time.monotonic() - began
    return line


def right(lines: list[dict[str, Any]], method: str) -> str:
    """Return in how many chats a method puts the true message first."""
    some = [line for line in lines if method in line["scores"]]
    return f"{sum(int(np.argmax(line['scores'][method])) in line['true'] for line in some)} of {len(some)}"


def tables(lines: list[dict[str, Any]]) -> str:
    """Return what all chats give, as tables and sentences."""
    explained = [line for line in lines if "true" in line]
    once = [line for line in explained if line["copies"] == 1]
    held = [[line for line in once if line["held"] == side] for side in (False, True)]
    passes = {"hidden": "8", "removed": "8", "subsets": str(SAMPLES), "lrp": "1 and 1 back"}
    rows = [
        "| method | names, places, colours | held out: jobs, drinks, months | passes | seconds |",
        "|---|---:|---:|---:|---:|",
    ]
    for method, name in METHODS.items():
        seconds = [line["seconds"][method] for line in once if method in line["seconds"]]
        rows.append(
            f"| {name} | {right(held[0], method)} | {right(held[1], method)} "
            f"| {passes.get(method, '1')} | {np.median(seconds):.1f} |"
        )
    chances = [f"{len(side) / FACTS:.1f} of {len(side)}" for side in held]
    rows.append(f"| chance, among the four facts | {chances[0]} | {chances[1]} | | |")
    strong = [line for line in once if max(line["scores"]["hidden"]) >= WEAK]
    weak = [line for line in once if line not in strong]
    seeds = sum(line["copies"] == 1 for line in lines)
    said_of_chats = (
        f"In {len(once)} of {seeds} chats the model says one of the four values, in "
        f"{sum(line['asked'] for line in once)} the one asked for. Where hiding gives 0.6 nats or more, its "
        f"largest score is right in {right(strong, 'hidden')}; below, in {right(weak, 'hidden')}."
    )
    rows += ["", said_of_chats]
    # The fact must be the one that stands twice.
    twice = [line for line in explained if line["copies"] == 2 and len(line["true"]) == 2]
    found, said, larger = 0, 0, 0
    for line in twice:
        both, alone, true = np.array(line["both"]), np.array(line["alone"]), sorted(line["true"])
        found += sorted(np.unravel_index(int(np.nanargmax(both)), both.shape)) == true
        said += line["covering"] == true
        larger += bool(both[true[0], true[1]] > alone[true].sum())
    said_of_pairs = (
        f"With the fact in two messages ({len(twice)} chats), this pair loses most in {found}, "
        f"both lose more than the sum of each in {larger}, and `.covering()` names them in {said}."
    )
    rows += ["", said_of_pairs]
    return "\n".join(rows)


def main() -> None:
    """Measure, print, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables of docs/chats.md")
    parser.add_argument("--keep", type=Path, required=True, help="a file of finished chats")
    parser.add_argument("--chats", type=int, default=60, help="number of chats with one source")
    parser.add_argument("--twice", type=int, default=12, help="number of chats with two")
    options = parser.parse_args()
    lines = []
    if options.keep.exists():
        lines = [json.loads(line) for line in options.keep.read_text(encoding="utf-8").splitlines()]
    done = {(line["seed"], line["held"], line["copies"]) for line in lines}
    model, tokenizer = aw.demo_model("decoder")
    model = model.bfloat16()  # twice as fast on this processor; scores are up to 0.1 nats off
    for copies, count in ((1, options.chats), (2, options.twice)):
        for seed in range(10 * count):
            for held in (False, True):
                explained = [line for line in lines if line["copies"] == copies and "true" in line]
                if len(explained) >= count or (seed, held, copies) in done:
                    continue
                lines.append(measured(model, tokenizer, seed, held, copies))
                with options.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
                print(len(lines), len(explained), lines[-1].get("true"), flush=True)
    text = tables(lines)
    print(text)
    if options.write:
        write_between(PAGE, *MARKS, text)


if __name__ == "__main__":
    main()
