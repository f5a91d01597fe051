"""Tiny random models of the families that put a picture's tokens into a text, with their image processors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers as hf
from PIL import Image

from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

IMAGE, BEFORE, AFTER = 5, (1, 7), (8, 9)
_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_TOWER = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
_SQUARE = {**_TOWER, "image_size": 32, "patch_size": 8}
_ROPE = {"rope_type": "default", "rope_theta": 1e4}
_SIZE = {"height": 32, "width": 32}
_PINS = [[32, 64], [64, 32], [64, 64], [96, 32], [32, 96]]


@dataclass(frozen=True)
class Family:
    """A family: its tiny model, the inputs of a picture, and its tokens.

    Args:
        make: Builds the model.
        reader: Builds the image processor.
        count: Returns the number of the picture's tokens from the processor's outputs.
        size: Rows and columns of pixels of the picture that is painted.
        finish: Changes the inputs, whose ids are there already.
        reference: The case in the reference of the same name; "" without one.
    """

    make: Callable[[], Any]
    reader: Callable[[], Any]
    count: Callable[[dict[str, Any]], int]
    size: tuple[int, int] = (48, 80)
    finish: Callable[[dict[str, Any]], None] = lambda inputs: None
    reference: str = ""

    def model(self, seed: int = 0) -> Any:
        """Return the model with weights that are not zero, in which no part of the picture reads another."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = self.make().eval().requires_grad_(requires_grad=False)
            for name, weight in model.named_parameters():
                if weight.dim() > 1:
                    weight.add_(torch.randn_like(weight) * 0.05)
                elif "gate" in name:
                    weight.fill_(1.0)
        inner = getattr(model, "model", model)
        tower = next(
            getattr(inner, name)
            for name in ("vision_tower", "visual", "vision_model")
            if hasattr(inner, name)
        )
        for name, module in tower.named_modules():
            if re.search(r"(out_proj|o_proj|attn\.proj|projection_layer)$", name) and hasattr(
                module, "weight"
            ):
                for parameter in module.parameters():
                    parameter.zero_()
        return model

    def processor(self) -> Processor:
        """Return a processor of pictures and a text around them."""
        return Processor(self, self.reader())


@dataclass
class Processor:
    """A processor of pictures that puts ids around those of the picture."""

    family: Family
    image_reader: Any

    def __post_init__(self) -> None:
        self.tokenizer = tiny.wordpiece()

    def image_processor(self, images: Any, **_: Any) -> dict[str, Any]:
        """Return the model's inputs of a picture."""
        return self(images=images)

    def __call__(self, images: Any = None, **_: Any) -> dict[str, Any]:
        inputs = dict(self.image_reader(images=images, return_tensors="pt"))
        count = self.family.count(inputs)
        inputs["input_ids"] = torch.tensor([[*BEFORE, *[IMAGE] * count, *AFTER]])
        self.family.finish(inputs)
        return inputs


def traced(model: Any, processor: Processor, picture: np.ndarray) -> Any:
    """Return the trace of a picture and the text around it."""
    return trace(model, processor, "the cat", image=picture)


def _language_model_of(model: Any) -> Any:
    inner = getattr(model, "model", model)
    return getattr(inner, "language_model", None) or inner.text_model


