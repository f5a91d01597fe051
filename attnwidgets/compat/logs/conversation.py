"""The messages of a log, in the form that chat templates take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

_TEXTS = ("text", "input_text", "output_text", "refusal")
_THOUGHTS = ("thinking", "reasoning")
_CALLS = ("tool_use", "tool_call", "function_call")
_RESULTS = ("tool_result", "tool_call_response", "function_call_output")
_ROLES = {"developer": "system", "human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}


@dataclass(frozen=True)
class Conversation(Sequence[dict[str, Any]]):
    """The messages of a log: a sequence of dictionaries, for `aw.trace(model, tokenizer, messages=...)`.

    Attributes:
        messages: The messages.
        model: The model that the log names, "" if it names none. If another model is traced, explanations are
            of that model.
        format: The format of the log.
        tools: The tools that the log lists, for `aw.trace(..., tools=...)`.
        left_out: Parts that were not read, in words: pictures, sound, files.
    """

    messages: tuple[dict[str, Any], ...]
    model: str = ""
    format: str = ""
    tools: tuple[Any, ...] = ()
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | Sequence[dict[str, Any]]:
        return self.messages[index]

    def __repr__(self) -> str:
        count = f"{len(self)} message{'' if len(self) == 1 else 's'}"
        return f"<Conversation of {count}; {self.format}; by {self.model or 'a model that it does not name'}>"


class Reader:
    """Messages of any of the formats, in sequence, in a common form."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.left_out: dict[str, int] = {}
        self._tools: dict[str, str] = {}

    def add(self, message: Mapping[str, Any], role: str = "") -> None:
        """Add a message with a content or parts; results of tools in it become separate messages."""
        role = str(message.get("role") or role or "user")
        role = _ROLES.get(role, role)
        content = message["parts"] if "parts" in message else message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if isinstance(parts, Mapping):  # the result of a tool
            parts = [{"type": "text", "text": json.dumps(parts, ensure_ascii=False)}]
        texts: list[str] = []
        thoughts = [
            message[name] for name in ("reasoning_content", *_THOUGHTS) if isinstance(message.get(name), str)
        ]
        calls = [*(message.get("tool_calls") or ())]
        if isinstance(message.get("function_call"), Mapping):
            calls.append(message["function_call"])
        for part in parts or ():
            self._part(part, texts, thoughts, calls)
        new: dict[str, Any] = {"role": role, "content": "\n".join(texts)}
        if thoughts:
            new["reasoning_content"] = "\n".join(thoughts)
        if calls:
            new["tool_calls"] = [self._call(call) for call in calls]
        if role == "tool":
            number = str(message.get("tool_call_id") or "")
            name = message.get("name") or message.get("function") or self._tools.get(number)
            new |= {"tool_call_id": number} | ({"name": name} if name else {})
        if any(value for name, value in new.items() if name != "role") or parts is None:
            self.messages.append(new)

    def _part(self, part: Any, texts: list[str], thoughts: list[str], calls: list[Any]) -> None:
        """Sort a part of a content."""
        if isinstance(part, str):
            texts.append(part)
            return
        kind = part.get("type", "text")
        if kind in _TEXTS:
            texts.append(str(part.get("text", part.get("refusal", part.get("content", "")))))
        elif kind in _THOUGHTS:
            text = part.get("thinking", part.get("reasoning", part.get("content", part.get("text"))))
            summary = part.get("summary")
            thoughts += [text] if isinstance(text, str) else []
            thoughts += [item["text"] for item in (*(summary or ()), *(text or ())) if isinstance(item, dict)]
        elif kind in _CALLS:
            calls.append(part)
        elif kind in _RESULTS:
            self._result(part)
        else:
            self.left_out[kind] = self.left_out.get(kind, 0) + 1

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call with its arguments as an object, as templates take them."""
        inner = call.get("function")
        function: Mapping[str, Any] = inner if isinstance(inner, Mapping) else call
        name = str(inner if isinstance(inner, str) else function.get("name", ""))
        arguments = function.get("arguments", function.get("input", {}))
        if isinstance(arguments, str):
            try:
                parsed = json.loads(arguments)
            except ValueError:
                parsed = None
            arguments = parsed if isinstance(parsed, dict) else arguments
        number = str(call.get("call_id") or call.get("id") or "")
        self._tools[number] = name
        return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _result(self, part: Mapping[str, Any]) -> None:
        """Add the result of a tool."""
        number = part.get("tool_use_id") or part.get("call_id") or part.get("tool_call_id") or part.get("id")
        names = ("content", "output", "response", "result")
        value = next((part[name] for name in names if part.get(name) is not None), "")
        is_parts = isinstance(value, (str, list))
        content = value if is_parts else json.dumps(value, ensure_ascii=False)
        self.add({"role": "tool", "content": content, "tool_call_id": number})

    def item(self, item: Mapping[str, Any]) -> None:
        """Add an item of OpenAI's Responses; consecutive items of the assistant become a single message."""
        kind = item.get("type", "message")
        if kind in _RESULTS:
            self._result(item)
        elif kind == "message":
            self._joined(item)
        else:
            self._joined({"role": "assistant", "content": [item]})

    def _joined(self, message: Mapping[str, Any]) -> None:
        before = self.messages[-1] if self.messages else None
        count = len(self.messages)
        self.add(message)
        if before is None or len(self.messages) == count or before["role"] != "assistant":
            return
        last = self.messages[-1]
        if last["role"] == "assistant":
            self.messages.pop()
            for name, value in last.items():
                if name == "tool_calls":
                    before[name] = [*before.get(name, ()), *value]
                elif name != "role" and value:
                    before[name] = f"{before[name]}\n{value}" if before.get(name) else value

    def conversation(self, form: str, model: Any, tools: Any = None) -> Conversation:
        """Return the messages that were read.

        Args:
            form: The format of the log.
            model: The model that it names.
            tools: The tools that it lists.
        """
        left_out = (f"{count} {kind}" for kind, count in self.left_out.items())
        listed = tuple(tools) if isinstance(tools, list) else ()
        return Conversation(tuple(self.messages), str(model or ""), form, listed, tuple(left_out))
