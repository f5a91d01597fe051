"""Traces for the tests of this folder."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnwidgets.tracing.from_attentions import from_attentions
from tests.explanations.made import shares


@pytest.fixture
def tiny_stacks():
    """An encoder-decoder's attention, given: two layers of three heads over five and four tokens."""
    output = SimpleNamespace(
        encoder_attentions=tuple(shares(2, 1, 3, 5, 5)),
        decoder_attentions=tuple(shares(2, 1, 3, 4, 4, causal=True)),
        cross_attentions=tuple(shares(2, 1, 3, 4, 5)),
    )
    return from_attentions(output, query_tokens=list("wxyz"), key_tokens=list("abcde"))
