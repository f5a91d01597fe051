"""Where a picture is put into a text, attributions end at the inputs of the language model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import attnwidgets as aw
from tests.tracing.picture_families import FAMILIES, IMAGE, entry_of, traced
from tests.tracing.torchvision_families import TORCHVISION_FAMILIES

ALL = FAMILIES | TORCHVISION_FAMILIES
# Mllama's text has no token of the picture.
INSIDE = [name for name in FAMILIES if name not in {"Mllama", "LLaVA, full", "Gemma 3", "Qwen2-VL"}]


@pytest.mark.parametrize("name", [*INSIDE, "Llama 4", "Molmo 2"])
def test_attributions_of_picture_tokens_are_those_at_the_entry_of_the_language_model(name: str) -> None:
    family = ALL[name]
    model, processor = family.model(), family.processor()
    picture = np.random.default_rng(0).integers(0, 255, (*family.size, 3)).astype(np.uint8)
    trace = traced(model, processor, picture)
    inside = [i for i, token in enumerate(trace.input_ids.tolist()) if token == IMAGE]
    states, logits = entry_of(model, processor(images=Image.fromarray(picture)))
    (gradient,) = torch.autograd.grad(logits[9], states)
    expected = (gradient * states).sum(-1)[0].detach().numpy()
    target = aw.targets.token(9)
    product = aw.input_x_gradient(trace, target=target).values
    assert product == pytest.approx(expected, abs=2e-5 * float(np.abs(expected).max()))
    assert np.abs(product[inside]).min() > 0
    assert np.abs(aw.lrp(trace, target=target, force=True).values[inside]).min() > 0


@pytest.mark.parametrize("name", ["LLaVA", "Idefics 3", "InternVL"])
def test_the_change_from_one_picture_to_another_is_shared_among_its_tokens(name: str) -> None:
    family = FAMILIES[name]
    model, processor = family.model(), family.processor()
    random = np.random.default_rng(1)
    pictures = [random.integers(0, 255, (*family.size, 3)).astype(np.uint8) for _ in range(2)]
    (states, logits), (others, before) = (
        entry_of(model, processor(images=Image.fromarray(picture))) for picture in pictures
    )
    trace = traced(model, processor, pictures[0])
    target = aw.targets.token(9)
    result = aw.integrated_gradients(trace, target=target, baseline=others[0].detach(), steps=60).values
    words = (states == others).all(-1)[0].numpy()
    assert words.sum() == len(trace.tokens) - (trace.input_ids == IMAGE).sum()
    assert not result[words].any()
    assert result.sum() == pytest.approx(float(logits[9] - before[9]), rel=0.01, abs=1e-4)
