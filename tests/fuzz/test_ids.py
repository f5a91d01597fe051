"""Arbitrary objects as token ids, masks and options of `aw.trace`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.tracing import tiny

from .fuzzing import fingerprint, fuzz, told

NUMBERS = [0, 1, 2, 5, 119, 120, -1, 2**31, 2**63, 10**30, 1.5, None, True, "a", float("nan"), [1], b"1"]
LISTS: list[Any] = [
    [],
    [[]],
    [1, 2, 3],
    [[1, 2], [3, 4]],
    [[1, 2], [3]],
    [1] * 3000,
    range(3),
    (1, 2),
    {1, 2},
]
OTHERS: list[Any] = [b"abc", "abc", 5, None, object(), {"input_ids": "x"}, {"input_ids": [1, 2]}]
TENSORS = [
    *(torch.rand(3), torch.zeros(2, 2, 2, dtype=torch.long), torch.tensor(5), torch.tensor([1j])),
    *(torch.tensor([1, 2], device="meta"), torch.tensor([1, 0, 2]).to_sparse()),
    torch.tensor([], dtype=torch.long),
]
ARRAYS = [np.array([1, 2], dtype=np.uint64), np.array(["a"]), np.array([], dtype=int), np.eye(2, dtype=int)]
WHOLE: list[Any] = [*LISTS, *OTHERS, {"input_ids": [1, 2], "attention_mask": [1]}, *TENSORS, *ARRAYS]
OPTIONS: dict[str, list[Any]] = {
    "max_new_tokens": [0, 1, 3, -1, 1.5, "3", None, 10**9],
    "attention_mask": [[1, 1, 1], [0, 0, 0], [1], "x", [None], [[1, 1], [0, 1]], torch.ones(3), {}],
    "memory": ["-1", float("inf"), "1GB", None],
    "target_text": ["a", "", 5],
    "text_pair": ["a"],
    "truncation": [True, False, "yes"],
}


@pytest.mark.parametrize("kind", ["decoder", "encoder", "both"])
def test_ids(kind: str) -> None:
    make = {"decoder": tiny.TEXT["Llama"], "encoder": tiny.TEXT["BERT"], "both": tiny.SEQ2SEQ["T5"]}[kind]
    model = tiny.build(make).train()
    readers = [None, None, tiny.wordpiece()]
    before = fingerprint(model)

    def some_ids(r: Any) -> None:
        ids = r.choice(WHOLE) if r.random() < 0.5 else [r.choice(NUMBERS) for _ in range(r.randint(0, 4))]
        options = {name: r.choice(values) for name, values in OPTIONS.items() if r.random() < 0.15}
        if kind == "both" and options.get("max_new_tokens") == 10**9:
            # T5 has no maximum length and would generate until memory is full.
            options["max_new_tokens"] = 40
        name, reader = r.choice(["text", "input_ids"]), r.choice(readers)
        traced = told(lambda: aw.trace(model, reader, **{name: ids}, **options))
        for trace in traced if isinstance(traced, list) else [traced] * (traced is not None):
            stack = trace.default_stack
            for layer in range(trace.n_layers(stack)):
                rows = trace.attention_layer(layer, stack).sum(-1)
                assert torch.allclose(rows, torch.ones_like(rows), atol=1e-4)

    fuzz(some_ids, 150)
    assert fingerprint(model) == before