def entry_of(model: Any, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs of the language model [batch, token, width], a leaf, and the last token's logits."""
    read: list[torch.Tensor] = []

    def hook(_: Any, args: Any, options: dict[str, Any]) -> Any:
        read.append(options["inputs_embeds"].detach().requires_grad_())
        return args, options | {"inputs_embeds": read[0]}

    handle = _language_model_of(model).register_forward_pre_hook(hook, with_kwargs=True)
    with torch.enable_grad():
        logits = model(**inputs).logits[0, -1]
    handle.remove()
    return read[0], logits


@torch.no_grad()
def read_by_text(model: Any, processor: Processor, picture: np.ndarray) -> torch.Tensor:
    """Return the language model's inputs at the positions of the picture [token, width]."""
    read: dict[str, Any] = {}
    inputs = processor(images=Image.fromarray(picture))

    def hook(_: Any, __: Any, options: dict[str, Any]) -> None:
        states = options.get("cross_attention_states")
        read["states"] = options["inputs_embeds"] if states is None else states

    handle = _language_model_of(model).register_forward_pre_hook(hook, with_kwargs=True)
    model(**inputs)
    handle.remove()
    states = read["states"]
    if "cross_attention_mask" in inputs:
        return states.reshape(-1, states.shape[-1])
    return states[0][inputs["input_ids"][0] == IMAGE]


def _kind(name: str) -> Any:
    """Return an image processor of Pillow, which needs no torchvision."""
    return getattr(hf, f"{name}Pil", None) or getattr(hf, name)


def _llava(strategy: str = "default") -> Any:
    config = hf.LlavaConfig(
        vision_config=hf.CLIPVisionConfig(**_SQUARE),
        text_config=hf.LlamaConfig(**_TEXT),
        image_token_index=IMAGE,
        vision_feature_select_strategy=strategy,
    )
    return hf.LlavaForConditionalGeneration(config)


def _clip() -> Any:
    return _kind("CLIPImageProcessor")(size={"shortest_edge": 32}, crop_size=_SIZE)


def _llava_next() -> Any:
    config = hf.LlavaNextConfig(
        vision_config=hf.CLIPVisionConfig(**_SQUARE),
        text_config=hf.LlamaConfig(**_TEXT),
        image_token_index=IMAGE,
        image_grid_pinpoints=_PINS,
    )
    return hf.LlavaNextForConditionalGeneration(config)


def _llava_next_reader() -> Any:
    return _kind("LlavaNextImageProcessor")(
        size={"shortest_edge": 32}, crop_size=_SIZE, image_grid_pinpoints=_PINS
    )


def _onevision() -> Any:
    config = hf.LlavaOnevisionConfig(
        vision_config=hf.SiglipVisionConfig(**_SQUARE),
        text_config=hf.Qwen2Config(**_TEXT),
        image_token_index=IMAGE,
        image_grid_pinpoints=_PINS,
        vision_aspect_ratio="anyres_max_1",
    )
    return hf.LlavaOnevisionForConditionalGeneration(config)


def _onevision_reader() -> Any:
    return _kind("LlavaOnevisionImageProcessor")(size=_SIZE, image_grid_pinpoints=_PINS)


def _qwen(name: str, depth: int, **vision: Any) -> Callable[[], Any]:
    def make() -> Any:
        tower = {
            "num_heads": 2,
            "depth": depth,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "hidden_size": 32,
            "out_hidden_size": 32,
            "intermediate_size": 32,
        }
        rope = _ROPE | {"mrope_section": [2, 3, 3]}
        config = getattr(hf, f"{name}Config")(
            vision_config=tower | vision,
            text_config=_TEXT | {"rope_parameters": rope},
            image_token_id=IMAGE,
            video_token_id=6,
            vision_start_token_id=3,
            vision_end_token_id=4,
        )
        return getattr(hf, f"{name}ForConditionalGeneration")(config)

    return make


def _qwen_reader() -> Any:
    size = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
    return _kind("Qwen2VLImageProcessor")(patch_size=8, merge_size=2, temporal_patch_size=2, size=size)


def _qwen_count(inputs: dict[str, Any]) -> int:
    return int(inputs["image_grid_thw"][0].prod()) // 4


def _qwen_types(inputs: dict[str, Any]) -> None:
    inputs["mm_token_type_ids"] = (inputs["input_ids"] == IMAGE).long()


def _gemma3() -> Any:
    config = hf.Gemma3Config(
        vision_config={**_SQUARE, "patch_size": 4, "model_type": "siglip_vision_model"},
        text_config={**_TEXT, "head_dim": 16},
        mm_tokens_per_image=16,
        image_token_index=IMAGE,
        boi_token_index=3,
        eoi_token_index=4,
    )
    return hf.Gemma3ForConditionalGeneration(config)


def _gemma3_reader(**scan: Any) -> Callable[[], Any]:
    return lambda: _kind("Gemma3ImageProcessor")(size=_SIZE, **scan)


def _types(inputs: dict[str, Any]) -> None:
    inputs.pop("num_crops", None)
    inputs["token_type_ids"] = (inputs["input_ids"] == IMAGE).long()


def _paligemma() -> Any:
    config = hf.PaliGemmaConfig(
        vision_config={**_SQUARE, "projection_dim": 32, "model_type": "siglip_vision_model"},
        text_config={**_TEXT, "head_dim": 16, "model_type": "gemma"},
        image_token_index=IMAGE,
        projection_dim=32,
    )
    return hf.PaliGemmaForConditionalGeneration(config)


def _idefics(name: str) -> Callable[[], Any]:
    def make() -> Any:
        config = getattr(hf, f"{name}Config")(
            vision_config=_SQUARE,
            text_config={**_TEXT, "model_type": "llama"},
            scale_factor=2,
            image_token_id=IMAGE,
        )
        return getattr(hf, f"{name}ForConditionalGeneration")(config)

    return make


def _idefics_reader(name: str) -> Callable[[], Any]:
    return lambda: _kind(f"{name}ImageProcessor")(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}, do_image_splitting=True
    )


