from __future__ import annotations

import pytest

from attnwidgets.explanations import methods
from attnwidgets.explanations.registry.registry import remove
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    for entry in methods():
        if entry.by_user:
            remove(entry.name)


@pytest.fixture(scope="module")
def real():
    """A tiny random encoder with a head, traced."""
    return trace(tiny.build(tiny.TEXT["BERT"]), None, [5, 6, 7, 8])
