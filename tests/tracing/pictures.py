"""Families that read pictures, as tiny random models whose patches can be painted singly."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import transformers as hf

from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny
from tests.tracing.tiny import SMALL, VOCAB

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIDE = 8
IMAGE, TEXT = 9, "the cat"


class Reader:
    """A processor that hands on a test's pixels, with ids of a text if there is a text."""

    def __init__(self, inputs: dict[str, Any], ids: Sequence[int] | None) -> None:
        self.inputs, self.ids = inputs, ids
        self.tokenizer = tiny.wordpiece()

    def image_processor(self, **_: Any) -> dict[str, Any]:
        return dict(self.inputs)

    def __call__(self, **_: Any) -> dict[str, Any]:
        return self.inputs | {"input_ids": torch.tensor([self.ids])}


def as_pixels(picture: torch.Tensor) -> dict[str, Any]:
    """Return the inputs of most families."""
    return {"pixel_values": picture[None]}


@dataclass(frozen=True)
class Pictures:
    """A tiny model that reads pictures.

    Args:
        make: Builds the model.
        grid: Rows and columns of its patches.
        before: Labels of the tokens before them.
        after: Labels of those after them.
        stack: The stack that reads the picture.
        ids: Token ids that are read with it.
        read: Turns pixels [channel, height, width] into the model's inputs.
        side: Pixels that a patch is wide and high.
        states: The module that returns a token's states, where queries are not recorded.
    """

    make: Callable[[], Any]
    grid: tuple[int, int] = (2, 3)
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    stack: str = "self"
    ids: Sequence[int] | None = None
    read: Callable[[torch.Tensor], dict[str, Any]] = field(default=as_pixels)
    side: int = SIDE
    states: str = ""

    def picture(self) -> torch.Tensor:
        """Return pixels [channel, height, width], the same every time."""
        rows, columns = self.grid
        generator = torch.Generator().manual_seed(2)
        return torch.randn(3, rows * self.side, columns * self.side, generator=generator)

    def trace_of(self, model: Any, picture: torch.Tensor) -> Any:
        """Return the trace of a picture."""
        reader = Reader(self.read(picture), self.ids)
        return trace(model, reader, None if self.ids is None else TEXT, image=picture)

    def painted(self, row: int, column: int) -> torch.Tensor:
        """Return the picture with one patch painted over."""
        picture = self.picture()
        down, across = (slice(i * self.side, (i + 1) * self.side) for i in (row, column))
        picture[:, down, across] = 3 * torch.ones(3, 1, 1) - picture[:, down, across]
        return picture

    def changed(self, model: Any, before: Any, row: int, column: int, stack: str = "") -> int:
        """Return the position of a stack that changes most at the first layer when a patch is painted."""
        if self.states:
            states = [self._states(model, each) for each in (self.picture(), self.painted(row, column))]
            return int((states[1] - states[0]).norm(dim=-1).argmax())
        after = self.trace_of(model, self.painted(row, column))
        queries = [result.query_key(0, stack or self.stack)[0] for result in (before, after)]
        return int((queries[1] - queries[0]).norm(dim=(0, 2)).argmax())

    def _states(self, model: Any, picture: torch.Tensor) -> torch.Tensor:
        states: list[torch.Tensor] = []
        hook = model.get_submodule(self.states).register_forward_hook(lambda *a: states.append(a[2][0]))
        ids = {} if self.ids is None else {"input_ids": torch.tensor([self.ids])}
        with torch.no_grad():
            model(**self.read(picture), **ids)
        hook.remove()
        return states[0]


CLASS = ("[CLS]",)
WIDE = {"image_size": (2 * SIDE, 3 * SIDE), "patch_size": SIDE}
SQUARE = {"image_size": 2 * SIDE, "patch_size": SIDE}
_TEXT = {"vocab_size": VOCAB, **SMALL}
_VISION = {**SMALL, **SQUARE}
_LLAMA = {"model_type": "llama", **_TEXT}
_IDS = (5, 6, 7, 8)
# An adapter that joins four patches.
_SHUFFLED = {"intermediate_size": 128, "projector_input_dim": 32, "projector_output_dim": 32}


def _model(name: str, head: str = "Model", **options: Any) -> Callable[[], Any]:
    return lambda: getattr(hf, name + head)(getattr(hf, f"{name}Config")(**{**SMALL, **WIDE, **options}))


def _square(name: str, before: tuple[str, ...], **options: Any) -> Pictures:
    return Pictures(_model(name, **{**SQUARE, **options}), (2, 2), before)


def _two_towers(name: str, **text: Any) -> Pictures:
    config = {"text_config": {**_TEXT, "max_position_embeddings": 20, **text}, "vision_config": _VISION}
    if "Siglip" not in name:
        config["projection_dim"] = 16
    before = () if "Siglip" in name else CLASS
    return Pictures(
        lambda: getattr(hf, f"{name}Model")(getattr(hf, f"{name}Config")(**config)),
        (2, 2),
        before,
        stack="vision",
        ids=_IDS,
    )


