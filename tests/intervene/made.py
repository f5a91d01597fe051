"""Tiny models whose pass is changed."""

from __future__ import annotations

from typing import Any

import torch

import attnwidgets as aw
from tests.tracing import tiny
from tests.tracing.families import needs

IDS = [3, 17, 42, 8, 99, 5]


def text(name: str) -> Any:
    """A trace of a tiny model in float64."""
    model = tiny.build(tiny.TEXT[name]).double()
    return aw.trace(model, None, input_ids=IDS)


def t5() -> Any:
    needs("interface", "T5")
    model = tiny.build(tiny.SEQ2SEQ["T5"]).double()
    return aw.trace(model, tiny.wordpiece(), "unbelievable cat", target_text="cat cat")


def vit() -> Any:
    torch.manual_seed(1)
    return aw.trace(tiny.build(tiny.IMAGE["ViT"]).double(), None, image=torch.rand(3, 24, 24).double())


def logits(trace: Any, **more: Any) -> torch.Tensor:
    with torch.no_grad():
        return trace.model(**{**trace.inputs, **more}).logits[0]
