"""Logs in the published forms of their programs, read into one list of messages."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

import attnwidgets as aw
from tests.tracing import chats

if TYPE_CHECKING:
    from pathlib import Path

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
EXPECTED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Rome?"},
    {"role": "assistant", "content": "", "reasoning_content": "Look it up.", "tool_calls": [CALL]},
    {"role": "tool", "content": "clear", "tool_call_id": "call_1", "name": "weather"},
    {"role": "assistant", "content": "It is clear."},
]
ARGUMENTS = json.dumps({"city": "Rome"})

OPENAI = {
    "model": "gpt-4o",
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Weather in Rome?"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Look it up.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "clear"},
    ],
}
ANSWER = {
    "model": "gpt-4o-2024-08-06",
    "choices": [{"message": {"role": "assistant", "content": "It is clear."}}],
}
RESPONSES = {
    "model": "gpt-5",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather in Rome?"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look it up."}]},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": ARGUMENTS},
        {"type": "function_call_output", "call_id": "call_1", "output": "clear"},
    ],
    "output": [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is clear."}]}
    ],
}
ANTHROPIC = {
    "model": "claude",
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Weather in Rome?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Look it up.", "signature": "x"},
                {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_1",
                    "content": [{"type": "text", "text": "clear"}],
                }
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "It is clear."}]},
    ],
}
SAMPLE = {
    "id": 1,
    "attachments": {"abc": "clear"},
    "messages": [],
    "events": [
        {
            "event": "model",
            "input": [{"role": "user", "content": "An earlier call."}],
            "model": "openai/gpt-4o",
        },
        {
            "event": "model",
            "model": "openai/gpt-4o",
            "input": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Weather in Rome?"},
                {
                    "role": "assistant",
                    "content": [{"type": "reasoning", "reasoning": "Look it up."}],
                    "tool_calls": [{"id": "call_1", "function": "weather", "arguments": {"city": "Rome"}}],
                },
                {
                    "role": "tool",
                    "content": "attachment://abc",
                    "tool_call_id": "call_1",
                    "function": "weather",
                },
            ],
            "output": {"choices": [{"message": {"role": "assistant", "content": "It is clear."}}]},
        },
    ],
}
NEW_NAMES = {
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
    "gen_ai.input.messages": [
        {"role": "user", "parts": [{"type": "text", "content": "Weather in Rome?"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Look it up."},
                {"type": "tool_call", "id": "call_1", "name": "weather", "arguments": {"city": "Rome"}},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "clear"}]},
    ],
    "gen_ai.output.messages": [
        {"role": "assistant", "parts": [{"type": "text", "content": "It is clear."}], "finish_reason": "stop"}
    ],
}


def otlp(value: Any) -> dict[str, Any]:
    """Return a value as OTLP's JSON spells it."""
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": k, "value": otlp(v)} for k, v in value.items()]}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [otlp(item) for item in value]}}
    return {"stringValue": value}


