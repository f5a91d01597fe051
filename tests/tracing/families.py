"""Every family that is tested, as a tiny random model with something for it to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers as hf
from packaging.version import Version

from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.tracing.tiny import GQA, SMALL, VOCAB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

IDS = [5, 17, 31, 9, 44, 8, 23, 60]
WRITTEN = 4  # tokens that encoder-decoders write
# By then every family here had joined transformers' attention interface; T5 was the last.
JOINED = Version(hf.__version__) >= Version("5.15")
# Features of families that some tests need, and the first version with them. Before, an error names them.
_BROUGHT = {
    "interface": ("5.15", "T5"),
    "head": ("5.14", "GPT-NeoX", "GPT-NeoX (sequential)"),
}


def noise(*shape: int) -> torch.Tensor:
    """Return the same random numbers every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def needs(part: str, family: str) -> None:
    """Skip a test before the version of transformers that brought a part of a family.

    Args:
        part: "interface", to edit attention or to call blocks again; "head", to take a logit apart.
        family: Its name. Of most families every version that is supported has both.
    """
    version, *families = _BROUGHT[part]
    if family in families and Version(hf.__version__) < Version(version):
        pytest.skip(f"transformers {hf.__version__}: the {part} of {family} came in {version}")


@dataclass(frozen=True)
class Family:
    """A tiny model and its input.

    Args:
        make: Builds the model.
        given: The arguments of `trace`, by keyword.
        outside: Whether it computes attention outside transformers' attention interface in every version.
    """

    make: Callable[[], Any]
    given: Mapping[str, Any] = field(default_factory=lambda: {"input_ids": IDS})
    outside: bool = False

    def model(self, dtype: torch.dtype = torch.float32) -> Any:
        """Return the model, the same every time, with biases and gains that show when they are left out."""
        model = tiny.build(self.make)
        # Experts run at once only in single precision.
        model.config._experts_implementation = "eager"
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
        return model.to(dtype)

    def traced(self, dtype: torch.dtype = torch.float32) -> Any:
        """Return a trace of a fresh model."""
        return self.trace_of(self.model(dtype))

    def trace_of(self, model: Any) -> Any:
        """Return a trace of a model of this family; skip before the version that can trace it."""
        try:
            result = trace(model, None, **self.given)
            hidden = result.warning if "outside transformers' attention interface" in result.warning else ""
        except UnsupportedModelError as error:
            hidden = str(error)
        if hidden and not self.outside and not JOINED:
            pytest.skip(f"transformers {hf.__version__}: {hidden}")
        return result


def _causal(name: str, **options: Any) -> Family:
    return Family(lambda: tiny._plain(name, "ForCausalLM", **{**GQA, "pad_token_id": 0, **options}))


def _masked(name: str, **options: Any) -> Family:
    return Family(lambda: tiny._plain(name, "ForMaskedLM", pad_token_id=1, **options))


def _written(make: Callable[[], Any], **given: Any) -> Family:
    return Family(make, {**(given or {"input_ids": IDS}), "max_new_tokens": WRITTEN})


def _t5(name: str, **options: Any) -> Family:
    options = {"d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4} | options
    config = {"vocab_size": VOCAB, "decoder_start_token_id": 0, **options}
    return _written(
        lambda: getattr(hf, f"{name}ForConditionalGeneration")(getattr(hf, f"{name}Config")(**config))
    )


def _bart(name: str, head: str = "ForConditionalGeneration") -> Family:
    return _written(lambda: getattr(hf, name + head)(getattr(hf, f"{name}Config")(**tiny._seq2seq_options())))


def _image(name: str, side: int = 24, **options: Any) -> Family:
    options = {**SMALL, "image_size": side, "patch_size": 8} | options
    return Family(
        lambda: getattr(hf, f"{name}Model")(getattr(hf, f"{name}Config")(**options)),
        {"image": noise(3, side, side)},
    )


def _bert2bert() -> Any:
    configs = [hf.BertConfig(vocab_size=VOCAB, **SMALL) for _ in range(2)]
    config = hf.EncoderDecoderConfig.from_encoder_decoder_configs(*configs)
    config.decoder_start_token_id = config.pad_token_id = 0
    return hf.EncoderDecoderModel(config)


def _vit2gpt2() -> Any:
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        hf.ViTConfig(**SMALL, image_size=24, patch_size=8),
        hf.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    )
    config.decoder_start_token_id = config.pad_token_id = 0
    return hf.VisionEncoderDecoderModel(config)


