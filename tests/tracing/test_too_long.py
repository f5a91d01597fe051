"""Results that are too large for a long text are refused before they start, with an alternative."""

from __future__ import annotations

from typing import Any

import pytest

import attnwidgets as aw
from attnwidgets.tracing import free_memory
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny
from tests.tracing.test_rows import long_model

TEXT = "the cat sat on the mat. " * 240


@pytest.fixture(scope="module")
def long() -> Any:
    return trace(tiny.build(long_model), tiny.wordpiece(), TEXT)


@pytest.fixture
def _little_memory(monkeypatch: pytest.MonkeyPatch, long: Any) -> None:
    """Leave no room for the weights of a layer."""
    left = 4 * len(long.tokens) ** 2 * long.n_heads() - 1
    monkeypatch.setattr(free_memory, "free_bytes", lambda device=None: left)


@pytest.mark.usefixtures("_little_memory")
def test_a_layer_is_refused_with_what_to_read_instead(long: Any) -> None:
    attention = aw.attention(long)
    for ask in (lambda: attention.layer(1), lambda: attention.to("word").layer(1)):
        with pytest.raises(ValueError, match=r"layer 1 of attention.* takes about .*\.to\('sentence'\)"):
            ask()
    with pytest.raises(ValueError, match=r"the attention of layer 1 over .* attention_rows"):
        long.attention_layer(1)
    assert long.attention_rows(1, [0], [5]).shape == (1, 1, len(long.tokens))
    assert attention.rows(1, [0], [5]).shape == (1, 1, len(long.tokens))
    sentences = attention.to("sentence").layer(1)
    assert sentences.sum(-1) == pytest.approx(1, abs=1e-4)


@pytest.mark.usefixtures("_little_memory")
def test_an_intervention_that_needs_the_weights_is_refused_before_the_model_runs(long: Any) -> None:
    calls: list[Any] = []
    hook = long.model.register_forward_pre_hook(lambda *_: calls.append(1))
    try:
        with pytest.raises(ValueError, match=r"a trace of .* tokens .* takes about"):
            long.rerun(aw.ablate_heads(long, (1, 0)))
        assert not calls
        assert trace(long.model, long.tokenizer, TEXT).tokens == long.tokens, "without a change there is room"
    finally:
        hook.remove()
