"""Messages of a chat and passages of a text, and the units that they form.

Both are runs of characters. `owners_of_characters` gives every character the number of its message or
passage, `owners_of_tokens` every token that of its characters, and `unit_of_owners` makes an element of the
tokens of each owner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.tracing.text.display import SPACE, joined, visible
from attnwidgets.tracing.text.units import Unit

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    Span = tuple[int, int]

# Reasoning models spell their thoughts between such tags.
_THOUGHT = r"\w*(?:think|thought|reason)\w*"
_OPENED = rf"<{_THOUGHT}>"
_SHOWN = 48  # characters of a message in its label
TEMPLATE = -1
"""The owner of characters and tokens that only the template wrote."""


@dataclass(frozen=True)
class Part:
    """A message, call, thought or document in a text.

    Args:
        message: Number of its message; None for a document.
        role: "user", "assistant", ...
        kind: "" for a message's only content; "thought" and "answer", "call", "result", "document".
        name: The beginning of its label.
        runs: Its characters in the text, as pairs (start, end).
    """

    message: int | None
    role: str
    kind: str
    name: str
    runs: tuple[Span, ...]


@dataclass(frozen=True)
class Passage:
    """A titled stretch of a text.

    Args:
        title: Its title, which is the label of its element.
        runs: Its characters in the text, as pairs (start, end).
    """

    title: str
    runs: tuple[Span, ...]


@dataclass(frozen=True)
class Chat:
    """The messages of a rendered text.

    Args:
        roles: The role of every message.
        parts: Their parts in the text, in no order.
        dropped: Of each message, names of the parts that are not in the text.
        boundary: Number of the message that the model wrote, if any.
    """

    roles: tuple[str, ...]
    parts: tuple[Part, ...]
    dropped: tuple[tuple[str, ...], ...]
    boundary: int | None = None

    def continued(self, text: str, start: int) -> Chat:
        """Return the chat with another message, which the model wrote from character `start` on."""
        number = len(self.roles)
        name = f"{number} assistant"
        is_open = re.search(rf"{_OPENED}\s*\Z", text[:start]) is not None
        thought, answer = divided(text[start:], is_open=is_open)
        kinds = {"thought": thought, "answer": answer} if thought is not None else {"": answer}
        written = tuple(
            Part(
                number,
                "assistant",
                kind,
                f"{name}, {kind}" if kind else name,
                ((start + span[0], start + span[1]),),
            )
            for kind, span in kinds.items()
            if span is not None and span[0] < span[1]
        )
        return replace(
            self,
            roles=(*self.roles, "assistant"),
            parts=(*self.parts, *written),
            dropped=(*self.dropped, ()),
            boundary=number,
        )


def divided(text: str, *, is_open: bool = False) -> tuple[Span | None, Span | None]:
    """Return the characters of the thought that a message spells before its answer, and of the answer.

    Args:
        text: The message.
        is_open: Whether the prompt has opened a thought.

    Returns:
        Both as (start, end). None for the thought if there is none; None for the answer if no tag ends the
        thought.
    """
    opened = re.match(rf"\s*{_OPENED}", text)
    if opened is None and not is_open:
        return None, (0, len(text))
    start = 0 if opened is None else opened.end()
    closed = re.compile(rf"</{_THOUGHT}>").search(text, start)
    if closed is None:
        return (start, len(text)), None
    return (start, closed.start()), (closed.end(), len(text))


@dataclass(frozen=True)
class Message:
    """A message of a trace.

    Attributes:
        role: "system", "user", "assistant", "tool", ...
        text: Its text as the model read it; parts that are apart are joined by blanks.
        tokens: Indices of its tokens, template excluded.
        sentences: Indices of its elements of the unit "sentence".
        parts: Its tokens by kind, where it has several: "thought" and "answer", "call".
        dropped: Names of the parts that the template left out.
        special: Indices of the special tokens that it spells.
        generated: Whether the model wrote it, in this trace.
    """

    role: str
    text: str
    tokens: tuple[int, ...]
    sentences: tuple[int, ...] = ()
    parts: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    dropped: tuple[str, ...] = ()
    special: tuple[int, ...] = ()
    generated: bool = False

    def __repr__(self) -> str:
        count = f"{len(self.tokens)} token{'' if len(self.tokens) == 1 else 's'}"
        return f"<Message {self.role}: {_shortened(self.text)!r}; {count}>"

    def moved(self, extra: int) -> Message:
        """Return the message with `extra` positions of a soft prompt before it."""

        def later(numbers: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(number + extra for number in numbers)

        parts = MappingProxyType({kind: later(tokens) for kind, tokens in self.parts.items()})
        tokens, sentences, special = later(self.tokens), later(self.sentences), later(self.special)
        return replace(self, tokens=tokens, sentences=sentences, parts=parts, special=special)

    def __reduce__(self) -> tuple[object, ...]:
        values = (self.role, self.text, self.tokens, self.sentences, dict(self.parts), self.dropped)
        return (Message, (*values, self.special, self.generated))


def owners_of_characters(text: str, runs: Sequence[Sequence[Span]]) -> NDArray[np.int64]:
    """Return which of several lists of runs each character is in, `TEMPLATE` for none [character]."""
    result = np.full(len(text), TEMPLATE, dtype=np.int64)
    for number, stretches in enumerate(runs):
        for start, end in stretches:
            result[start:end] = number
    return result


def owners_of_tokens(
    text: str, spans: Sequence[Span], special: Sequence[bool], of_characters: NDArray[np.int64]
) -> tuple[list[int], list[Span]]:
    """Return the owner of each token, and the part of its span that the owner wrote.

    A token belongs to the first owner of a character in it that is not blank; a special token, or a token of
    blanks, to the owner of all of its characters.
    """
    owners, clipped = [], []
    for (start, end), is_special in zip(spans, special, strict=True):
        inside = of_characters[start:end].tolist()
        written = [owner for owner, char in zip(inside, text[start:end], strict=True) if not char.isspace()]
        if is_special or not written:
            written = inside if len(set(inside)) == 1 else []
        owner = next((owner for owner in written if owner != TEMPLATE), TEMPLATE)
        positions = [start + at for at, number in enumerate(inside) if number == owner]
        owners.append(owner)
        clipped.append((positions[0], positions[-1] + 1) if positions and owner != TEMPLATE else (start, end))
    return owners, clipped


def unit_of_owners(
    name: str,
    owners: Sequence[Hashable | None],
    labels: Mapping[Hashable, str],
    tokens: Sequence[str],
    special: Sequence[bool],
) -> Unit:
    """Return the unit whose elements are the tokens of each owner, and runs of tokens without an owner."""
    groups: dict[Hashable, list[int]] = {}
    run = 0
    for token, owner in enumerate(owners):
        run += owner is not None
        groups.setdefault(("none", run) if owner is None else ("of", owner), []).append(token)
    shown = []
    apart = []
    for members in groups.values():
        owner = owners[members[0]]
        shown.append(joined([tokens[i] for i in members], tokens) if owner is None else labels[owner])
        apart.append(owner is None and all(special[i] for i in members))
    return Unit(name, tuple(shown), tuple(map(tuple, groups.values())), tuple(apart))


def units_of_chat(
    chat: Chat, text: str, owners: Sequence[int], tokens: Sequence[str], special: Sequence[bool]
) -> dict[str, Unit]:
    """Return the units message, role and turn.

    A turn is a message of a user and all that follows until the next. Messages before the first, and
    documents, are elements by role.

    Args:
        chat: The messages.
        text: The text.
        owners: The part of each token, `TEMPLATE` for none.
        tokens: Display strings.
        special: Whether each token is special.
    """
    names: dict[str, dict[Hashable, str]] = {"message": {}, "role": {}, "turn": {}}
    keys: dict[str, list[Hashable]] = {name: [] for name in names}
    turns = np.cumsum([role == "user" for role in chat.roles]).tolist()
    for number, part in enumerate(chat.parts):
        excerpt = _shortened(written(text, part.runs))
        part_keys: dict[str, Hashable] = {"message": number, "role": part.role, "turn": part.role}
        if part.message is not None and turns[part.message]:
            part_keys["turn"] = turns[part.message]
        for name, key in part_keys.items():
            keys[name].append(key)
        names["message"][number] = f"{part.name}: {excerpt}"
        names["role"][part.role] = part.role
        begins = chat.roles[part.message] == "user" if part.message is not None else False
        label = f"turn {part_keys['turn']}: {excerpt}" if begins else str(part_keys["turn"])
        if begins or part_keys["turn"] not in names["turn"]:
            names["turn"][part_keys["turn"]] = label
    return {
        name: unit_of_owners(
            name,
            [None if owner == TEMPLATE else keys[name][owner] for owner in owners],
            names[name],
            tokens,
            special,
        )
        for name in names
    }


def messages_of(
    chat: Chat, text: str, owners: Sequence[int], special: Sequence[bool], sentences: Unit
) -> tuple[Message, ...]:
    """Return the messages with their tokens; see `units_of_chat` for the arguments."""
    of_token = {token: number for number, span in enumerate(sentences.spans) for token in span}
    of_part: dict[int, list[int]] = {}
    for token, owner in enumerate(owners):
        of_part.setdefault(owner, []).append(token)
    of_message: dict[int | None, list[int]] = {}
    for at, part in enumerate(chat.parts):
        of_message.setdefault(part.message, []).append(at)
    result = []
    for number, role in enumerate(chat.roles):
        part_numbers = of_message.get(number, [])
        tokens = tuple(sorted(token for at in part_numbers for token in of_part.get(at, ())))
        by_kind: dict[str, tuple[int, ...]] = {}
        for at in part_numbers:
            if kind := chat.parts[at].kind:
                by_kind[kind] = tuple(sorted((*by_kind.get(kind, ()), *of_part.get(at, ()))))
        runs = [run for at in part_numbers for run in chat.parts[at].runs]
        result.append(
            Message(
                role,
                written(text, sorted(runs)),
                tokens,
                tuple(dict.fromkeys(of_token[token] for token in tokens if not special[token])),
                MappingProxyType(by_kind),
                chat.dropped[number],
                tuple(token for token in tokens if special[token]),
                number == chat.boundary,
            )
        )
    return tuple(result)


def unit_of_passages(
    passages: Sequence[Passage],
    text: str,
    spans: Sequence[Span],
    parts: Sequence[Part],
    owners: Sequence[int],
    tokens: Sequence[str],
    special: Sequence[bool],
) -> Unit:
    """Return the unit passage: each passage, and the rest of each message or stretch of a plain text.

    Args:
        passages: The passages.
        text: The text.
        spans: Characters of each token.
        parts: The parts of a chat.
        owners: The part of each token, `TEMPLATE` for none.
        tokens: Display strings.
        special: Whether each token is special.
    """
    in_passages = owners_of_characters(text, [passage.runs for passage in passages])
    numbers, _ = owners_of_tokens(text, spans, special, in_passages)
    keys: list[Hashable | None] = []
    labels: dict[Hashable, str] = {at: passage.title for at, passage in enumerate(passages)}
    stretch = 0
    for token, (number, owner) in enumerate(zip(numbers, owners, strict=True)):
        stretch += number != TEMPLATE
        start, end = spans[token]
        key: Hashable | None = None
        if number != TEMPLATE and not special[token]:
            key = number
        elif token and not text[start:end].strip() and owner == owners[token - 1] and not special[token]:
            key = keys[-1]  # blanks belong to the element before them
        elif parts and owner != TEMPLATE:
            key = ("part", owner)
            if key not in labels:
                rest = (at for run in parts[owner].runs for at in range(*run) if in_passages[at] == TEMPLATE)
                labels[key] = f"{parts[owner].name}: {_shortened(''.join(text[at] for at in rest))}"
        elif not parts and not special[token]:
            key = ("rest", stretch)
            if key not in labels:
                after = np.flatnonzero(in_passages[start:] != TEMPLATE)
                labels[key] = _shortened(text[start : start + after[0]] if len(after) else text[start:])
        keys.append(key)
    unit = unit_of_owners("passage", keys, labels, tokens, special)
    return replace(unit, titled=tuple(isinstance(keys[span[0]], int) for span in unit.spans))


def written(text: str, runs: Sequence[Span]) -> str:
    """Return the characters of runs, joined by blanks."""
    return " ".join(text[start:end] for start, end in runs)


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    cut = line if len(line) <= _SHOWN else line[: _SHOWN - 1].rstrip() + "…"
    return visible(cut).replace(SPACE, " ")