def exported(attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    span = {"attributes": [{"key": k, "value": otlp(v)} for k, v in attributes.items()], **more}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


BODIES: list[tuple[str, dict[str, Any]]] = [
    ("gen_ai.system.message", {"content": "Be brief."}),
    ("gen_ai.user.message", {"content": "Weather in Rome?"}),
    ("gen_ai.assistant.message", OPENAI["messages"][2]),
    ("gen_ai.tool.message", {"id": "call_1", "content": "clear"}),
    ("gen_ai.choice", {"index": 0, "message": {"role": "assistant", "content": "It is clear."}}),
]
RECORDS = {
    "resourceLogs": [
        {
            "scopeLogs": [
                {
                    "logRecords": [
                        {
                            "eventName": name,
                            "spanId": "s",
                            "body": otlp(json.loads(json.dumps(body).replace("null", '""'))),
                        }
                        for name, body in BODIES
                    ]
                }
            ]
        }
    ]
}
ON_THE_SPAN = {
    "name": "chat gpt-4o",
    "context": {"span_id": "s"},
    "attributes": {"gen_ai.request.model": "gpt-4o"},
    "events": [{"name": name, "attributes": body} for name, body in BODIES],
}
ONE_BY_ONE = {
    "attributes": {
        "gen_ai.response.model": "gpt-4o",
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": "Weather in Rome?",
        "gen_ai.prompt.2.role": "assistant",
        "gen_ai.prompt.2.reasoning_content": "Look it up.",
        "gen_ai.prompt.2.tool_calls.0.id": "call_1",
        "gen_ai.prompt.2.tool_calls.0.name": "weather",
        "gen_ai.prompt.2.tool_calls.0.arguments": ARGUMENTS,
        "gen_ai.prompt.3.role": "tool",
        "gen_ai.prompt.3.content": "clear",
        "gen_ai.prompt.3.tool_call_id": "call_1",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "It is clear.",
    }
}
LOGS = {
    "a list": (OPENAI["messages"] + [ANSWER["choices"][0]["message"]], "OpenAI", ""),
    "request and response": ({"request": OPENAI, "response": ANSWER}, "OpenAI", "gpt-4o-2024-08-06"),
    "responses": (RESPONSES, "OpenAI Responses", "gpt-5"),
    "anthropic": (ANTHROPIC, "Anthropic", "claude"),
    "inspect": ({"eval": {"model": "openai/gpt-4o"}, "samples": [SAMPLE]}, "Inspect", "openai/gpt-4o"),
    "a sample": (SAMPLE, "Inspect", "openai/gpt-4o"),
    "new names": ({"attributes": NEW_NAMES}, "OpenTelemetry", "gpt-4o"),
    "new names as text": (
        {"attributes": {k: v if isinstance(v, str) else json.dumps(v) for k, v in NEW_NAMES.items()}},
        "OpenTelemetry",
        "gpt-4o",
    ),
    "new names, exported": (exported(NEW_NAMES), "OpenTelemetry", "gpt-4o"),
    "new names in an event": (
        {
            "attributes": {},
            "events": [{"name": "gen_ai.client.inference.operation.details", "attributes": NEW_NAMES}],
        },
        "OpenTelemetry",
        "gpt-4o",
    ),
    "old events": (RECORDS, "OpenTelemetry", ""),
    "old events of a span": ([ON_THE_SPAN], "OpenTelemetry", "gpt-4o"),
    "old attributes": ([ONE_BY_ONE], "OpenTelemetry", "gpt-4o"),
}


@pytest.mark.parametrize("name", LOGS)
def test_every_format_gives_the_same_messages(name: str) -> None:
    log, form, model = LOGS[name]
    result = aw.compat.read_log(log)
    assert [*result] == EXPECTED
    assert (result.format, result.model) == (form, model)


def test_files(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(json.dumps(OPENAI))
    assert [*aw.compat.read_log(tmp_path / "log.json")] == EXPECTED[:4]
    lines = [{"messages": [{"role": "user", "content": str(number)}]} for number in range(3)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert aw.compat.read_log(str(tmp_path / "log.jsonl"))[0]["content"] == "2"
    assert aw.compat.read_log(tmp_path / "log.jsonl", call=0)[0]["content"] == "0"
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", json.dumps({"eval": {"model": "openai/gpt-4o"}}))
        archive.writestr("samples/1_epoch_1.json", json.dumps(SAMPLE))
        archive.writestr("summaries.json", "[]")
    result = aw.compat.read_log(tmp_path / "log.eval")
    assert ([*result], result.model) == (EXPECTED, "openai/gpt-4o")
    with pytest.raises(IndexError, match="call 1 is out of range: the log holds 1"):
        aw.compat.read_log(tmp_path / "log.eval", call=1)
    (tmp_path / "log.txt").write_text("no log")
    with pytest.raises(ValueError, match=r"log\.txt is neither JSON nor lines of JSON"):
        aw.compat.read_log(tmp_path / "log.txt")


def test_what_is_no_log_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"log must hold messages of OpenAI.*this one holds an object with 'a'"
    ):
        aw.compat.read_log({"a": 1})
    with pytest.raises(ValueError, match=r"no content was captured in this log \(OpenTelemetry\)"):
        aw.compat.read_log({"attributes": {"gen_ai.request.model": "gpt-4o"}})


def test_pictures_are_counted_and_left_out() -> None:
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    result = aw.compat.read_log([{"role": "user", "content": content}])
    assert [*result] == [{"role": "user", "content": "What is it?"}]
    assert result.left_out == ("1 image_url",)


def test_a_log_is_traced_and_its_model_named() -> None:
    log = aw.compat.read_log(LOGS["anthropic"][0])
    trace = aw.trace(chats.model(), chats.tokenizer("qwen3"), messages=log)
    assert [message.role for message in trace.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [*trace.messages[2].parts] == ["thought", "call"]
    assert trace.warning == "the log is by claude; probabilities are those of the model that was traced"
