"""Settings that configs of single types need beside being shrunk."""

from __future__ import annotations

from typing import Any

import transformers as hf

from tests.tracing.families import FAMILIES, MORE

_LINEAR = ["linear_attention", "full_attention"] * 2
_HYBRID = ["linear_attention", "hybrid"] * 2
_SHARED = {
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "intermediate_size": [48] * 4,
    "activation_sparsity_pattern": [0.5, 0.5, 0.0, 0.0],
}
_STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 2], "embedding_size": 8, "image_size": 32}
_WINDOWS = {"embed_dim": 12, "depths": [1, 1, 2], "num_heads": [2, 2, 4], "window_size": 4}
_WINDOWS |= {"image_size": 32, "patch_size": 2, "hidden_size": 48}
_DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "pooler_hidden_size": 32}

_SECTIONS = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
}


def _with_resnet() -> dict[str, Any]:
    """Return options of detectors, whose default backbones need another library."""
    backbone = hf.ResNetConfig(
        hidden_sizes=[8] * 4, depths=[1] * 4, layer_type="basic", out_features=["stage2", "stage3", "stage4"]
    )
    return {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None} | {
        "backbone_config": backbone
    }


# Types that join two models, whose default configs name none.
BY_HAND = {"encoder-decoder": FAMILIES["BERT2BERT"], "vision-encoder-decoder": MORE["ViT-GPT2"]}

# By model type: the arguments of its config, and values of it and of its parts that have them.
SINGLE_TYPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "autoformer": ({"prediction_length": 4}, {}),
    **dict.fromkeys(("blip-2", "instructblip"), ({}, {"image_token_index": 5})),
    "bridgetower": ({}, {"hidden_size": 128, "num_attention_heads": 4}),
    "chameleon": ({"vocabulary_map": {"<image>": 5}}, {}),
    **dict.fromkeys(
        ("detr", "conditional_detr", "dab-detr", "deformable_detr", "table-transformer"), (_with_resnet(), {})
    ),
    "emu3": ({"vocabulary_map": {"<image>": 5}}, {}),
    "csm": ({}, {"upsample_groups": 32}),
    "deepseek_v2": ({"num_experts_per_tok": 2}, {}),
    "dots1": ({"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2}, {}),
    "kyutai_speech_to_text": ({}, {"upsample_groups": 32}),
    "mimi": ({}, {"upsample_groups": 32}),
    "mimi_decoder": ({}, {"upsample_groups": 32}),
    "mimi_encoder": ({}, {"upsample_groups": 32}),
    "molmo2": ({}, {"image_size": [28, 28], "num_position_embeddings": 16, "vision_feature_layer": [0, 1]}),
    "nemotron": ({"num_key_value_heads": 2}, {}),
    "bamba": ({}, {"attn_layer_indices": [1, 3], "num_hidden_layers": 4}),
    "convnext": ({}, _STAGES | {"patch_size": 4}),
    "convnextv2": ({}, _STAGES | {"patch_size": 4}),
    "deberta": ({}, _DEBERTA),
    "deberta-v2": (
        {},
        _DEBERTA | {"position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
    ),
    "esm": ({"vocab_size": 128, "mask_token_id": 3, "pad_token_id": 0}, {}),
    "gemma3": ({}, {"mm_tokens_per_image": 4}),
    "gemma3n_text": ({}, _SHARED),
    "gemma4_text": ({}, _SHARED | {"intermediate_size": 48}),
    "gemma4_unified": ({"vision_config": {}}, {}),
    "gemma4": ({"vision_config": {}}, _SHARED | {"intermediate_size": 48}),
    "glpn": ({}, {"depths": [1, 1, 1, 1]}),
    "granitemoehybrid": ({}, {"layer_types": _LINEAR, "num_hidden_layers": 4}),
    "informer": ({"prediction_length": 4}, {}),
    "jamba": ({}, {"attn_layer_period": 2, "attn_layer_offset": 1, "num_hidden_layers": 4}),
    "lfm2_moe": (
        {},
        {"layer_types": ["conv", "full_attention"] * 2, "num_hidden_layers": 4, "num_dense_layers": 1},
    ),
    "llama4": (
        {},
        {
            "num_hidden_layers": 4,
            "intermediate_size": 128,  # of the adapter: four patches of 32
            "projector_input_dim": 32,
            "projector_output_dim": 32,
            "vision_output_dim": 32,
        },
    ),
    "lilt": ({}, {"hidden_size": 48}),
    **dict.fromkeys(
        ("llava_next", "llava_next_video", "llava_onevision"), ({}, {"image_grid_pinpoints": [[28, 28]]})
    ),
    "mobilebert": ({}, {"intra_bottleneck_size": 32, "true_hidden_size": 32}),
    "moonshine": ({}, {"decoder_num_key_value_heads": 4, "encoder_num_key_value_heads": 4}),
    "mamba2": ({}, {"num_heads": 4, "head_dim": 16, "n_groups": 1, "expand": 2, "chunk_size": 4}),
    "nemotron_h": (
        {},
        {
            "layers_block_type": ["linear_attention", "mlp", "full_attention"] * 2,
            "num_hidden_layers": 6,
        },
    ),
    **dict.fromkeys(
        ("qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"), ({"vision_start_token_id": 8}, _SECTIONS)
    ),
    "resnet": ({}, _STAGES),
    "segformer": (
        {},
        _STAGES | {"depths": [1] * 4, "num_attention_heads": [1, 2, 2, 4], "image_size": 64},
    ),
    "siglip2": ({}, {"num_patches": 16}),
    "siglip2_vision_model": ({}, {"num_patches": 16}),
    "swin": ({}, _WINDOWS),
    "donut-swin": ({}, _WINDOWS),
    "maskformer-swin": ({}, _WINDOWS),
    "swinv2": ({}, _WINDOWS),
    "unlimited_ocr": ({}, {"num_key_value_heads": 4}),
    "zamba": (
        {},
        {
            "layers_block_type": _HYBRID,
            "num_hidden_layers": 4,
            "attention_hidden_size": 64,
            "attention_head_dim": 16,
            "num_key_value_heads": 4,
        },
    ),
    "zamba2": (
        {},
        {
            "layers_block_type": _HYBRID,
            "hybrid_layer_ids": [1, 3],
            "num_hidden_layers": 4,
            "attention_hidden_size": 64,
            "attention_head_dim": 16,
            "num_key_value_heads": 4,
            "n_mamba_heads": 4,
            "mamba_headdim": 16,
            "num_query_groups": 4,
            "num_mem_blocks": 1,
        },
    ),
    **dict.fromkeys(
        (
            "qwen2_vl", "qwen2_5_vl", "glm4v", "glm4v_moe", "glm46v", "glm_ocr", "glm_image", "glmga",
            "paddleocr_vl", "qwen2_vl_text",
            "qwen2_5_vl_text", "glm4v_text", "glm4v_moe_text", "glm_ocr_text", "glm_image_text",
        ),
        ({}, _SECTIONS),
    ),
}  # fmt: skip
