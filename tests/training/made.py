"""A recipe of a few steps, and models of its sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from attnwidgets.zoo.train.induction import RECIPE
from attnwidgets.zoo.trained_models import make_tokenizer

TINY = replace(RECIPE, schedule=RECIPE.schedule.of(6))
"""The induction recipe in six steps."""


@cache
def tokenizer() -> Any:
    return make_tokenizer(TINY.tokenizer)


def model(seed: int = 0) -> Any:
    """Return an untrained model of the recipe."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TINY.build(tokenizer()).eval()


def between(start: Any, end: Any, share: float) -> Any:
    """Return a model whose weights lie between those of two models."""
    made = model()
    pairs = zip(start.state_dict().items(), end.state_dict().values(), strict=True)
    made.load_state_dict({name: (1 - share) * a + share * b for (name, a), b in pairs})
    return made