def _internvl() -> Any:
    config = hf.InternVLConfig(
        vision_config={**_TOWER, "image_size": [32, 32], "patch_size": [8, 8]},
        text_config={**_TEXT, "model_type": "qwen2"},
        downsample_ratio=0.5,
        image_token_id=IMAGE,
    )
    return hf.InternVLForConditionalGeneration(config)


def _internvl_reader() -> Any:
    return _kind("GotOcr2ImageProcessor")(size=_SIZE, crop_to_patches=True, min_patches=1, max_patches=6)


def _without(*names: str) -> Callable[[dict[str, Any]], None]:
    def finish(inputs: dict[str, Any]) -> None:
        for name in names:
            inputs.pop(name, None)

    return finish


def _mistral3() -> Any:
    config = hf.Mistral3Config(
        vision_config={**_SQUARE, "image_size": 96, "model_type": "pixtral", "head_dim": 16},
        text_config={**_TEXT, "head_dim": 16, "model_type": "mistral"},
        image_token_index=IMAGE,
        spatial_merge_size=2,
    )
    return hf.Mistral3ForConditionalGeneration(config)


def _mistral3_reader() -> Any:
    return _kind("PixtralImageProcessor")(size={"longest_edge": 96}, patch_size=16)


def _mllama() -> Any:
    shapes = [[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1]]
    config = hf.MllamaConfig(
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_global_layers": 1,
            "attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
            "vision_output_dim": 64,
            "intermediate_layers_indices": [1],
            "max_num_tiles": 4,
            "supported_aspect_ratios": shapes,
        },
        text_config={
            **_TEXT,
            "num_hidden_layers": 2,
            "cross_attention_layers": [1],
            "rope_parameters": _ROPE,
        },
        image_token_index=IMAGE,
    )
    return hf.MllamaForConditionalGeneration(config)


def _mllama_mask(inputs: dict[str, Any]) -> None:
    tiles = int(inputs.pop("num_tiles")[0][0])
    mask = torch.zeros(1, inputs["input_ids"].shape[1], 1, 4, dtype=torch.long)
    mask[:, 1:, :, :tiles] = 1
    inputs["cross_attention_mask"] = mask


