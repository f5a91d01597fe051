"""What a transformer block is made of, family by family: a few lines of data each, believed only when proved.

A layout names modules by their path in the block. It fits a block that holds them all; whether the block also
computes what the layout says is found out at run time (`blocks.py`), so that a name taken by another
architecture is refused and never trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class CrossAttention:
    """Where a block's cross-attention is: between its self-attention and its MLP, normed in the same order.

    Args:
        attention: The module that calls the attention function.
        out: Its output projection.
        norm: The norm of its side.
    """

    attention: str
    out: str
    norm: str

    @property
    def paths(self) -> tuple[str, ...]:
        """Every module that must be there."""
        return (self.attention, self.out, self.norm)


@dataclass(frozen=True)
class Layout:
    """Where things are in a block.

    With x the block's input, att the attention with its output projection and `after`, f the steps of `mlp`:

        post      h = norm1(x + att(x));      output = norm2(h + f(h))
        pre       z = x + att(norm1(x));      output = z + f(norm2(z))
        parallel  output = x + att(norm1(x)) + f(norm2(x))

    A step may also be a vector or a number of the block, which scales (BEiT, Granite), or None.

    Args:
        family: Name for people.
        order: Which of the three.
        attention: The module that calls the attention function.
        out: The attention's output projection.
        norm1: Norm of the attention's side; "" for none.
        norm2: Norm of the other side; "" for none.
        mlp: Modules applied one after another.
        value: The projection that values come from; "" where it is none of its own.
        fused: How `value` also holds queries and keys: "" (it does not), "thirds" (queries, keys, values),
            "heads" (query, key and value of a head side by side).
        after: Norm or scale of the attention's output before it is added (Gemma 2, DINOv2); "" for none.
        cross: The block's cross-attention, in the blocks that have one.
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
        """Every module that must be there, but for a cross-attention."""
        named = (self.attention, self.out, self.norm1, self.norm2, *self.mlp, self.value, self.after)
        return tuple(path for path in named if path)

    @property
    def crossing(self) -> Layout:
        """The same block from its cross-attention on, as a block of that attention."""
        if self.cross is None:
            raise ValueError(f"blocks of {self.family} have no cross-attention")
        cross = self.cross
        return replace(
            self,
            attention=cross.attention,
            out=cross.out,
            norm1=cross.norm,
            value="",
            fused="",
            after="",
            cross=None,
        )


_BERT_CROSS = CrossAttention(
    "crossattention.self", "crossattention.output.dense", "crossattention.output.LayerNorm"
)
_BERT: dict[str, Any] = {
    "attention": "attention.self",
    "out": "attention.output.dense",
    "value": "attention.self.value",
}
_BERT_MLP = ("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense")
_BART: dict[str, Any] = {"attention": "self_attn", "out": "self_attn.out_proj", "value": "self_attn.v_proj"}
_BART_DECODER: dict[str, Any] = {
    "norm1": "self_attn_layer_norm",
    "norm2": "final_layer_norm",
    "mlp": ("fc1", "activation_fn", "fc2"),
    "cross": CrossAttention("encoder_attn", "encoder_attn.out_proj", "encoder_attn_layer_norm"),
}
_LLAMA: dict[str, Any] = {"attention": "self_attn", "out": "self_attn.o_proj", "value": "self_attn.v_proj"}
_LLAMA_NORMS: dict[str, Any] = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
_NEOX: dict[str, Any] = {
    "attention": "attention",
    "out": "attention.dense",
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "mlp": ("mlp",),
    "value": "attention.query_key_value",
}
_T5: dict[str, Any] = {
    "attention": "layer.0.SelfAttention",
    "out": "layer.0.SelfAttention.o",
    "norm1": "layer.0.layer_norm",
    "value": "layer.0.SelfAttention.v",
}
_T5_CROSS = CrossAttention("layer.1.EncDecAttention", "layer.1.EncDecAttention.o", "layer.1.layer_norm")
_VIT: dict[str, Any] = {"attention": "attention", "out": "attention.o_proj", "value": "attention.v_proj"}
_VIT_NORMS: dict[str, Any] = {"norm1": "layernorm_before", "norm2": "layernorm_after"}
_WAV2VEC2: dict[str, Any] = {
    "attention": "attention",
    "out": "attention.out_proj",
    "norm1": "layer_norm",
    "norm2": "final_layer_norm",
    "mlp": (
        "feed_forward.intermediate_dense",
        "feed_forward.intermediate_act_fn",
        "feed_forward.output_dense",
    ),
    "value": "attention.v_proj",
}

