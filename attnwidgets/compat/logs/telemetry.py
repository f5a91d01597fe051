"""Spans and events of OpenTelemetry that hold messages, by old and new names of its GenAI attributes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnwidgets.compat.logs.conversation import Conversation, Reader

_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_SYSTEM = ("gen_ai.system_instructions", "gen_ai.system.instructions")
_MODELS = ("gen_ai.response.model", "gen_ai.request.model")
_TOOLS = "gen_ai.tool.definitions"
_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message|gen_ai\.choice")
_NUMBERED = re.compile(r"gen_ai\.(prompt|completion)\.(\d+)\.(\w+)(?:\.(\d+)\.(\w+))?")
_WHOLE = {"gen_ai.content.prompt": "gen_ai.prompt", "gen_ai.content.completion": "gen_ai.completion"}
_INSIDE = (
    *("resourceSpans", "scopeSpans", "spans", "resourceLogs", "scopeLogs", "logRecords"),
    *("resource_spans", "scope_spans", "resource_logs", "scope_logs", "log_records"),
)


@dataclass(frozen=True)
class Call:
    """A recorded call of a model.

    Attributes:
        attributes: Attributes of its span, and of its events.
        events: Its events by message, as pairs of the event's name and its body.
    """

    attributes: Mapping[str, Any]
    events: Sequence[tuple[str, Any]] = ()

    def conversation(self) -> Conversation:
        """Return its messages and its answer."""
        reader, values = Reader(), self.attributes
        for name in _SYSTEM:
            if parts := values.get(name):
                reader.add({"role": "system", "parts": parts if isinstance(parts, list) else [parts]})
        for name in (_INPUT, "gen_ai.prompt", _OUTPUT, "gen_ai.completion"):
            messages = values.get(name) or ()
            messages = [{"content": messages}] if isinstance(messages, str) else messages
            for message in [messages] if isinstance(messages, Mapping) else messages:
                reader.add(message, "assistant" if name in (_OUTPUT, "gen_ai.completion") else "user")
        for message in _numbered(values):
            reader.add(message)
        for name, body in self.events:
            message = body.get("message", body) if isinstance(body, Mapping) else {"content": body}
            role = _EVENT.fullmatch(name)
            numbered = {"tool_call_id": message["id"]} if "id" in message else {}
            reader.add(numbered | message, (role[1] if role else None) or "assistant")
        model = next((values[name] for name in _MODELS if values.get(name)), "")
        return reader.conversation("OpenTelemetry", model, values.get(_TOOLS))


def calls_in(content: Any) -> list[Call]:
    """Return the calls of a model in spans or events, in whichever nesting; [] if these are none."""
    calls = []
    loose: dict[str, list[tuple[str, Any]]] = {}
    models: dict[str, dict[str, Any]] = {}
    for item in _items(content):
        attributes = _attributes(item.get("attributes"))
        name = str(item.get("eventName") or item.get("event_name") or attributes.get("event.name") or "")
        if _EVENT.fullmatch(name):  # a log record
            span = str(item.get("spanId") or item.get("span_id") or "")
            loose.setdefault(span, []).append((name, _value(item.get("body"))))
            models.setdefault(span, {}).update(attributes)
            continue
        events = []
        for event in item.get("events") or ():
            inside = _attributes(event.get("attributes"))
            attributes |= {_WHOLE.get(key, key): value for key, value in inside.items() if "gen_ai" in key}
            if _EVENT.fullmatch(str(event.get("name"))):
                # Some programs write an event's message into attributes of the same names.
                body = {name.removeprefix("gen_ai."): value for name, value in inside.items()}
                events.append((str(event["name"]), body))
        if any(key.startswith("gen_ai.") for key in attributes):
            calls.append(Call(attributes, events))
            context = item.get("context") or item
            models[str(context.get("span_id") or context.get("spanId") or "")] = attributes
    calls += [Call(models[span], events) for span, events in loose.items()]
    # Agents and tools have spans, too; a call has messages.
    return [call for call in calls if call.conversation().messages] or calls[-1:]


def _items(content: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the spans and log records in exported data."""
    if isinstance(content, Mapping):
        inside = [name for name in _INSIDE if isinstance(content.get(name), list)]
        for name in inside:
            yield from _items(content[name])
        if not inside and ("attributes" in content or "body" in content):
            yield content
    elif isinstance(content, list):
        for item in content:
            yield from _items(item)


def _attributes(attributes: Any) -> dict[str, Any]:
    """Return attributes as an object, with values that are JSON read."""
    if isinstance(attributes, list):
        attributes = {item["key"]: _value(item.get("value")) for item in attributes}
    return {str(name): _parsed(value) for name, value in (attributes or {}).items()}


def _value(value: Any) -> Any:
    """Return a value of OTLP's JSON as a plain value."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return _parsed(value)
    ((kind, inside),) = value.items()
    if kind == "kvlistValue":
        return {item["key"]: _value(item.get("value")) for item in inside.get("values") or ()}
    if kind == "arrayValue":
        return [_value(item) for item in inside.get("values") or ()]
    return _parsed(inside) if kind in ("stringValue", "intValue", "doubleValue", "boolValue") else value


def _parsed(value: Any) -> Any:
    """Return text that is a JSON object or list as such."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _numbered(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return messages that are spelled with an attribute for each field: gen_ai.prompt.0.role."""
    messages: dict[tuple[bool, int], dict[str, Any]] = {}
    for key, value in attributes.items():
        match = _NUMBERED.fullmatch(key)
        if match is None:
            continue
        message = messages.setdefault((match[1] == "completion", int(match[2])), {})
        if match[4] is None:
            message[match[3]] = value
        else:
            calls = message.setdefault(match[3], {})
            calls.setdefault(int(match[4]), {})[match[5]] = value
    for (is_answer, _), message in messages.items():
        message.setdefault("role", "assistant" if is_answer else "user")
        if isinstance(message.get("tool_calls"), dict):
            message["tool_calls"] = [call for _, call in sorted(message["tool_calls"].items())]
    return [message for _, message in sorted(messages.items())]
