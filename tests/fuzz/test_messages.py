"""Arbitrary messages from a page: views answer each request once, in JSON, and leave the model unchanged."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from traitlets import log

import attnwidgets as aw
from tests.tracing import tiny

from .fuzzing import fingerprint, fuzz

STRANGE = [
    *(None, -1, 0, 1, 2.5, 1e400, float("nan"), 10**30, True, [], {}, [0], [None], [[]], {"a": 1}, b"x"),
    *("", "x", "attention", "lrp", "mean", "max", "-", "__class__", "\ud800", "A" * 5000),
]  # fmt: skip
FIELDS: dict[str, list[Any]] = {
    "layer": [0, 1],
    "head": [0, 1, "mean"],
    "heads": [[0, 1], [0]],
    "row": [0, 1, 2],
    "job": [1, 2],
    "topic": ["csv", "predictions", "head", "neuron", "preview"],
    "args": [{}, {"layer": 0, "head": 0}],
}
KINDS = ["tile", "layer", "row", "thumbs", "ping", "cancel", "method", "ask"]


@pytest.fixture
def logged() -> Any:
    """Exceptions of handlers: ipywidgets only logs them, and the view would wait forever."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = records.append  # type: ignore[method-assign]
    log.get_logger().addHandler(handler)
    yield records
    log.get_logger().removeHandler(handler)


def test_messages(logged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build(tiny.TEXT["Llama"]).train()
    before = fingerprint(model)
    trace = aw.trace(model, None, [1, 2, 3, 4, 5, 6])
    makes = (aw.Explorer, aw.HeadGrid, aw.TokenStrip, aw.NeuronView, aw.HeadView, aw.InterventionView)
    views = [make(trace) for make in makes]
    receivers = [*views, views[0].store]
    replies: list[Any] = []
    for receiver in receivers:
        monkeypatch.setattr(receiver, "send", lambda content, buffers=None: replies.append(content))
    header = views[0].store.header
    sources = [source["id"] for source in header["sources"]] + ["lrp", "rollout"]

    def a_message(r: Any) -> None:
        receiver = r.choice(receivers)
        good = {"kind": KINDS, "id": [1, 2, 3], "source": sources, **FIELDS}
        request: Any = {
            name: r.choice(values) if r.random() < 0.7 else r.choice(STRANGE)
            for name, values in good.items()
            if r.random() < 0.85
        }
        if r.random() < 0.03:
            request = r.choice(STRANGE)
        replies.clear()
        logged.clear()
        receiver._handle_custom_msg(request, [])
        assert not logged, logged[0].getMessage()
        for reply in replies:
            json.dumps(reply, allow_nan=False)
        kind = request.get("kind") if isinstance(request, dict) else None
        expects_answer = kind == "ask" if receiver in views else kind != "cancel"
        if expects_answer:
            last = [reply for reply in replies if reply["kind"] != "progress"]
            assert len(last) == 1, f"{request} got {len(last)} answers"
            assert last[0]["kind"] != "error" or last[0]["message"].strip()

    fuzz(a_message, 2500)
    assert fingerprint(model) == before
    for view in views:
        assert view._repr_mimebundle_()
        view.close()