# Tried from the top; the ones that ask for more modules stand before those that ask for fewer of the same.
LAYOUTS: tuple[Layout, ...] = (
    Layout(
        "BERT, RoBERTa, ELECTRA",
        "post",
        norm1="attention.output.LayerNorm",
        norm2="output.LayerNorm",
        mlp=_BERT_MLP,
        cross=_BERT_CROSS,
        **_BERT,
    ),
    Layout(
        "RoBERTa-PreLayerNorm",
        "pre",
        norm1="attention.LayerNorm",
        norm2="intermediate.LayerNorm",
        mlp=_BERT_MLP,
        **_BERT,
    ),
    Layout(
        "ESM",
        "pre",
        norm1="attention.LayerNorm",
        norm2="LayerNorm",
        mlp=("intermediate", "output.dense"),
        **_BERT,
    ),
    Layout(
        "XLM-RoBERTa-XL",
        "pre",
        norm1="attention.self_attn_layer_norm",
        norm2="LayerNorm",
        mlp=_BERT_MLP,
        **_BERT,
    ),
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
    Layout(
        "ModernBERT",
        "pre",
        attention="attn",
        out="attn.Wo",
        norm1="attn_norm",
        norm2="mlp_norm",
        mlp=("mlp",),
        value="attn.Wqkv",
        fused="thirds",
    ),
    Layout(
        "ModernBERT decoder",
        "pre",
        attention="attn",
        out="attn.Wo",
        norm1="attn_norm",
        norm2="mlp_norm",
        mlp=("mlp",),
        value="attn.v_proj",
    ),
    Layout(
        "Nomic BERT, GTE, Jina",
        "post",
        norm1="post_attention_layernorm",
        norm2="post_mlp_layernorm",
        mlp=("mlp",),
        **_LLAMA,
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
    Layout("GPT-NeoX", "parallel", fused="heads", **_NEOX),
    Layout("GPT-NeoX (sequential)", "pre", fused="heads", **_NEOX),
    Layout("OPT, Whisper, mBART, Pegasus, M2M100", "pre", **_BART, **_BART_DECODER),
    Layout("OPT-350m, BART, Marian", "post", **_BART, **_BART_DECODER),
    Layout(
        "Gemma 2 and 3",
        "pre",
        norm1="input_layernorm",
        norm2="pre_feedforward_layernorm",
        mlp=("mlp", "post_feedforward_layernorm"),
        after="post_attention_layernorm",
        **_LLAMA,
    ),
    Layout(
        "OLMo 2",
        "pre",
        norm1="",
        norm2="",
        mlp=("mlp", "post_feedforward_layernorm"),
        after="post_attention_layernorm",
        **_LLAMA,
    ),
    Layout(
        "GLM-4",
        "pre",
        mlp=("mlp", "post_mlp_layernorm"),
        after="post_self_attn_layernorm",
        **_LLAMA,
        **_LLAMA_NORMS,
    ),
    Layout(
        "Granite",
        "pre",
        mlp=("mlp", "residual_multiplier"),
        after="residual_multiplier",
        **_LLAMA,
        **_LLAMA_NORMS,
    ),
    Layout(
        "Granite MoE",
        "pre",
        mlp=("block_sparse_moe", "residual_multiplier"),
        after="residual_multiplier",
        **_LLAMA,
        **_LLAMA_NORMS,
    ),
    Layout("Llama, Mistral, Qwen, SmolLM, Gemma, Mixtral", "pre", mlp=("mlp",), **_LLAMA, **_LLAMA_NORMS),
    Layout("Llama 4", "pre", mlp=("feed_forward",), **_LLAMA, **_LLAMA_NORMS),
    Layout("LFM2", "pre", norm1="operator_norm", norm2="ffn_norm", mlp=("feed_forward",), **_BART),
    Layout(
        "Phi-3",
        "pre",
        attention="self_attn",
        out="self_attn.o_proj",
        mlp=("mlp",),
        value="self_attn.qkv_proj",
        fused="thirds",
        **_LLAMA_NORMS,
    ),
    Layout(
        "Persimmon",
        "pre",
        attention="self_attn",
        out="self_attn.dense",
        mlp=("mlp",),
        value="self_attn.query_key_value",
        fused="heads",
        **_LLAMA_NORMS,
    ),
    Layout(
        "Apertus",
        "pre",
        norm1="attention_layernorm",
        norm2="feedforward_layernorm",
        mlp=("mlp",),
        **_LLAMA,
    ),
    Layout(
        "VaultGemma",
        "pre",
        norm1="input_layernorm",
        norm2="pre_feedforward_layernorm",
        mlp=("mlp",),
        **_LLAMA,
    ),
    Layout("Cohere", "parallel", norm1="input_layernorm", norm2="input_layernorm", mlp=("mlp",), **_LLAMA),
    Layout(
        "Phi",
        "parallel",
        attention="self_attn",
        out="self_attn.dense",
        norm1="input_layernorm",
        norm2="input_layernorm",
        mlp=("mlp",),
        value="self_attn.v_proj",
    ),
    Layout("T5 encoder", "pre", norm2="layer.1.layer_norm", mlp=("layer.1.DenseReluDense",), **_T5),
    Layout(
        "T5 decoder",
        "pre",
        norm2="layer.2.layer_norm",
        mlp=("layer.2.DenseReluDense",),
        cross=_T5_CROSS,
        **_T5,
    ),
    Layout("Switch Transformers encoder", "pre", norm2="layer.1.layer_norm", mlp=("layer.1.mlp",), **_T5),
    Layout(
        "Switch Transformers decoder",
        "pre",
        norm2="layer.2.layer_norm",
        mlp=("layer.2.mlp",),
        cross=_T5_CROSS,
        **_T5,
    ),
    Layout(
        "DINOv2",
        "pre",
        norm1="norm1",
        norm2="norm2",
        mlp=("mlp", "layer_scale2"),
        after="layer_scale1",
        **_VIT,
    ),
    Layout(
        "DINOv2 (before transformers 5.10)",
        "pre",
        attention="attention.attention",
        out="attention.output.dense",
        norm1="norm1",
        norm2="norm2",
        mlp=("mlp", "layer_scale2"),
        value="attention.attention.value",
        after="layer_scale1",
    ),
    Layout("BEiT", "pre", mlp=("mlp", "lambda_2"), after="lambda_1", **_VIT, **_VIT_NORMS),
    Layout("ViT, DeiT, I-JEPA", "pre", mlp=("mlp",), **_VIT, **_VIT_NORMS),
    Layout(
        "YOLOS, DPT",
        "pre",
        attention="attention.attention",
        out="attention.output.dense",
        mlp=("intermediate", "output.dense"),
        value="attention.attention.value",
        **_VIT_NORMS,
    ),
    Layout(
        "InternVL vision",
        "pre",
        attention="attention",
        out="attention.projection_layer",
        mlp=("mlp", "lambda_2"),
        after="lambda_1",
        value="attention.v_proj",
        **_VIT_NORMS,
    ),
    Layout(
        "AIMv2",
        "pre",
        attention="attention",
        out="attention.out_proj",
        norm1="rms_norm1",
        norm2="rms_norm2",
        mlp=("ffn",),
        value="attention.v_proj",
    ),
    Layout("CLIP, SigLIP", "pre", norm1="layer_norm1", norm2="layer_norm2", mlp=("mlp",), **_BART),
    Layout("Pixtral", "pre", norm1="attention_norm", norm2="ffn_norm", mlp=("feed_forward",), **_VIT),
    Layout("wav2vec 2.0, HuBERT", "post", **_WAV2VEC2),
    Layout("wav2vec 2.0 (stable norm)", "pre", **_WAV2VEC2),
)