def _hubert() -> Any:
    return hf.HubertModel(
        hf.HubertConfig(
            **SMALL, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_conv_pos_embeddings=4,
            num_conv_pos_embedding_groups=2, num_feat_extract_layers=2,
        )
    )  # fmt: skip


def _clip_text() -> Any:
    config = hf.CLIPTextConfig(vocab_size=VOCAB, **SMALL, max_position_embeddings=20, bos_token_id=1)
    return hf.CLIPTextModel(config)


EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}

# The families of every test of context mixing: each kind of block, and each kind of input.
FAMILIES: dict[str, Family] = {
    **{name: Family(make) for name, make in tiny.TEXT.items()},
    "Cohere": _causal("Cohere"),
    "Granite": _causal("Granite", residual_multiplier=0.3),
    "Mixtral": _causal("Mixtral", **EXPERTS),
    "T5": Family(tiny.SEQ2SEQ["T5"], {"input_ids": IDS, "max_new_tokens": WRITTEN}),
    "Marian": _written(tiny.SEQ2SEQ["Marian"]),
    "BERT2BERT": _written(_bert2bert),
    "Whisper": _written(tiny._whisper, audio=noise(1, 8, 40)),
    "ViT": Family(tiny.IMAGE["ViT"], {"image": noise(3, 24, 24)}),
    "DINOv2 with registers": Family(tiny.IMAGE["DINOv2 with registers"], {"image": noise(3, 28, 28)}),
    "wav2vec 2.0": Family(tiny._wav2vec2, {"audio": noise(120)}),
}

# Families whose blocks are described like one of the above, or by other lines.
MORE: dict[str, Family] = {
    "XLM-RoBERTa": _masked("XLMRoberta"),
    "CamemBERT": _masked("Camembert"),
    "RoBERTa-PreLayerNorm": _masked("RobertaPreLayerNorm"),
    "XLM-RoBERTa-XL": _masked("XLMRobertaXL"),
    "ESM": _masked("Esm", position_embedding_type="rotary", mask_token_id=3),
    "ModernBERT decoder": _causal("ModernBertDecoder", local_attention=4, cls_token_id=1, sep_token_id=2),
    "Mistral": _causal("Mistral"),
    "Qwen2": _causal("Qwen2"),
    "Qwen3 MoE": _causal("Qwen3Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16),
    "SmolLM3": _causal("SmolLM3"),
    "StableLM": _causal("StableLm"),
    "StableLM (parallel)": _causal("StableLm", use_parallel_residual=True),
    "StarCoder 2": _causal("Starcoder2"),
    "OLMo": _causal("Olmo"),
    "OLMo 2": _causal("Olmo2"),
    "OLMoE": _causal("Olmoe", num_experts=4, num_experts_per_tok=2),
    "GLM-4": _causal("Glm4"),
    "Granite MoE": _causal("GraniteMoe", residual_multiplier=0.3, **EXPERTS),
    "Phi": _causal("Phi"),
    "Phi-3": _causal("Phi3"),
    "Phi-MoE": _causal("Phimoe", **EXPERTS),
    "Persimmon": _causal("Persimmon"),
    "Nemotron": _causal("Nemotron"),
    "Apertus": _causal("Apertus"),
    "GPT-NeoX (sequential)": _causal("GPTNeoX", use_parallel_residual=False),
    "GPT-BigCode": Family(
        lambda: hf.GPTBigCodeForCausalLM(
            hf.GPTBigCodeConfig(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64)
        )
    ),
    "BioGPT": _causal("BioGpt"),
    "mT5": _t5("MT5"),
    "Switch Transformers": _t5("SwitchTransformers", num_experts=4, num_decoder_layers=2),
    "BART": _bart("Bart"),
    "mBART": _bart("MBart"),
    "Pegasus": _bart("Pegasus"),
    "M2M100": _bart("M2M100"),
    "ViT-GPT2": _written(_vit2gpt2, image=noise(3, 24, 24)),
    "DeiT": _image("DeiT"),
    "BEiT": _image("Beit", layer_scale_init_value=0.3),
    "YOLOS": _image("Yolos", num_detection_tokens=2, num_labels=3, image_size=[24, 24]),
    "CLIP text": Family(_clip_text),
    "CLIP vision": _image("CLIPVision"),
    "SigLIP vision": _image("SiglipVision"),
    "HuBERT": Family(_hubert, {"audio": noise(120)}),
}

# Outside transformers' attention interface: only the weights that they return are there.
UNFOLLOWED: dict[str, Family] = {name: Family(make, outside=True) for name, make in tiny.UNFOLLOWED.items()}
