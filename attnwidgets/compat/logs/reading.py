"""aw.compat.read_log: the messages of a log in any of several formats."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attnwidgets.compat.logs.conversation import Conversation, Reader
from attnwidgets.compat.logs.telemetry import calls_in

_SAMPLE = "samples/"
_HEADERS = ("header.json", "_journal/start.json")  # the second while the evaluation runs
_ATTACHED = "attachment://"
_FORMATS = (
    "messages of OpenAI's or Anthropic's API, input and output of OpenAI's Responses, a log of Inspect "
    "(.eval or .json), or spans or events of OpenTelemetry with gen_ai attributes"
)


def read_log(log: Any, call: int = -1) -> Conversation:
    """Return the messages of a log, for `aw.trace(model, tokenizer, messages=...)`.

    Read without the library that wrote it: messages of OpenAI's API (fine-tuning files, the Responses API, a
    request with its response) and of Anthropic's, logs of Inspect, and spans and events of OpenTelemetry by
    the old and the new names of its GenAI attributes. Arguments of tool calls become objects, results of
    tools messages, thoughts `reasoning_content`. Text alone is read; `.left_out` counts the rest.

    Args:
        log: A path (.json, .jsonl, .eval), or the content of such a file.
        call: Which of several: a line of a .jsonl, a sample of Inspect, a call that OpenTelemetry recorded;
            by default the last. A call holds the messages before it.

    Raises:
        ValueError: If the log has another format, or holds no messages (content is not captured by
            default in OpenTelemetry).
        IndexError: If the log has fewer calls.

    Example:
        >>> log = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}
        >>> aw.compat.read_log(log)
        <Conversation of 1 message; OpenAI; by gpt-4o>
    """
    content = _opened(Path(log)) if isinstance(log, (str, Path)) else log
    calls = _calls(content)
    if not calls:
        raise ValueError(f"log must hold {_FORMATS}; this one holds {_named(content)}.")
    try:
        result = calls[call]()
    except IndexError as error:
        raise IndexError(f"call {call} is out of range: the log holds {len(calls)}.") from error
    if not result.messages:
        raise ValueError(
            f"no content was captured in this log ({result.format}): the program that wrote it leaves "
            "messages out unless an option of its instrumentation says otherwise."
        )
    return result


def _named(content: Any) -> str:
    if isinstance(content, Mapping):
        return f"an object with {', '.join(map(repr, [*content][:6])) or 'nothing in it'}"
    return f"a {type(content).__name__}"


def _opened(path: Path) -> Any:
    """Return the content of a file; a file of lines as a list, an archive of Inspect as its samples."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            samples = [name for name in names if name.startswith(_SAMPLE) and name.endswith(".json")]
            header = next((name for name in _HEADERS if name in names), None)
            evaluation = json.loads(archive.read(header)).get("eval") if header else None
            return {"eval": evaluation, "samples": [json.loads(archive.read(name)) for name in samples]}
    text = path.read_text(encoding="utf-8-sig")
    try:
        return json.loads(text)
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise ValueError(f"{path.name} is neither JSON nor lines of JSON: {error}.") from error


def _calls(content: Any) -> list[Callable[[], Conversation]]:
    """Return a reader for each call of a log."""
    if isinstance(content, Mapping) and "samples" in content:
        model = (content.get("eval") or {}).get("model")
        return [partial(_of_inspect, sample, model) for sample in content["samples"] or ()]
    if isinstance(content, Mapping) and isinstance(content.get("events"), list) and "messages" in content:
        return [partial(_of_inspect, content, None)]  # a single sample
    if recorded := calls_in(content):
        return [call.conversation for call in recorded]
    items = content if isinstance(content, list) else []
    if items and all(isinstance(item, Mapping) and "role" in item for item in items):
        content = {"messages": items}
    if isinstance(content, Mapping):
        return _of_api(content)
    return [call for item in items for call in _calls(item)]


def _of_api(log: Mapping[str, Any]) -> list[Callable[[], Conversation]]:
    """Return a reader of a request, with its response if there is one; [] for another object."""
    request = log.get("request") if isinstance(log.get("request"), Mapping) else log
    request = request.get("body", request) if request is not None else log
    response = log.get("response") if isinstance(log.get("response"), Mapping) else log
    response = response.get("body", response) if response is not None else log
    is_request = bool({"messages", "input"} & set(request))
    is_response = {"choices", "output"} & set(response) or response.get("type") == "message"
    return [partial(_read, request, response)] if is_request or is_response else []


def _read(request: Mapping[str, Any], response: Mapping[str, Any]) -> Conversation:
    reader = Reader()
    is_items = "input" in request or "output" in response
    system = request.get("system") or request.get("instructions")
    if system:
        reader.add({"role": "system", "content": system})
    for message in request.get("messages") or ():
        reader.add(message)
    items = request.get("input") or ()
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    for item in (*items, *(response.get("output") or ())):
        reader.item(item)
    for choice in (response.get("choices") or ())[:1]:
        reader.add(choice.get("message") or {}, "assistant")
    if response.get("type") == "message":
        reader.add(response, "assistant")
    is_blocks = request.get("system") or response.get("type") == "message" or _has_blocks(request)
    form = "OpenAI Responses" if is_items else "Anthropic" if is_blocks else "OpenAI"
    return reader.conversation(form, response.get("model") or request.get("model"), request.get("tools"))


def _has_blocks(request: Mapping[str, Any]) -> bool:
    """Return whether contents hold calls, results or thoughts, as Anthropic's do."""
    contents = (message.get("content") for message in request.get("messages") or ())
    kinds = {part.get("type") for parts in contents if isinstance(parts, list) for part in parts}
    return bool(kinds & {"tool_use", "tool_result", "thinking"})


def _of_inspect(sample: Mapping[str, Any], model: Any) -> Conversation:
    """Return the messages of a sample's last call, with its answer; else the sample's messages."""
    attached = sample.get("attachments") or {}
    events = [event for event in sample.get("events") or () if event.get("event") == "model"]
    last = events[-1] if events else {}
    choices = (last.get("output") or sample.get("output") or {}).get("choices") or ()
    reader = Reader()
    messages: list[Any] = [*(sample.get("messages") or ())]
    if isinstance(last.get("input"), list) and last["input"]:
        messages = [*last["input"], *(choice["message"] for choice in choices[:1])]
    for message in messages:
        reader.add(_resolved(message, attached))
    return reader.conversation("Inspect", last.get("model") or model, last.get("tools"))


def _resolved(value: Any, attached: Mapping[str, str]) -> Any:
    """Return a value in which references to attachments are the attachments."""
    if isinstance(value, str) and value.startswith(_ATTACHED):
        return attached.get(value.removeprefix(_ATTACHED), value)
    if isinstance(value, Mapping):
        return {name: _resolved(item, attached) for name, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, attached) for item in value]
    return value
