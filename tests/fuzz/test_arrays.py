"""Arbitrary objects as attention weights, labels and options."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import torch

import attnwidgets as aw

from .fuzzing import fuzz, told

TYPES = [
    *(np.float16, np.float32, np.float64, np.int8, np.int64, np.uint64),
    *(bool, complex, object, "U3", "S4", "datetime64[s]"),
]
NUMBERS = [np.nan, np.inf, -np.inf, -1, 1e308, 1e-320, 2.0**100]
LABELS = ["a", "<b>", "\ud800", "", "👩‍👩‍👧", "[CLS]", "\0", "##s", "Ġa"]


def array(r: Any) -> Any:
    shape = [r.choice([0, 1, 1, 2, 3, 4, 5]) for _ in range(r.choice([0, 1, 2, 3, 4, 4, 4, 5, 6]))]
    if len(shape) > 1 and r.random() < 0.7:
        shape[-1] = shape[-2] = r.choice([1, 2, 3, 4])
    numbers = np.asarray(np.random.default_rng(r.getrandbits(32)).random(shape))
    if numbers.size and numbers.ndim and r.random() < 0.5:
        numbers = numbers / np.maximum(numbers.sum(-1, keepdims=True), 1e-9)
    if numbers.size and r.random() < 0.15:
        numbers.reshape(-1)[r.randrange(numbers.size)] = r.choice(NUMBERS)
    elif r.random() < 0.1:
        numbers = numbers * r.choice([1e38, 1e300, -1, 0, 1e-45])
    with suppress(TypeError, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = np.asarray(numbers.astype(r.choice(TYPES) if r.random() < 0.4 else np.float32))
    return _contained(r, numbers)


def _contained(r: Any, numbers: Any) -> Any:
    as_tensor = torch.rand(2, 2, 3, 3)
    kind = r.randrange(20)
    if kind < 4 and numbers.dtype.kind in "biufc" and numbers.dtype != np.uint64:
        return torch.as_tensor(numbers)
    if kind == 4:
        return numbers.tolist()
    if kind == 5 and numbers.ndim:
        return tuple(numbers)
    if kind == 6 and numbers.dtype.kind == "f":
        half = r.choice([torch.bfloat16, torch.float16])
        return torch.as_tensor(numbers.astype(np.float32)).to(half).requires_grad_()
    return {7: as_tensor.to("meta"), 8: as_tensor.to_sparse(), 9: (), 10: None, 11: "abc"}.get(kind, numbers)


def labels(r: Any) -> Any:
    n = r.choice([0, 1, 2, 3, 4, 5])
    strange = [None, "abc", 5, 3.0, {"a": 1}, [None] * n, [1, 2, 3], [b"a"] * n, [["a"]] * n, [np.nan] * n]
    return r.choice(strange) if r.random() < 0.3 else [r.choice(LABELS) for _ in range(n)]


WORDS = [
    *([0, 0, 1], [None, 0, 1], [[0], [1, 2]], [[0, 1], [1, 2]], [[5]], [-1], [10**20], [0.5], [["a"]]),
    *("x", 5, {}),
]  # fmt: skip
OPTIONS: dict[str, tuple[float, Any]] = {
    "tokens": (0.8, labels),
    "key_tokens": (0.2, labels),
    "query_tokens": (0.2, labels),
    "words": (0.15, WORDS),
    "boundary": (0.1, [-1, 0, 1, 2, 99, 10**30, "1", 1.5]),
    "second_text": (0.1, [-1, 0, 1, 2, 99, "1", 1.5]),
    "memory": (0.1, ["0", "1XB", -1, float("inf"), float("nan"), 1, "1KB", True, 10**40, None, ".", []]),
    "model_id": (0.1, ["", "\ud800", 5, None, "</script>"]),
}


def test_arrays(tmp_path: Any) -> None:
    def an_array(r: Any) -> None:
        given = array(r)
        options = {
            name: made(r) if callable(made) else r.choice(made)
            for name, (share, made) in OPTIONS.items()
            if r.random() < share
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = told(lambda: aw.from_attentions(given, **options))
        if trace is None:
            return
        weights = np.asarray(aw.attention(trace).values)
        assert np.isfinite(weights).all()
        assert weights.size
        if isinstance(given, np.ndarray) and given.dtype == np.float32:
            assert np.array_equal(np.sort(weights, axis=None), np.sort(given, axis=None)), (
                "the numbers changed"
            )
        use = r.choice(["rollout", "heatmap", "page", "statistics", "save", "words", "heads", "picture"])
        with warnings.catch_warnings():
            # Views use float32, in which 1e308 is infinite.
            warnings.filterwarnings("ignore", "overflow encountered in cast")
            told(lambda: _used(use, trace, tmp_path))

    fuzz(an_array, 400)


def _used(use: str, trace: Any, folder: Any) -> None:
    if use == "rollout":
        assert np.isfinite(aw.rollout(trace).values).all()
    elif use == "statistics":
        assert repr(aw.statistics.head_statistics(trace))
    elif use == "save":
        loaded = aw.load(aw.attention(trace).save(folder / "map.safetensors"))
        assert np.array_equal(loaded.values, aw.attention(trace).values)
    else:
        view = aw.HeadView(trace) if use == "heads" else aw.Heatmap(trace)
        if use == "page":
            view.to_html(folder / "page.html")
        elif use == "picture":
            view.save(folder / "map.svg")
        elif use == "words":
            assert view.describe()
        else:
            view._repr_mimebundle_()
        view.close()
