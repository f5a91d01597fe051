"""Tiny random models of the families whose image processors transformers has for torchvision alone."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import transformers as hf

from tests.tracing.picture_families import _ROPE, _SIZE, _SQUARE, _TEXT, _TOWER, AFTER, BEFORE, IMAGE, Family

_HEADS = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
_LLAMA4_TOKENS = "<|image_start|> <|tile_x_separator|> <|tile_y_separator|> <|image|> <|image_end|>"
_MOLMO2_TOKENS = "<low_res_im_start> <im_col> <im_start> <im_end>"
BETWEEN = {name: i for i, name in enumerate(f"{_LLAMA4_TOKENS} {_MOLMO2_TOKENS}".split(), start=10)}
"""Ids of the tokens around those of a picture and between them."""


def _needs_torchvision(name: str) -> Any:
    """Return a class of transformers; skip the test where it or torchvision is missing."""
    pytest.importorskip("torchvision", reason="the image processor of this family needs torchvision")
    if not hasattr(hf, name):
        pytest.skip(f"transformers {hf.__version__} has no {name}")
    return getattr(hf, name)


def _write(inputs: dict[str, Any], picture: str, patch: str) -> None:
    """Put the tokens that the family's processor writes for a picture into a text."""
    written = [IMAGE if name == patch else BETWEEN[name] for name in re.findall("<[^>]*>", picture)]
    inputs["input_ids"] = torch.tensor([[*BEFORE, *written, *AFTER]])


def _llama4() -> Any:
    make = _needs_torchvision("Llama4ForConditionalGeneration")
    wide = {"projector_input_dim": 32, "projector_output_dim": 32, "vision_output_dim": 32}
    vision = _SQUARE | wide | {"intermediate_size": 128, "rope_parameters": _ROPE}  # four patches of 32
    text = _TEXT | {"head_dim": 16, "intermediate_size_mlp": 32, "num_local_experts": 2, "moe_layers": []}
    model = make(hf.Llama4Config(vision_config=vision, text_config=text, image_token_index=IMAGE))

    def complete(_: Any, __: Any, outputs: Any) -> None:
        # transformers 5.24 reads what the language model's outputs do not have.
        if not hasattr(outputs, "image_outputs"):
            outputs.image_outputs = None

    model.language_model.register_forward_hook(complete)
    return model


def _llama4_text(inputs: dict[str, Any]) -> None:
    processor = hf.Llama4Processor.__new__(hf.Llama4Processor)
    shape = inputs.pop("aspect_ratios")[0].tolist()  # which the family's processor keeps to itself
    _write(inputs, processor._prompt_split_image(shape, 4), "<|patch|>")
    # It is bfloat16, which a model in float32 does not read.
    inputs["pixel_values"] = inputs["pixel_values"].float()


def _molmo2() -> Any:
    make = _needs_torchvision("Molmo2ForConditionalGeneration")
    config = hf.Molmo2Config(
        vision_config=_TOWER | _HEADS | {"image_size": [32, 32], "patch_size": 4},
        adapter_config=_HEADS
        | {"intermediate_size": 32, "text_hidden_size": 32, "vision_feature_layer": [0]},
        text_config=_TEXT | {"head_dim": 16, "rope_parameters": _ROPE},
        image_patch_id=IMAGE,
    )
    return make(config)


def _molmo2_text(inputs: dict[str, Any]) -> None:
    processor = hf.Molmo2Processor.__new__(hf.Molmo2Processor)
    processor.image_use_col_tokens = processor.use_single_crop_start_token = True
    processor.use_single_crop_col_tokens = None
    _write(inputs, processor.replace_image_token(inputs, 0), "<im_patch>")
    ids = inputs["input_ids"]
    inputs["mm_token_type_ids"] = ((ids == IMAGE) | (ids >= min(BETWEEN.values()))).long()


def _llama4_family(size: tuple[int, int], **options: Any) -> Family:
    def reader() -> Any:
        return _needs_torchvision("Llama4ImageProcessor")(size=_SIZE, max_patches=6, **options)

    return Family(_llama4, reader, lambda _: 0, size, _llama4_text)


def _molmo2_family(size: tuple[int, int], **options: Any) -> Family:
    def reader() -> Any:
        options.update(size=_SIZE, patch_size=4, max_crops=4, overlap_margins=[1, 2])
        return _needs_torchvision("Molmo2ImageProcessor")(**options)

    return Family(_molmo2, reader, lambda _: 0, size, _molmo2_text)


TORCHVISION_FAMILIES: dict[str, Family] = {
    "Llama 4": _llama4_family((40, 72)),
    "Llama 4, largest canvas": _llama4_family((36, 92), resize_to_max_canvas=True),
    "Llama 4, one tile": _llama4_family((20, 28)),
    "Molmo 2": _molmo2_family((40, 72)),
    "Molmo 2, other pooling": _molmo2_family((40, 72), pooling_size=[3, 2]),
}