def _next_count(inputs: dict[str, Any]) -> int:
    """Return the tokens of a LLaVA-NeXT, as its processor counts them."""
    rows, columns = inputs["image_sizes"][0].tolist()
    read = hf.LlavaNextProcessor.__new__(hf.LlavaNextProcessor)
    read.image_processor, read.patch_size, read.num_additional_image_tokens = _llava_next_reader(), 8, 0
    return int(read._get_number_of_features(rows, columns, 32, 32))


def _onevision_count(inputs: dict[str, Any]) -> int:
    rows, columns = inputs["image_sizes"][0].tolist()
    read = hf.LlavaOnevisionProcessor.__new__(hf.LlavaOnevisionProcessor)
    read.image_processor, read.num_image_tokens = _onevision_reader(), 16
    read.vision_aspect_ratio = "anyres_max_1"
    return int(read._get_number_of_features(rows, columns, 32, 32))


_SCAN = {
    "do_pan_and_scan": True,
    "pan_and_scan_min_crop_size": 16,
    "pan_and_scan_max_num_crops": 4,
    "pan_and_scan_min_ratio_to_activate": 1.2,
}
FAMILIES: dict[str, Family] = {
    "LLaVA": Family(_llava, _clip, lambda _: 16, reference="llava"),
    "LLaVA, full": Family(lambda: _llava("full"), _clip, lambda _: 17),
    "LLaVA-NeXT": Family(_llava_next, _llava_next_reader, _next_count, (40, 72), reference="llava_next"),
    "LLaVA-OneVision": Family(
        _onevision, _onevision_reader, _onevision_count, (40, 72), _without("batch_num_images")
    ),
    "Qwen2-VL": Family(_qwen("Qwen2VL", 1, embed_dim=32), _qwen_reader, _qwen_count, finish=_qwen_types),
    "Qwen2.5-VL": Family(
        _qwen("Qwen2_5_VL", 2, window_size=32, fullatt_block_indexes=[0]),
        _qwen_reader,
        _qwen_count,
        finish=_qwen_types,
        reference="qwen2_5_vl",
    ),
    "Qwen3-VL": Family(
        _qwen("Qwen3VL", 1, num_position_embeddings=64, deepstack_visual_indexes=[0]),
        _qwen_reader,
        _qwen_count,
        finish=_qwen_types,
        reference="qwen3_vl",
    ),
    "Gemma 3": Family(_gemma3, _gemma3_reader(), lambda _: 16, finish=_types, reference="gemma3"),
    "Gemma 3, pan and scan": Family(
        _gemma3,
        _gemma3_reader(**_SCAN),
        lambda inputs: 16 * len(inputs["pixel_values"]),
        (40, 96),
        _types,
        "gemma3_scan",
    ),
    "PaliGemma": Family(
        _paligemma,
        lambda: _kind("SiglipImageProcessor")(size=_SIZE),
        lambda _: 16,
        finish=_types,
        reference="paligemma",
    ),
    "Idefics 3": Family(
        _idefics("Idefics3"),
        _idefics_reader("Idefics3"),
        lambda inputs: 4 * inputs["pixel_values"].shape[1],
        reference="idefics3",
    ),
    "SmolVLM": Family(
        _idefics("SmolVLM"),
        _idefics_reader("SmolVLM"),
        lambda inputs: 4 * inputs["pixel_values"].shape[1],
        reference="smolvlm",
    ),
    "InternVL": Family(
        _internvl,
        _internvl_reader,
        lambda inputs: 4 * len(inputs["pixel_values"]),
        finish=_without("num_patches"),
        reference="internvl",
    ),
    "Mistral 3": Family(
        _mistral3,
        _mistral3_reader,
        lambda inputs: int(inputs["image_sizes"][0].prod()) // 256,
    ),
    "Mllama": Family(
        _mllama,
        lambda: _kind("MllamaImageProcessor")(size=_SIZE, max_image_tiles=4),
        lambda _: 1,
        finish=_mllama_mask,
        reference="mllama",
    ),
}
