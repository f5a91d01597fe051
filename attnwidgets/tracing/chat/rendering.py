"""Chats as the text that a model reads, with the part of the text that each message is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.tracing.chat.origin import DependsOnWordsError, Origin, origins
from attnwidgets.tracing.text.display import well_formed
from attnwidgets.tracing.text.messages import Chat, Part, Passage, divided

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.tracing.text.messages import Span

_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_REPLIES = ("assistant", "model")
_RESULTS = ("tool", "function", "ipython")
_UNREAD = (
    "this text has no units of messages: its chat template renders other words in another way, so that its "
    "characters cannot be told apart"
)


@dataclass(frozen=True)
class Written:
    """A string that somebody wrote.

    Attributes:
        message: Number of its message, or of its document.
        kind: "content", "reply" (content of the assistant, which may spell a thought), "thought", "name" (of
            a tool) or "arguments"; "document".
        call: Number of its call in its message.
    """

    message: int
    kind: str
    call: int = 0


@dataclass(frozen=True)
class Rendering:
    """A chat as a text.

    Attributes:
        text: What the model reads.
        chat: Its messages; None if the template's text does not say which is which.
        notes: What readers must know: what the template dropped.
        strings: The strings that were given, in their order.
        origin: Which of them each character of the text is from.
    """

    text: str
    chat: Chat | None
    notes: tuple[str, ...]
    strings: tuple[str, ...] = ()
    origin: Origin | None = None

    @property
    def documents(self) -> tuple[Passage, ...]:
        """The documents that the template wrote, as passages."""
        parts = () if self.chat is None else self.chat.parts
        return tuple(Passage(part.name, part.runs) for part in parts if part.kind == "document")

    def places(self, string: int, start: int, end: int) -> tuple[Span, ...]:
        """Return where characters of a given string are in the text, as pairs (start, end)."""
        if self.origin is None:
            return ()
        offset = self.origin.offset
        return _runs((self.origin.string == string) & (offset >= start) & (offset < end), self.text)


def rendered(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
) -> Rendering:
    """Return messages in the tokenizer's template, prompting for an answer unless one is last.

    Args:
        tokenizer: A tokenizer with a chat template.
        messages: Messages with a role, and a content or tool calls.
        tools: Tools that the model may call.
        documents: Documents that the model may quote, with "title" and "text".
        variables: Further variables of the template.

    Raises:
        ValueError: If the tokenizer has no chat template, it refuses the messages, or these have no role.
    """
    require_messages(messages)
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            f"messages need a chat template, and {type(tokenizer).__name__} has none; pass text instead"
        )
    options: dict[str, Any] = {"add_generation_prompt": messages[-1]["role"] != "assistant"}
    options |= variables or {}

    def render(given: Sequence[Any], read: Sequence[Any] | None) -> str:
        from jinja2 import TemplateError

        more = {"tools": tools, "documents": read} | options
        try:
            return str(tokenizer.apply_chat_template(list(given), tokenize=False, **more))
        except (TemplateError, TypeError, KeyError, IndexError) as error:
            raise ValueError(f"the chat template of this tokenizer refuses the messages: {error}") from error

    given = _through(messages, documents, lambda _, string: well_formed(string), wide=True)
    text = render(*given)
    for wide in (True, False):
        strings: list[str] = []
        kinds: list[Written] = []
        _through(*given, _collecting(strings, kinds), wide=wide)

        def other(new: Sequence[str], wide: bool = wide) -> str:
            words = iter(new)
            return render(*_through(*given, lambda *_: next(words), wide=wide))

        try:
            origin = origins(other, strings)
        except DependsOnWordsError:
            continue
        special = [token for token in getattr(tokenizer, "all_special_tokens", ()) if token]
        parts = _parts(given, kinds, strings, origin, special)
        roles = tuple(str(message["role"]) for message in messages)
        chat = Chat(roles, parts, _dropped(kinds, strings, origin, len(roles)))
        return Rendering(text, chat, (*_written_by(messages), *_notes(chat)), tuple(strings), origin)
    return Rendering(text, None, (*_written_by(messages), _UNREAD))


def require_messages(messages: Any) -> None:
    """Raise a ValueError unless these are messages with a role, and with a content or tool calls."""
    is_list = isinstance(messages, Sequence) and not isinstance(messages, str) and len(messages) > 0
    if is_list and all(
        isinstance(m, Mapping) and "role" in m and {"content", "tool_calls", *_THOUGHTS} & set(m)
        for m in messages
    ):
        return
    raise ValueError('messages must be a list like [{"role": "user", "content": "Hello"}]')


def _collecting(strings: list[str], kinds: list[Written]) -> Callable[[Written, str], str]:
    def collect(kind: Written, string: str) -> str:
        strings.append(string)
        kinds.append(kind)
        return string

    return collect


def _through(
    messages: Sequence[Any],
    documents: Sequence[Any] | None,
    visit: Callable[[Written, str], str],
    *,
    wide: bool,
) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """Return messages and documents in which `visit` has replaced every string that somebody wrote.

    Args:
        messages: The messages.
        documents: The documents, if any.
        visit: The new string, from what a string is and the string.
        wide: Whether names of tools and of their arguments count, which a few templates look up.
    """
    result = []
    for number, message in enumerate(messages):
        new = dict(message)
        if new.get("content") is None and (new.get("tool_calls") or "content" not in new):
            new["content"] = ""  # templates add to it
        kind = Written(number, "reply" if new["role"] in _REPLIES else "content")
        new["content"] = _content(new["content"], partial(visit, kind))
        for name in _THOUGHTS:
            if isinstance(new.get(name), str):
                new[name] = visit(Written(number, "thought"), new[name])
        if new.get("tool_calls"):
            new["tool_calls"] = [
                _call(call, number, at, visit, wide=wide) for at, call in enumerate(new["tool_calls"])
            ]
        result.append(new)
    if documents is None:
        return result, None
    read = [
        _deep(document, partial(visit, Written(number, "document")), names=False)
        for number, document in enumerate(documents)
    ]
    return result, read


def _content(content: Any, visit: Callable[[str], str]) -> Any:
    """Return a content with other strings: a string, parts with a type, or what a tool gave."""
    if isinstance(content, list) and all(isinstance(part, Mapping) and "type" in part for part in content):
        return [
            {k: visit(v) if k == "text" and isinstance(v, str) else v for k, v in part.items()}
            for part in content
        ]
    return _deep(content, visit, names=False)


def _call(
    call: Mapping[str, Any], message: int, at: int, visit: Callable[[Written, str], str], *, wide: bool
) -> dict[str, Any]:
    """Return a tool call with other strings."""
    new = dict(call)
    function = new = dict(new["function"]) if isinstance(new.get("function"), Mapping) else new
    if wide and isinstance(function.get("name"), str):
        function["name"] = visit(Written(message, "name", at), function["name"])
    if "arguments" in function:
        kind = Written(message, "arguments", at)
        function["arguments"] = _deep(function["arguments"], partial(visit, kind), names=wide)
    return {**call, "function": function} if "function" in call else function


def _deep(value: Any, visit: Callable[[str], str], *, names: bool) -> Any:
    if isinstance(value, str):
        return visit(value)
    if isinstance(value, Mapping):
        return {
            visit(key) if names and isinstance(key, str) else key: _deep(item, visit, names=names)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_deep(item, visit, names=names) for item in value]
    return value


def _parts(
    given: tuple[list[dict[str, Any]], list[Any] | None],
    kinds: Sequence[Written],
    strings: Sequence[str],
    origin: Origin,
    special: Sequence[str],
) -> tuple[Part, ...]:
    """Return the parts of a text that messages and documents are."""
    masks: dict[tuple[int, str, int], NDArray[np.bool_]] = {}
    for at, (written, string) in enumerate(zip(kinds, strings, strict=True)):
        here = origin.string == at
        for part, mask in _kinds(written, string, here, origin.offset):
            key = (written.message, part, written.call)
            masks[key] = masks.get(key, False) | mask
    thoughtful = {number for number, kind, _ in masks if kind == "thought"}
    parts = []
    for (number, kind, call), mask in masks.items():
        runs = _runs(_joined(mask, origin.text, special) if kind == "call" else mask, origin.text)
        if runs and kind == "document":
            title = (given[1] or [])[number]
            title = title.get("title") if isinstance(title, Mapping) else None
            parts.append(Part(None, kind, kind, _named(f"document {number}", title, ", "), runs))
        elif runs:
            parts.append(_part(given[0][number], number, kind, call, runs, number in thoughtful))
    return tuple(parts)


def _kinds(
    kind: Written, string: str, here: NDArray[np.bool_], offset: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield the kinds of part that a string makes, and which characters of the text each is [character].

    Args:
        kind: What the string is.
        string: The string.
        here: Whether a character of the text is from it [character].
        offset: The position of each in its string [character].
    """
    if kind.kind == "name":
        # A template may repeat the name elsewhere, as before the tool's result.
        places = np.flatnonzero(here)
        once = np.zeros_like(here)
        once[places[np.unique(offset[places], return_index=True)[1]]] = True
        yield "call", once
    elif kind.kind == "arguments":
        yield "call", here
    elif kind.kind == "reply":
        thought, answer = divided(string)
        for name, span in (("thought", thought), ("content", answer)):
            if span is not None:
                yield name, here & (offset >= span[0]) & (offset < span[1])
    else:
        yield kind.kind, here


