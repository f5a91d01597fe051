"""A new folder for every test, and views of given numbers."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.ask.keeping import QUESTIONS

WORDS = ["[CLS]", "the", "black", "cat", "sat", "[SEP]"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Answers are saved where the notebook runs, whose name nobody knows here."""
    from ipywidgets import Widget

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr(QUESTIONS, "_places", {})
    yield tmp_path
    Widget.close_all()


@pytest.fixture
def notebook(folder, monkeypatch):
    """Say which notebook runs, as a Jupyter server does."""

    def name(name):
        (folder / name).touch()
        monkeypatch.setenv("JPY_SESSION_NAME", str(folder / name))

    name("homework.ipynb")
    return name


@pytest.fixture
def traced():
    def make(words=WORDS, seed=0):
        count = len(words)
        rows = np.random.default_rng(seed).dirichlet(np.ones(count), (3, 4, count)).astype(np.float32)
        return aw.from_attentions(rows, words)

    return make
