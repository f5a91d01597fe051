"""The precision of numbers: float64 where the model computes in it, float32 otherwise; for every method."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch

from attnwidgets.explanations import Attributions, MixingMap
from attnwidgets.explanations.registry.registry import Method, methods
from attnwidgets.tracing.recording.run import trace
from tests.explanations.made import random_classifier
from tests.models.build import Kind, build
from tests.tracing import tiny
from tests.tracing.families import JOINED

MODELS = {
    "classifier": random_classifier,
    "decoder": tiny.TEXT["Llama"],
    "encoder-decoder": tiny.SEQ2SEQ["T5"],
    "hybrid": lambda: build(Kind("bamba", "causal")),
}
PICTURES = ("grad_cam", "caption_words")  # they read pictures, and are compared there
METHODS = [
    method
    for method in methods()
    if method.function.__module__.startswith("attnwidgets.") and method.name not in PICTURES
]
# captum sums Shapley values in float32.
COARSE = ("shapley_sampling",)
FEWER = {"shapley_sampling": {"samples": 3}}  # the precision does not depend on the number of orders
# T5 did so to its attention itself.
ROUNDED = () if JOINED else ("encoder-decoder",)


@functools.cache
def traced(model: str, dtype: torch.dtype) -> Any:
    return trace(tiny.build(MODELS[model]).to(dtype), None, [5, 17, 31, 9])


def served(method: Method) -> list[str]:
    return [name for name in MODELS if not method.refusal(traced(name, torch.float32))]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_float64_model_is_explained_in_float64(method: Method) -> None:
    assert served(method)
    for model in served(method):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            name = "float64" if dtype == torch.float64 else "float32"
            result = method.function(traced(model, dtype), **FEWER.get(method.name, {}))
            parts = [result] if getattr(result, "map", None) in (None, result) else [result, result.map]
            for part in parts:
                assert part.dtype == part.values.dtype == name, (model, dtype, part)
            if name == "float64" and method.name not in COARSE and model not in ROUNDED:
                assert (result.values != result.values.astype(np.float32)).any(), model


def test_what_is_made_of_float64_stays_in_it() -> None:
    result = traced("decoder", torch.float64)
    whole = MixingMap(np.random.default_rng(0).random((2, 3, 4, 4)), query=list("abcd"))
    vector = Attributions([0.1, 0.2], axis=["a", "b"])
    for made in (
        *(whole.mean("head"), whole.mean("head").max("layer"), whole.select(layer=1, head=[0, 2])),
        *(whole.mean("head").to_attributions("column_mean"), whole.mean("head").reduce("key", "max")),
        *(vector, methods()["rollout"].function(whole), methods()["attention"].function(result).mean("head")),
    ):
        assert made.dtype == made.values.dtype == "float64"
        assert (made.values != made.values.astype(np.float32)).any()
    assert MixingMap(np.ones((2, 2), np.float32), query=["a", "b"]).dtype == "float32"
    assert MixingMap([[1, 0], [0, 1]], query=["a", "b"]).dtype == "float32"
    with pytest.raises(ValueError, match="dtype 'float16' is not one of None, 'float32', 'float64'"):
        MixingMap([[1.0]], query=["a"], dtype="float16")