def _part(
    message: Mapping[str, Any], number: int, kind: str, call: int, runs: tuple[Span, ...], thinks: bool
) -> Part:
    """Return a part of a message, named for its label.

    Args:
        message: The message.
        number: Its number.
        kind: "content", "thought" or "call".
        call: Number of the call.
        runs: Its characters.
        thinks: Whether the message has a thought.
    """
    role = str(message["role"])
    name = f"{number} {role}"
    if kind == "call":
        function = message["tool_calls"][call]
        name = _named(f"{name}, call", (function.get("function") or function).get("name"), " ")
    elif kind == "thought":
        name = f"{name}, thought"
    elif thinks:
        name, kind = f"{name}, answer", "answer"
    else:
        kind = "result" if role in _RESULTS else ""
    return Part(number, role, kind, name, runs)


def _dropped(
    kinds: Sequence[Written], strings: Sequence[str], origin: Origin, count: int
) -> tuple[tuple[str, ...], ...]:
    """Return what is not in the text of each of `count` messages; a thought given twice counts once."""
    read = {
        (kind.message, string)
        for kind, string, lost in zip(kinds, strings, origin.lost, strict=True)
        if not lost
    }
    dropped: list[dict[str, None]] = [{} for _ in range(count)]
    for kind, string, lost in zip(kinds, strings, origin.lost, strict=True):
        if kind.kind != "document" and (kind.message, string) not in read:
            stretches = (string[start:end].strip() for start, end in lost)
            dropped[kind.message] |= dict.fromkeys(filter(None, stretches))
    return tuple(map(tuple, dropped))


