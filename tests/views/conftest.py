"""Traces and maps for the views' tests: small, random but fixed, and real."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.base import shared_models


def _softmax(shape, seed=0):
    numbers = np.exp(np.random.default_rng(seed).normal(0, 3, shape))
    return (numbers / numbers.sum(-1, keepdims=True)).astype(np.float32)


@pytest.fixture(autouse=True)
def _nothing_left_open():
    """Every test closes its widgets, and starts without any."""
    from ipywidgets import Widget

    Widget.close_all()
    yield
    Widget.close_all()


@pytest.fixture(scope="session")
def minilm_trace(minilm, sentence):
    return aw.trace(*minilm, sentence)


@pytest.fixture
def given():
    """A trace of given numbers: 3 layers x 4 heads, 8 tokens."""

    def make(n=8, layers=3, heads=4, seed=0, tokens=None, **options):
        return aw.from_attentions(
            _softmax((layers, heads, n, n), seed), tokens or [f"t{i}" for i in range(n)], **options
        )

    return make


@pytest.fixture(scope="session")
def softmax():
    """Random rows that sum to one."""
    return _softmax


@pytest.fixture(scope="session")
def causal():
    """Random rows that sum to one and see nothing later."""

    def make(shape, seed=0):
        numbers = np.tril(_softmax(shape, seed))
        return numbers / numbers.sum(-1, keepdims=True)

    return make


@pytest.fixture
def alive():
    """All that ipywidgets keeps alive, by model id."""
    from attnwidgets.sphinx.cell import open_widgets

    return open_widgets()


@pytest.fixture
def models(alive):
    """Count the widgets that ipywidgets keeps alive, by class name."""
    from collections import Counter

    return lambda: Counter(type(item).__name__ for item in alive.values())


class Notebook:
    """A shell that runs cells with ids, as a notebook's kernel does."""

    def __init__(self):
        self.parent = {}
        self.callbacks = []
        self.events = self
        self.runs = 0

    def get_parent(self):
        return self.parent

    def register(self, event, callback):
        assert event == "post_run_cell"
        self.callbacks.append(callback)

    def run(self, cell, function):
        self.runs += 1
        self.parent = {"header": {"msg_id": f"run {self.runs}"}, "metadata": {"cellId": cell}}
        shown = function()
        if shown is not None:
            shown._repr_mimebundle_(exclude={"image/png"})
        for callback in self.callbacks:
            callback()
        self.parent = {}
        return shown


@pytest.fixture
def notebook(monkeypatch):
    shell = Notebook()
    monkeypatch.setattr(shared_models, "running_shell", lambda: shell)
    monkeypatch.setattr(shared_models.CELLS, "_shell", None)
    return shell