def _detector(name: str) -> Pictures:
    convolutions = {"embedding_size": 8, "hidden_sizes": [8] * 4, "depths": [1] * 4, "layer_type": "basic"}
    sides = {
        f"{side}_{part}": value
        for side in ("encoder", "decoder")
        for part, value in {"layers": 2, "attention_heads": 4, "ffn_dim": 37}.items()
    }
    options = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    options |= {"d_model": 32, "num_queries": 5, "num_labels": 3, **sides}

    def make() -> Any:
        backbone = hf.ResNetConfig(**convolutions, out_features=["stage4"])
        config = getattr(hf, f"{name}Config")(**options, backbone_config=backbone)
        model = getattr(hf, f"{name}ForObjectDetection")(config)
        for module in model.modules():
            if isinstance(module, torch.nn.Conv2d):  # each cell of a map reads a single earlier cell
                middle = module.kernel_size[0] // 2
                weights = module.weight.data[:, :, middle, middle].clone()
                module.weight.data.zero_()[:, :, middle, middle] = 9 * weights
        return model

    return Pictures(make, stack="encoder", side=32)


def _blip() -> Any:
    ends = {"bos_token_id": 1, "sep_token_id": 2, "pad_token_id": 0}
    text = {**_TEXT, "encoder_hidden_size": 32, "max_position_embeddings": 20, **ends}
    return hf.BlipForConditionalGeneration(
        hf.BlipConfig(text_config=text, vision_config=_VISION, projection_dim=16)
    )