def _named(text: str, name: Any, between: str) -> str:
    return f"{text}{between}{name}" if isinstance(name, str) and name else text


def _joined(mask: NDArray[np.bool_], text: str, special: Sequence[str]) -> NDArray[np.bool_]:
    """Return a call's characters with the signs between them, where no special token divides these."""
    result = mask.copy()
    for before, after in pairwise(np.flatnonzero(mask).tolist()):
        if not any(token in text[before + 1 : after] for token in special):
            result[before:after] = True
    return result


def _runs(mask: NDArray[np.bool_], text: str) -> tuple[Span, ...]:
    """Return the runs of characters in a mask, without the blanks at their ends; none of blanks alone."""
    edges = np.flatnonzero(np.diff(np.r_[False, mask, False])).tolist()
    runs = []
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        inside = text[start:end]
        if inside.strip():
            begin = start + len(inside) - len(inside.lstrip())
            runs.append((begin, start + len(inside.rstrip())))
    return tuple(runs)


def _notes(chat: Chat) -> tuple[str, ...]:
    """Return what the template dropped, in words."""
    inside = {part.message for part in chat.parts}
    notes = []
    for number, (role, dropped) in enumerate(zip(chat.roles, chat.dropped, strict=True)):
        count = sum(map(len, dropped))
        if not count:
            continue
        if number not in inside:
            notes.append(f"message {number} ({role}) is not in the prompt: the chat template drops it")
        else:
            unit = "character" if count == 1 else "characters"
            notes.append(
                f"{count:,} {unit} of message {number} ({role}) {'is' if count == 1 else 'are'} not in the "
                f"prompt: the chat template drops {_shown(dropped)}"
            )
    return tuple(notes)


def _written_by(messages: Any) -> tuple[str, ...]:
    """Return whose model wrote a log, in words: `aw.compat.read_log` keeps its name."""
    model = getattr(messages, "model", "")
    return (f"the log is by {model}; probabilities are those of the model that was traced",) if model else ()


def _shown(dropped: Sequence[str], most: int = 40) -> str:
    line = " ".join(" … ".join(dropped).split())
    return repr(line if len(line) <= most else line[: most - 1] + "…")
