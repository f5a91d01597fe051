"""Default configs made small: width 32, 4 heads, and as many blocks as show every kind of block."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import transformers as hf

if TYPE_CHECKING:
    from collections.abc import Iterator

VOCABULARY = 128
WIDTH = 32
HEADS = 4
SIDE = 28
"""Pixels of a picture, in patches of 7."""
FEATURES = 8
"""Bands of a spectrogram."""
_FEWEST, _MOST = 3, 6  # blocks

# Sizes by the names of a config's numbers, blanks between patterns; the first that fits the whole name.
_SIZES = [
    (re.compile("|".join(names.split())), size)
    for size, names in (
        (VOCABULARY, r"(?!.*audio_token).*vocab_size(_per_layer_input|_audio)?"),
        (_FEWEST, r"(.+_)?num_(hidden_|decoder_|encoder_)?layers n_layers? \w+coder_layers layers depth"),
        (_FEWEST, r"folding_trunk_num_hidden_layers num_blocks"),
        (2, r"index_n_heads linear_num_key_heads num_mem_heads n_mamba_heads"),
        (2, r"(.+_)?num_(\w+_)?(key_value|kv)_heads (.+_)?kv_n_heads n_kv_heads"),
        (HEADS, r"(.+_)?num_(\w+_)?heads (.+_)?n_heads? (.+_)?attention_heads"),
        (4, r"qk_rope_head_dim"),
        (12, r"qk_head_dim"),
        (16, r"mamba_(d_head|head_?dim)"),
        (8, r"qk_nope_head_dim v_head_dim index_head_dim d_rel adapter_rank hidden_size_per_layer_input"),
        (8, r"(.+_)?(head_dim|head_size|d_head|d_kv|kv_channels|dim_head|v_channels) attention_key_size"),
        (16, r"(.+_)?(moe|expert|shared)\w*_(intermediate|ffn_hidden|hidden)_size expert_hidden_size"),
        (48, r"(.+_)?intermediate_(size|dim)(_mlp)? (.+_)?ffn_(dim|hidden_size) feed_forward_size"),
        (48, r"(.+_)?dim_(feedforward|ff) d_?ff n_inner d_inner (.+_)?mlp_dim (.+_)?linear_units"),
        (2, r"(?!num_).*top_?k_experts moe_top_?k moe_k num_experts_per_tok(en)?"),
        (2, r"experts_per_token zero_expert_num temporal_patch_size spatial_merge_size num_codebooks"),
        (1, r"n_group topk_group num_expert_groups? n_shared_experts num_shared_experts (mamba_)?n_?groups"),
        (1, r"first_k_dense_replace num_kv_shared_layers max_window_layers"),
        (4, r"(moe_)?(num|n)_(local_|routed_)?experts(_per_layer)?"),
        (16, r"(q|kv|o)_lora_rank"),
        (4, r"index_topk laurel_rank (mamba_)?(time_step|dt)_rank rotary_dim linear_num_value_heads"),
        (4, r"(sliding|attention)_window(_size)? local_attention keep_window_size"),
        (8, r"(mamba_)?(d_state|chunk_size) (ssm_)?state_size attention_chunk_size max_bucket_size"),
        (64, r"max_position_embeddings n_positions n_ctx (max_)?(sequence|context)_length max_seq_len"),
        (64, r"max_target_positions max_length mamba_d_ssm"),
        (20, r"max_source_positions"),
        (SIDE, r"image_size crop_size img_size input_size"),
        (7, r"patch_size"),
        (FEATURES, r"num_mel_bins feature_size input_feat_per_channel"),
        (3, r"num_labels"),
        (WIDTH, r"(?!group|pooling|.*kernel).*hidden_(size|dim)(_global)? (.+_)?d_model n_embd n_embed"),
        (WIDTH, r"(?!.*kernel).*(model|projection|embedding|embed|emb)_(size|dim) dim dim_model d_embed"),
        (WIDTH, r"word_embed_proj_dim lru_width conv_dim_out"),
    )
]
_IDS = {"pad": 0, "bos": 1, "cls": 1, "decoder_start": 1, "eos": 2, "sep": 2, "unk": 3, "mask": 4}
MEDIA_IDS = {"image": 5, "video": 6, "audio": 7}
"""Ids of the tokens that a picture, a video and sound stand in for."""
_ID = re.compile(r"(\w+?)_(token_id|token_index|index|patch_id)")
_DEPTHS = _SIZES[1][0]
_EVERY_BLOCK = {"intermediate_size": 48, "num_attention_heads": HEADS, "num_key_value_heads": 2}
_KINDS = ("layer_types", "layers_block_type", "layer_type_list", "block_types")


def configs_in(config: Any) -> Iterator[Any]:
    """Yield a config and the configs of its parts."""
    yield config
    for value in list(vars(config).values()):
        if isinstance(value, hf.PreTrainedConfig):
            yield from configs_in(value)


def put(config: Any, name: str, value: Any) -> None:
    """Set a value, past the checks of a config that is only consistent once it is complete."""
    try:
        setattr(config, name, value)
    except Exception:  # noqa: BLE001 - a config's checks raise any error
        object.__setattr__(config, name, value)


def shrink(config: Any) -> Any:
    """Make a config and those of its parts small, and return it."""
    for part in configs_in(config):
        _shrink(part)
    return config


def _shrink(config: Any) -> None:
    values = {name: value for name, value in vars(config).items() if not name.startswith("_")}
    kinds = next((values[name] for name in _KINDS if isinstance(values.get(name), (list, tuple))), None)
    blocks = _blocks(list(kinds)) if kinds else [None] * _FEWEST
    free = iter(range(8, VOCABULARY))
    for name, value in values.items():
        if (is_id := _ID.fullmatch(name)) and type(value) in (int, list):
            media = (_IDS | MEDIA_IDS).get(is_id[1])
            put(config, name, next(free) if media is None else media)
        elif type(value) is int and value > 0 and not is_id:
            size = next((size for pattern, size in _SIZES if pattern.fullmatch(name)), value)
            put(config, name, len(blocks) if _DEPTHS.fullmatch(name) else size)
    if values.get("pad_token_id", 0) is None:
        put(config, "pad_token_id", 0)
    if "qk_nope_head_dim" in values and type(values.get("head_dim")) is int:
        put(config, "head_dim", 4)  # of the part that rotary embeddings turn
    _shrink_lists(config, values, blocks)
    _shrink_rope(values)


def _shrink_lists(config: Any, values: dict[str, Any], blocks: list[Any]) -> None:
    """Cut lists with a number for every block, or for every stage of a hierarchy."""
    depth = next((v for name, v in values.items() if _DEPTHS.fullmatch(name) and type(v) is int), None)
    for name, value in values.items():
        if not isinstance(value, (list, tuple)):
            continue
        if name in _KINDS:
            put(config, name, list(blocks))
        elif name in _EVERY_BLOCK and len(value) == depth:
            put(config, name, [_EVERY_BLOCK[name]] * len(blocks))
        elif name == "depths":
            put(config, name, type(value)([1] * (len(value) - 1) + [2]))
        elif depth and len(value) == depth > _MOST:
            put(config, name, type(value)(value[: len(blocks)]))


def _blocks(kinds: list[Any]) -> list[Any]:
    """Return the first 3 to 6 blocks that show every kind, or else a block of each kind."""
    for count in range(_FEWEST, _MOST + 1):
        if set(kinds[:count]) == set(kinds):
            return kinds[:count]
    return [*dict.fromkeys(kinds)][:_MOST]


def _shrink_rope(values: dict[str, Any]) -> None:
    """Fit rotary embeddings to heads of width 8."""
    for name, value in values.items():
        if isinstance(value, dict):
            _shrink_rope(value)
        elif name == "mrope_section":
            values[name] = [2, 1, 1]
        elif name in ("short_factor", "long_factor"):
            values[name] = [1.0] * 4
        elif name == "original_max_position_embeddings":
            values[name] = 64
