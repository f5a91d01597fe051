"""Scenes: which colour has the circle, and where is it? A LLaVA of two and two layers reads a picture."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._gradients import no_grad
from attnwidgets.zoo.scenes import (
    ANSWER,
    CELL,
    END,
    IMAGE,
    PAD,
    QUESTION,
    SIDE,
    START,
    WORDS,
    Scene,
    drawn,
)
from attnwidgets.zoo.train.recipe import Recipe, Schedule

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

_BATCH = 96
_FIRST, _SECOND = 150, 500  # steps with a single shape, and until there are two: colours are learned first
_CELLS = SIDE * SIDE
CONTENT = {"colour": 3, "row": 5, "column": 6}
"""The words of the answer that need the picture, by their number."""


def build(processor: Any) -> Any:
    """Return an untrained LLaVA; every matrix preserves the size of what it reads.

    transformers' own spread, 0.02, is meant for wide models: at this width training does not start from it.
    """
    import torch
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    small: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    ends: dict[str, Any] = {"bos_token_id": WORDS.index(START), "eos_token_id": WORDS.index(END)}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**small, image_size=SIDE * CELL, patch_size=CELL),
        text_config=LlamaConfig(
            **small,
            **ends,
            num_key_value_heads=4,
            vocab_size=len(processor.tokenizer),
            pad_token_id=WORDS.index(PAD),
            max_position_embeddings=64,
            tie_word_embeddings=False,
        ),
        image_token_index=WORDS.index(IMAGE),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=False,
    )
    model = LlavaForConditionalGeneration(config)
    with no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                table = "embed_tokens" in name or "position_embedding" in name
                torch.nn.init.normal_(parameter, std=0.5 if table else parameter[0].numel() ** -0.5)
    return model


def batch(scenes: Sequence[Scene]) -> dict[str, Any]:
    """Return the inputs and labels of scenes with their answers; words before the answer have no label."""
    import torch

    number = {word: index for index, word in enumerate(WORDS)}
    rows = [
        [number[START], *[number[IMAGE]] * _CELLS]
        + [number[word] for word in f"{scene.question} {scene.answer}".split()]
        + [number[END]]
        for scene in scenes
    ]
    ids = torch.tensor(rows)
    labels = ids.clone()
    labels[:, : 1 + _CELLS + QUESTION] = -100
    pixels = np.stack([scene.image for scene in scenes]).transpose(0, 3, 1, 2) / 255
    return {
        "input_ids": ids,
        "pixel_values": torch.tensor((pixels - 0.5) / 0.5, dtype=torch.float32),
        "labels": labels,
    }


def loss(model: Any, processor: Any, rng: random.Random) -> Callable[[], Any]:
    """Return the cross-entropy of the words of the answer; pictures begin with a single shape."""
    del processor
    count = itertools.count()

    def next_loss() -> Any:
        step = next(count)
        shapes = 1 if step < _FIRST else 2 if step < _SECOND else rng.choice((2, 3, 4))
        return model(**batch([drawn(rng, shapes) for _ in range(_BATCH)])).loss

    return next_loss


def measure(model: Any, processor: Any, number: int = 1_000) -> dict[str, float]:
    """Return the share of colours, rows and columns that are right, each after the right words before it."""
    import random

    del processor
    rng = random.Random(17)  # noqa: S311
    inputs = batch([drawn(rng) for _ in range(number)])
    labels = inputs.pop("labels")[:, -ANSWER - 1 :]
    with no_grad():
        guessed = model(**inputs).logits[:, -ANSWER - 2 : -1].argmax(-1)
    right = (guessed == labels).float().mean(0)
    return {f"accuracy, {word}": float(right[at]) for word, at in CONTENT.items()}


def heads(model: Any, processor: Any) -> dict[tuple[int, int], str]:
    """Return no roles: what its heads do is not known."""
    del model, processor
    return {}


RECIPE = Recipe(
    name="scenes",
    task="says which colour a shape of a drawn scene has, and in which row and column it is",
    tokenizer={"kind": "scenes"},
    build=build,
    loss=loss,
    measure=measure,
    heads=heads,
    schedule=Schedule(steps=3_000, rate=2e-3, warm_up=200),
)
