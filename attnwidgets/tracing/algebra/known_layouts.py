"""Layouts of transformer blocks, module by module: a family says how it differs from a similar one.

A layout names modules by their path in the block and fits a block that has them all. Whether the block
follows the layout is checked at run time (`blocks.py`), so an architecture that uses the same names for other
modules is rejected rather than trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class CrossAttention:
    """The cross-attention between a block's self-attention and its MLP, with its norm in the same order.

    Args:
        attention: Module that calls the attention function.
        out: Its output projection.
        norm: The norm of the cross-attention.
    """

    attention: str
    out: str
    norm: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The modules a block must have."""
        return (self.attention, self.out, self.norm)


@dataclass(frozen=True)
class Layout:
    """The modules of a block by their part in it.

    With x the block's input, att the attention with its output projection and `after`, f the `mlp` steps:

        post      h = norm1(x + att(x));      output = norm2(h + f(h))
        pre       z = x + att(norm1(x));      output = z + f(norm2(z))
        parallel  output = x + att(norm1(x)) + f(norm2(x))

    A step may also be a vector or number of the block that scales its input (BEiT, Granite), or None.

    Args:
        family: Readable name, used in messages.
        order: An order of the three above.
        attention: Module that calls the attention function.
        out: The attention's output projection.
        norm1: Norm of the attention branch; "" for none.
        norm2: Norm of the MLP branch; "" for none.
        mlp: Modules applied in sequence.
        value: The projection that produces the values; "" if unknown.
        fused: Whether `value` also produces queries and keys: "" (no), "thirds" (all queries, all keys, all
            values), "heads" (query, key and value of each head side by side).
        after: Norm or scale applied to the attention output before it is added (Gemma 2, DINOv2); "" for
            none.
        cross: The cross-attention, if the block has one.
    """

    family: str
    order: Literal["post", "pre", "parallel"]
    attention: str
    out: str
    norm1: str
    norm2: str
    mlp: tuple[str, ...]
    value: str = ""
    fused: Literal["", "thirds", "heads"] = ""
    after: str = ""
    cross: CrossAttention | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The modules a block must have, not counting a cross-attention."""
        named = (self.attention, self.out, self.norm1, self.norm2, *self.mlp, self.value, self.after)
        return tuple(path for path in named if path)

    @property
    def crossing(self) -> Layout:
        """The layout with the cross-attention instead of the self-attention."""
        if self.cross is None:
            raise ValueError(f"blocks of {self.family} have no cross-attention")
        attention, out, norm = self.cross.paths
        return replace(
            self, attention=attention, out=out, norm1=norm, value="", fused="", after="", cross=None
        )


def _like(base: Layout, family: str, **changes: Any) -> Layout:
    return replace(base, family=family, **changes)


_BERT = Layout(
    "BERT, RoBERTa, ELECTRA",
    "post",
    attention="attention.self",
    out="attention.output.dense",
    norm1="attention.output.LayerNorm",
    norm2="output.LayerNorm",
    mlp=("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense"),
    value="attention.self.value",
    cross=CrossAttention(
        "crossattention.self", "crossattention.output.dense", "crossattention.output.LayerNorm"
    ),
)
_BERT_PRE_NORM = _like(
    _BERT,
    "RoBERTa-PreLayerNorm",
    order="pre",
    norm1="attention.LayerNorm",
    norm2="intermediate.LayerNorm",
    cross=None,
)
_MODERNBERT = Layout(
    "ModernBERT",
    "pre",
    attention="attn",
    out="attn.Wo",
    norm1="attn_norm",
    norm2="mlp_norm",
    mlp=("mlp",),
    value="attn.Wqkv",
    fused="thirds",
)
_NEOX = Layout(
    "GPT-NeoX",
    "parallel",
    attention="attention",
    out="attention.dense",
    norm1="input_layernorm",
    norm2="post_attention_layernorm",
    mlp=("mlp",),
    value="attention.query_key_value",
    fused="heads",
)
_BLOOM = _like(
    _NEOX,
    "BLOOM",
    order="pre",
    attention="self_attention",
    out="self_attention.dense",
    mlp=("mlp.dense_h_to_4h", "mlp.gelu_impl", "mlp.dense_4h_to_h"),
    value="self_attention.query_key_value",
)
_FALCON = _like(_BLOOM, "Falcon", order="parallel", norm2="input_layernorm", mlp=("mlp",), fused="thirds")
_BART_PRE_NORM = Layout(
    "OPT, Whisper, mBART, Pegasus, M2M100",
    "pre",
    attention="self_attn",
    out="self_attn.out_proj",
    norm1="self_attn_layer_norm",
    norm2="final_layer_norm",
    mlp=("fc1", "activation_fn", "fc2"),
    value="self_attn.v_proj",
    cross=CrossAttention("encoder_attn", "encoder_attn.out_proj", "encoder_attn_layer_norm"),
)
_LLAMA = Layout(
    "Llama, Mistral, Qwen, SmolLM, Gemma, Mixtral",
    "pre",
    attention="self_attn",
    out="self_attn.o_proj",
    norm1="input_layernorm",
    norm2="post_attention_layernorm",
    mlp=("mlp",),
    value="self_attn.v_proj",
)
_GEMMA2 = _like(
    _LLAMA,
    "Gemma 2 and 3",
    norm2="pre_feedforward_layernorm",
    mlp=("mlp", "post_feedforward_layernorm"),
    after="post_attention_layernorm",
)
_GRANITE = _like(_LLAMA, "Granite", mlp=("mlp", "residual_multiplier"), after="residual_multiplier")
_COHERE = _like(_LLAMA, "Cohere", order="parallel", norm2="input_layernorm")
_T5 = Layout(
    "T5 encoder",
    "pre",
    attention="layer.0.SelfAttention",
    out="layer.0.SelfAttention.o",
    norm1="layer.0.layer_norm",
    norm2="layer.1.layer_norm",
    mlp=("layer.1.DenseReluDense",),
    value="layer.0.SelfAttention.v",
)
_T5_DECODER = _like(
    _T5,
    "T5 decoder",
    norm2="layer.2.layer_norm",
    mlp=("layer.2.DenseReluDense",),
    cross=CrossAttention("layer.1.EncDecAttention", "layer.1.EncDecAttention.o", "layer.1.layer_norm"),
)
_VIT = Layout(
    "ViT, DeiT, I-JEPA",
    "pre",
    attention="attention",
    out="attention.o_proj",
    norm1="layernorm_before",
    norm2="layernorm_after",
    mlp=("mlp",),
    value="attention.v_proj",
)
_DINOV2 = _like(
    _VIT, "DINOv2", norm1="norm1", norm2="norm2", mlp=("mlp", "layer_scale2"), after="layer_scale1"
)
_BEIT = _like(_VIT, "BEiT", mlp=("mlp", "lambda_2"), after="lambda_1")

# A vision attention inside a module that also has its output projection.
_OLD_VIT = {
    "attention": "attention.attention",
    "out": "attention.output.dense",
    "value": "attention.attention.value",
}
_WAV2VEC2 = Layout(
    "wav2vec 2.0, HuBERT",
    "post",
    attention="attention",
    out="attention.out_proj",
    norm1="layer_norm",
    norm2="final_layer_norm",
    mlp=(
        "feed_forward.intermediate_dense",
        "feed_forward.intermediate_act_fn",
        "feed_forward.output_dense",
    ),
    value="attention.v_proj",
)

# Tried from the top: a layout that names more modules comes before layouts that name fewer of the same.
LAYOUTS: tuple[Layout, ...] = (
    _BERT,
    _like(_BERT, "DeBERTa v2", value="attention.self.value_proj", cross=None),
    _like(_BERT, "DeBERTa", value="", cross=None),
    _like(_BERT_PRE_NORM, "Megatron-BERT", norm1="attention.ln", norm2="ln"),
    _like(
        _BERT,
        "MPNet",
        attention="attention.attn",
        out="attention.attn.o",
        norm1="attention.LayerNorm",
        value="attention.attn.v",
        cross=None,
    ),
    _BERT_PRE_NORM,
    _like(_BERT_PRE_NORM, "ESM", norm2="LayerNorm", mlp=("intermediate", "output.dense")),
    _like(_BERT_PRE_NORM, "XLM-RoBERTa-XL", norm1="attention.self_attn_layer_norm", norm2="LayerNorm"),
    Layout(
        "DistilBERT",
        "post",
        attention="attention",
        out="attention.out_lin",
        norm1="sa_layer_norm",
        norm2="output_layer_norm",
        mlp=("ffn.lin1", "ffn.activation", "ffn.lin2"),
        value="attention.v_lin",
    ),
    Layout(
        "ALBERT",
        "post",
        attention="attention",
        out="attention.dense",
        norm1="attention.LayerNorm",
        norm2="full_layer_layer_norm",
        mlp=("ffn", "activation", "ffn_output"),
        value="attention.value",
    ),
    _MODERNBERT,
    _like(_MODERNBERT, "ModernBERT decoder", value="attn.v_proj", fused=""),
    _like(
        _LLAMA,
        "Nomic BERT, GTE, Jina",
        order="post",
        norm1="post_attention_layernorm",
        norm2="post_mlp_layernorm",
    ),
    Layout(
        "GPT-2",
        "pre",
        attention="attn",
        out="attn.c_proj",
        norm1="ln_1",
        norm2="ln_2",
        mlp=("mlp.c_fc", "mlp.act", "mlp.c_proj"),
        value="attn.c_attn",
        fused="thirds",
        cross=CrossAttention("crossattention", "crossattention.c_proj", "ln_cross_attn"),
    ),
    Layout(
        "GPT-Neo",
        "pre",
        attention="attn.attention",
        out="attn.attention.out_proj",
        norm1="ln_1",
        norm2="ln_2",
        mlp=("mlp",),
        value="attn.attention.v_proj",
    ),
    Layout(
        "MPT",
        "pre",
        attention="attn",
        out="attn.out_proj",
        norm1="norm_1",
        norm2="norm_2",
        mlp=("ffn.up_proj", "ffn.act", "ffn.down_proj"),
        value="attn.Wqkv",
        fused="thirds",
    ),
    _NEOX,
    _like(_NEOX, "GPT-NeoX (sequential)", order="pre"),
    _BLOOM,
    _like(_BLOOM, "Falcon (sequential)", mlp=("mlp",)),
    _like(_FALCON, "Falcon with two norms", norm1="ln_attn", norm2="ln_mlp"),
    _FALCON,
    _BART_PRE_NORM,
    _like(_BART_PRE_NORM, "OPT-350m, BART, Marian", order="post"),
    _GEMMA2,
    _like(_GEMMA2, "OLMo 2", norm1="", norm2=""),
    _like(_LLAMA, "GLM-4", mlp=("mlp", "post_mlp_layernorm"), after="post_self_attn_layernorm"),
    _GRANITE,
    _like(_GRANITE, "Granite MoE", mlp=("block_sparse_moe", "residual_multiplier")),
    _LLAMA,
    _like(_LLAMA, "Llama 4", mlp=("feed_forward",)),
    _like(
        _LLAMA,
        "LFM2",
        out="self_attn.out_proj",
        norm1="operator_norm",
        norm2="ffn_norm",
        mlp=("feed_forward",),
    ),
    _like(_LLAMA, "Phi-3", value="self_attn.qkv_proj", fused="thirds"),
    _like(_LLAMA, "Persimmon", out="self_attn.dense", value="self_attn.query_key_value", fused="heads"),
    _like(_LLAMA, "Apertus", norm1="attention_layernorm", norm2="feedforward_layernorm"),
    _like(_LLAMA, "VaultGemma", norm2="pre_feedforward_layernorm"),
    _COHERE,
    _like(_COHERE, "Phi", out="self_attn.dense"),
    _T5,
    _T5_DECODER,
    _like(_T5, "Switch Transformers encoder", mlp=("layer.1.mlp",)),
    _like(_T5_DECODER, "Switch Transformers decoder", mlp=("layer.2.mlp",)),
    _DINOV2,
    _like(_DINOV2, "DINOv2 (before transformers 5.10)", **_OLD_VIT),
    _BEIT,
    _VIT,
    _like(_VIT, "YOLOS, DPT", mlp=("intermediate", "output.dense"), **_OLD_VIT),
    _like(_BEIT, "InternVL vision", out="attention.projection_layer"),
    _like(_VIT, "AIMv2", out="attention.out_proj", norm1="rms_norm1", norm2="rms_norm2", mlp=("ffn",)),
    _like(_LLAMA, "CLIP, SigLIP", out="self_attn.out_proj", norm1="layer_norm1", norm2="layer_norm2"),
    _like(_VIT, "Pixtral", norm1="attention_norm", norm2="ffn_norm", mlp=("feed_forward",)),
    _WAV2VEC2,
    _like(_WAV2VEC2, "wav2vec 2.0 (stable norm)", order="pre"),
)
