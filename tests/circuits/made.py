"""Pairs of texts, and the cost of a model's runs."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attnwidgets as aw
from tests.tracing import tiny

if TYPE_CHECKING:
    import torch

CLEAN, CORRUPT = [3, 17, 42, 8, 99, 5, 21], [3, 17, 42, 8, 11, 5, 13]


def pair(name: str, clean: list[int] = CLEAN, corrupt: list[int] = CORRUPT) -> tuple[Any, Any]:
    """Two traces of a tiny model in float64."""
    model = tiny.build(tiny.TEXT[name]).double()
    return tuple(aw.trace(model, None, input_ids=ids) for ids in (clean, corrupt))


def induction() -> tuple[Any, Any]:
    """A text with a repeated letter, and the same with another letter after the first."""
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    return tuple(aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb"))


def planted(shared: Any) -> Any:
    """The module of the hand-written two-layer GPT-2."""
    path = shared / "prototypes" / "circuits" / "planted.py"
    spec = importlib.util.spec_from_file_location("planted", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def counted(block: type) -> Any:
    """Count the calls of the class of a model's blocks, and the tokens that they read in all copies."""
    seen = {"calls": 0, "tokens": 0, "first": 0}
    forward = block.forward

    def counting(self: Any, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen["calls"] += 1
        seen["tokens"] += hidden.shape[0] * hidden.shape[1]
        return forward(self, hidden, *args, **kwargs)

    block.forward = counting
    try:
        yield seen
    finally:
        block.forward = forward
