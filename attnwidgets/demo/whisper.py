"""Whisper tiny.en from the CTranslate2 file in its package, with its tokenizer and features."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

_LAYERS, _WIDTH, _HEADS = 4, 384, 6
_START, _END, _NO_TIMES = 50257, 50256, 50362
_END_TEXT = "<|endoftext|>"
_HALF = 4  # CTranslate2's number for float16


def whisper(folder: Path) -> tuple[WhisperForConditionalGeneration, WhisperProcessor]:
    """Return (model, processor); the processor takes 16 kHz and fills every recording up to 30 seconds."""
    import torch
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperProcessor,
        WhisperTokenizer,
    )

    where = folder / "model"
    sides: dict[str, Any] = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": _LAYERS, "attention_heads": _HEADS, "ffn_dim": 4 * _WIDTH}.items()
    }
    ends: dict[str, Any] = {"eos_token_id": _END, "bos_token_id": _END, "pad_token_id": _END}
    config = WhisperConfig(
        vocab_size=51864, num_mel_bins=80, d_model=_WIDTH, decoder_start_token_id=_START, **sides, **ends
    )
    # Without random weights: all are read from the file.
    with torch.device("meta"):
        model = WhisperForConditionalGeneration(config)
    model.load_state_dict(_weights(_variables(where / "model.bin")), assign=True)
    model.tie_weights()
    settings = json.loads((where / "config.json").read_text(encoding="utf-8"))
    # `update` would lose the fields that only Whisper has.
    model.generation_config = GenerationConfig(
        alignment_heads=settings["alignment_heads"],
        suppress_tokens=settings["suppress_ids"],
        begin_suppress_tokens=settings["suppress_ids_begin"],
        decoder_start_token_id=_START,
        no_timestamps_token_id=_NO_TIMES,
        is_multilingual=False,
        return_timestamps=False,
        max_length=config.max_target_positions,
        **ends,
    )
    tokenizer = WhisperTokenizer(tokenizer_file=str(where / "tokenizer.json"), pad_token=_END_TEXT)
    return model, WhisperProcessor(WhisperFeatureExtractor(feature_size=80), tokenizer)


def _weights(variables: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights by their names in transformers."""
    result: dict[str, Tensor] = {}

    def norm(target: str, source: str) -> None:
        result[f"{target}.weight"] = variables[f"{source}/layer_norm/gamma"]
        result[f"{target}.bias"] = variables[f"{source}/layer_norm/beta"]

    def linear(targets: dict[str, bool], source: str) -> None:
        """Divide a matrix among modules, with or without bias."""
        weights, biases = (variables[f"{source}/{kind}"].chunk(len(targets)) for kind in ("weight", "bias"))
        for (target, biased), weight, bias in zip(targets.items(), weights, biases, strict=True):
            result[f"{target}.weight"] = weight.contiguous()
            if biased:
                result[f"{target}.bias"] = bias.contiguous()

    for side in ("encoder", "decoder"):
        prefix = f"model.{side}"
        for number in range(_LAYERS):
            block, source = f"{prefix}.layers.{number}", f"{side}/layer_{number}"
            at = f"{block}.self_attn"
            queries = {f"{at}.q_proj": True, f"{at}.k_proj": False, f"{at}.v_proj": True}
            linear(queries, f"{source}/self_attention/linear_0")
            linear({f"{at}.out_proj": True}, f"{source}/self_attention/linear_1")
            norm(f"{at}_layer_norm", f"{source}/self_attention")
            if side == "decoder":
                at, across = f"{block}.encoder_attn", f"{source}/attention"
                linear({f"{at}.q_proj": True}, f"{across}/linear_0")
                linear({f"{at}.k_proj": False, f"{at}.v_proj": True}, f"{across}/linear_1")
                linear({f"{at}.out_proj": True}, f"{across}/linear_2")
                norm(f"{at}_layer_norm", across)
            norm(f"{block}.final_layer_norm", f"{source}/ffn")
            linear({f"{block}.fc1": True}, f"{source}/ffn/linear_0")
            linear({f"{block}.fc2": True}, f"{source}/ffn/linear_1")
        result[f"{prefix}.embed_positions.weight"] = variables[f"{side}/position_encodings/encodings"]
        norm(f"{prefix}.layer_norm", side)
    for number in (1, 2):
        linear({f"model.encoder.conv{number}": True}, f"encoder/conv{number}")
    result["model.decoder.embed_tokens.weight"] = variables["decoder/embeddings/weight"]
    result["proj_out.weight"] = result["model.decoder.embed_tokens.weight"]
    return result


def _variables(path: Path) -> dict[str, Tensor]:
    """Return the float16 variables of a CTranslate2 file (binary version 6) as float32, by name."""
    import numpy as np
    import torch

    data = path.read_bytes()
    at = 0

    def number(kind: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(f"<{kind}", data, at)
        at += struct.calcsize(kind)
        return int(value)

    def text() -> str:
        nonlocal at
        size = number("H")
        at += size
        return data[at - size : at - 1].decode()  # it ends with a zero byte

    version, _, _ = number("I"), text(), number("I")
    if version != 6:  # noqa: PLR2004 - the version in the package
        raise ValueError(f"{path.name} is of version {version}, and version 6 can be read")
    result = {}
    for _ in range(number("I")):
        name, shape = text(), [number("I") for _ in range(number("B"))]
        kind, size = number("B"), number("I")
        if kind == _HALF:
            values = np.frombuffer(data, "<f2", size // 2, at).astype(np.float32).reshape(shape)
            result[name] = torch.from_numpy(values)
        at += size
    return result
