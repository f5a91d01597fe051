"""Shared by tests of this folder: a model, an SAE of its states, and its statistics over a corpus."""

from __future__ import annotations

import pytest
import torch

import attnwidgets as aw
from tests.tracing import tiny

from . import made


@pytest.fixture(scope="module")
def bert():
    """(model, tokenizer) of a random BERT whose states differ from token to token."""
    return tiny.build(lambda: tiny._plain("Bert", "ForMaskedLM", initializer_range=0.3)), tiny.wordpiece()


@pytest.fixture(scope="module")
def sae():
    """Of the states that the second block of `bert` returns; some features are dead, some fire everywhere."""
    drawn = made.sae(d_in=32, site=made.SITE)
    return drawn.replaced(b_enc=drawn.b_enc + torch.linspace(-3, 1, 20))


@pytest.fixture(scope="module")
def counted(bert, sae):
    """Its statistics over `made.CORPUS`."""
    return aw.feature_stats(
        *bert, sae, made.CORPUS, dashboard=aw.FeatureDashboard(window=(3, 2), examples=6), context=20
    )


@pytest.fixture
def stats(counted):
    """The same, with names for the test."""
    return counted.named({})


@pytest.fixture
def closed_widgets():
    """Every test closes its widgets, and starts without any."""
    from ipywidgets import Widget

    Widget.close_all()
    yield
    Widget.close_all()