def _blip2() -> Any:
    text = {"model_type": "opt", "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2}
    text |= {"ffn_dim": 37, "num_attention_heads": 4, "word_embed_proj_dim": 32}
    config = hf.Blip2Config(
        vision_config=_VISION,
        qformer_config={**_TEXT, "encoder_hidden_size": 32},
        text_config=text,
        num_query_tokens=3,
        image_token_index=IMAGE,
    )
    return hf.Blip2ForConditionalGeneration(config)


def _git() -> Any:
    return hf.GitForCausalLM(hf.GitConfig(**_TEXT, vision_config=_VISION))


def _trocr() -> Any:
    decoder = {"decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 37}
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        hf.ViTConfig(**SMALL, **WIDE), hf.TrOCRConfig(vocab_size=VOCAB, d_model=32, **decoder)
    )
    config.decoder_start_token_id = config.pad_token_id = 0
    return hf.VisionEncoderDecoderModel(config)


def _siglip2() -> Any:
    return hf.Siglip2VisionModel(hf.Siglip2VisionConfig(**SMALL, patch_size=SIDE, num_patches=16))


def _padded(picture: torch.Tensor) -> dict[str, Any]:
    """Return patches row by row, with two of padding, as Siglip 2 reads them."""
    rows, columns = (n // SIDE for n in picture.shape[-2:])
    patches = picture.reshape(3, rows, SIDE, columns, SIDE).permute(1, 3, 2, 4, 0).reshape(1, -1, 3 * SIDE**2)
    return {
        "pixel_values": torch.nn.functional.pad(patches, (0, 0, 0, 2)),
        "pixel_attention_mask": torch.tensor([[1] * (rows * columns) + [0, 0]]),
        "spatial_shapes": torch.tensor([[rows, columns]]),
    }


def _llava(vision: str = "clip_vision_model") -> Any:
    tower = {**_VISION, "model_type": vision}
    config = hf.LlavaConfig(
        vision_config=tower, text_config=_LLAMA, image_token_index=IMAGE, vision_feature_layer=-1
    )
    return hf.LlavaForConditionalGeneration(config)


def _paligemma() -> Any:
    tower = {**_VISION, "model_type": "siglip_vision_model", "projection_dim": 32}
    text = {**_TEXT, "model_type": "gemma", "num_key_value_heads": 1, "head_dim": 8}
    return hf.PaliGemmaForConditionalGeneration(
        hf.PaliGemmaConfig(vision_config=tower, text_config=text, projection_dim=32, image_token_index=IMAGE)
    )


def _idefics3() -> Any:
    tower = {**SMALL, "image_size": 4 * SIDE, "patch_size": SIDE}
    config = hf.Idefics3Config(
        vision_config=tower, text_config=_LLAMA, image_token_id=IMAGE, scale_factor=2, pad_token_id=0
    )
    return hf.Idefics3ForConditionalGeneration(config)


def _qwen2_vl() -> Any:
    tower = {
        "depth": 2,
        "num_heads": 4,
        "patch_size": SIDE,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    tower |= {"embed_dim": 32, "hidden_size": 32, "mlp_ratio": 1}
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
    config = hf.Qwen2VLConfig(
        vision_config=tower,
        text_config={**_TEXT, "num_key_value_heads": 2, "rope_parameters": rope},
        image_token_id=IMAGE,
        vision_start_token_id=10,
        vision_end_token_id=11,
        video_token_id=12,
    )
    return hf.Qwen2VLForConditionalGeneration(config)


def _windows(picture: torch.Tensor) -> dict[str, Any]:
    """Return patches as the processor of Qwen2-VL lists them."""
    kind = getattr(hf, "Qwen2VLImageProcessorPil", None) or hf.Qwen2VLImageProcessor
    same = {"do_resize": False, "do_rescale": False, "do_normalize": False}
    processor = kind(patch_size=SIDE, merge_size=2, temporal_patch_size=2, **same)
    read = dict(processor(images=picture.numpy(), input_data_format="channels_first", return_tensors="pt"))
    if "mm_token_type_ids" in inspect.signature(hf.Qwen2VLForConditionalGeneration.forward).parameters:
        read["mm_token_type_ids"] = torch.tensor([[0, 0] + [1] * 6 + [0, 0]])
    return read


PICTURES: dict[str, Pictures] = {
    "ViT": Pictures(_model("ViT"), before=CLASS),
    "ViT-MSN": Pictures(_model("ViTMSN"), before=CLASS),
    "DeiT": Pictures(_model("DeiT"), before=("[CLS]", "[DIST]")),
    "BEiT": Pictures(_model("Beit"), before=CLASS),
    "DPT": _square(
        "DPT", CLASS, is_hybrid=False, backbone_out_indices=[0, 1, 1, 1], neck_hidden_sizes=[8] * 4
    ),
    "I-JEPA": Pictures(_model("IJepa")),
    "DINOv2": _square("Dinov2", CLASS),
    "DINOv2 with registers": _square(
        "Dinov2WithRegisters", ("[CLS]", "[REG0]", "[REG1]"), num_register_tokens=2
    ),
    "DINOv3": Pictures(_model("DINOv3ViT", num_register_tokens=2), before=("[CLS]", "[REG0]", "[REG1]")),
    "YOLOS": Pictures(
        _model("Yolos", "ForObjectDetection", image_size=[2 * SIDE, 3 * SIDE], num_detection_tokens=3),
        before=CLASS,
        after=("[DET0]", "[DET1]", "[DET2]"),
    ),
    "InternVL": _square("InternVLVision", CLASS, patch_size=[SIDE, SIDE], image_size=[2 * SIDE, 2 * SIDE]),
    "AIMv2": _square("Aimv2Vision", ()),
    "Llama 4": Pictures(_model("Llama4Vision", **SQUARE, **_SHUFFLED), (2, 2), after=CLASS),
    "MLCD": _square("MLCDVision", CLASS),
    "ViTPose": Pictures(_model("VitPoseBackbone", "", image_size=(32, 48), patch_size=16), side=16),
    "Pixtral": Pictures(
        _model("PixtralVision", image_size=32),
        read=lambda p: {**as_pixels(p), "image_sizes": torch.tensor([p.shape[1:]])},
    ),
    "FLAVA": Pictures(_model("FlavaImage", **SQUARE), (2, 2), CLASS, states="embeddings"),
    "CLIP": _two_towers("CLIP", bos_token_id=1, eos_token_id=2),
    "CLIPSeg": _two_towers("CLIPSeg", bos_token_id=1, eos_token_id=2),
    "Chinese CLIP": _two_towers("ChineseCLIP"),
    "AltCLIP": _two_towers("AltCLIP", project_dim=16, pad_token_id=1),
    "OWL-ViT": _two_towers("OwlViT"),
    "SigLIP": _two_towers("Siglip"),
    "SigLIP 2": Pictures(_siglip2, after=("[PAD]", "[PAD]"), read=_padded),
    "DETR": _detector("Detr"),
    "Conditional DETR": _detector("ConditionalDetr"),
    "BLIP": Pictures(_blip, (2, 2), CLASS, stack="vision", ids=_IDS, states="vision_model.embeddings"),
    "BLIP-2": Pictures(_blip2, (2, 2), CLASS, stack="vision", ids=(IMAGE, IMAGE, IMAGE, 5, 6)),
    "GIT": Pictures(_git, (2, 2), CLASS, stack="vision", ids=_IDS),
    "TrOCR": Pictures(_trocr, before=CLASS, stack="encoder"),
    "LLaVA": Pictures(_llava, (2, 2), CLASS, stack="vision", ids=(5, *[IMAGE] * 4, 6)),
    "PaliGemma": Pictures(_paligemma, (2, 2), stack="vision", ids=(*[IMAGE] * 4, 5, 6)),
    "Idefics 3": Pictures(
        _idefics3,
        (4, 4),
        stack="vision",
        ids=(5, *[IMAGE] * 4, 6),
        read=lambda p: {"pixel_values": p[None, None]},
    ),
    "Qwen2-VL": Pictures(_qwen2_vl, (4, 6), stack="vision", ids=(5, 10, *[IMAGE] * 6, 11, 6), read=_windows),
}
