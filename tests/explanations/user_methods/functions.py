"""Functions to register: rollout as it should be and with mistakes, and the results of checking them."""

from __future__ import annotations

import warnings

import numpy as np

from attnwidgets.explanations.user_methods.register import check, register
from attnwidgets.tracing.from_attentions import from_attentions
from tests.explanations.made import shares


def given(layers=2, heads=3, n=4):
    return from_attentions(shares(layers, heads, n, n), [f"t{i}" for i in range(n)])


def heads_mean(traced, layer):
    return traced.attention_layer(layer).numpy().mean(axis=0)


def right(traced):
    """Rollout, as it should be."""
    result = None
    layers = []
    for layer in range(traced.n_layers()):
        mixed = 0.5 * heads_mean(traced, layer) + 0.5 * np.eye(len(traced.tokens))
        result = mixed if result is None else mixed @ result
        layers.append(result)
    return np.stack(layers)


def wrong_way_round(traced):
    result = None
    layers = []
    for layer in range(traced.n_layers()):
        mixed = 0.5 * heads_mean(traced, layer) + 0.5 * np.eye(len(traced.tokens))
        result = mixed if result is None else result @ mixed
        layers.append(result)
    return np.stack(layers)


def without_residual(traced):
    return np.stack([heads_mean(traced, layer) for layer in range(traced.n_layers())])


def unnormalised(traced):
    return without_residual(traced) + np.eye(len(traced.tokens))


def checked(function, *invariants, **options):
    """Register a function whose checks may fail, and return their outcomes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        register("mine", invariants=invariants, **options)(function)
    return check("mine")


def failure(report, name):
    return next(result.failure for result in report.results if result.name == name)
