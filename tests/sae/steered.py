"""A Llama that is steered, and an SAE of its states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tests.tracing import tiny

from . import made

if TYPE_CHECKING:
    from attnwidgets import SAE

IDS = torch.tensor([[5, 9, 11, 7, 30, 8], [6, 9, 10, 11, 24, 5]])
SITE = "blocks.0.hook_resid_post"


def big_llama():
    """A Llama whose states are large enough for features to fire."""
    return tiny.build(lambda: tiny._plain("Llama", "ForCausalLM", **tiny.GQA, initializer_range=0.4))


def sae_of(d_in: int = 32, **options) -> SAE:
    made_ = made.sae(d_in=d_in, site=SITE, **options)
    made_.maxima = torch.linspace(0.5, 3, 20)
    return made_


def logits(model, ids=IDS, **options) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids, **options).logits
