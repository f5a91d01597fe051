"""The messages of a chat, on the page."""

from __future__ import annotations

import pytest

import attnwidgets as aw
from tests.tracing import chats

from .lab import switch
from .settling import settle

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "My name is Ada. I like tea."},
    {"role": "assistant", "content": "Hello Ada."},
    {"role": "user", "content": "What is my name?"},
]


@pytest.fixture(scope="module")
def trace():
    return aw.trace(chats.model(), chats.tokenizer("chatml"), messages=MESSAGES)


@pytest.mark.parametrize("view", ["TokenStrip", "Heatmap", "Explorer"])
def test_a_chat_is_read_by_its_messages(view, trace, page_of):
    page = page_of(getattr(aw, view)(aw.attention(trace)), viewport={"width": 760, "height": 900})
    root = page.locator(".aw-root").first
    switch(page, root, "unit", "messages")
    settle(page)
    axis = trace.units["message"]
    tokens = root.locator(".aw-tok")
    written = [text.strip() for text in tokens.all_inner_texts()]
    if written:  # a strip, or the text of an Explorer
        assert [label for label in written if label.startswith("1 user: ")]
        assert len(written) == len(axis)
    for unit in ("roles", "turns", "sentences", "messages"):
        switch(page, root, "unit", unit)
        settle(page)
    assert root.locator(".aw-failed").count() == 0


def test_template_stands_apart_on_the_page(trace, page_of):
    page = page_of(aw.TokenStrip(aw.attention(trace), unit="message"), viewport={"width": 760, "height": 900})
    special = page.locator(".aw-tok.aw-special")
    assert special.count() == sum(trace.units["message"].special)
