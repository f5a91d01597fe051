"""What a transformer block is made of, family by family: a few lines of data each, believed only when proved.

A layout names modules by their path in the block. It fits a block that holds them all; whether the block also
computes what the layout says is found out at run time (`blocks.py`), so that a name taken by another
architecture is refused and never trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Layout:
    """Where things are in a block.

    With x the block's input, att the attention with its output projection and `after`, f the steps of `mlp`:

        post      h = norm1(x + att(x));      output = norm2(h + f(h))
        pre       z = x + att(norm1(x));      output = z + f(norm2(z))
        parallel  output = x + att(norm1(x)) + f(norm2(x))

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

    @property
    def paths(self) -> tuple[str, ...]:
        """Every module that must be there."""
        named = (self.attention, self.out, self.norm1, self.norm2, *self.mlp, self.value, self.after)
        return tuple(path for path in named if path)


_BART: dict[str, Any] = {"attention": "self_attn", "out": "self_attn.out_proj", "value": "self_attn.v_proj"}
_BART_NORMS: dict[str, Any] = {"norm1": "self_attn_layer_norm", "norm2": "final_layer_norm"}
_FC = ("fc1", "activation_fn", "fc2")
_LLAMA: dict[str, Any] = {"attention": "self_attn", "out": "self_attn.o_proj", "value": "self_attn.v_proj"}
_NEOX: dict[str, Any] = {
    "attention": "attention",
    "out": "attention.dense",
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "mlp": ("mlp",),
    "value": "attention.query_key_value",
}
_VIT: dict[str, Any] = {"attention": "attention", "out": "attention.o_proj", "value": "attention.v_proj"}
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
        attention="attention.self",
        out="attention.output.dense",
        norm1="attention.output.LayerNorm",
        norm2="output.LayerNorm",
        mlp=("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense"),
        value="attention.self.value",
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
        "GPT-2",
        "pre",
        attention="attn",
        out="attn.c_proj",
        norm1="ln_1",
        norm2="ln_2",
        mlp=("mlp.c_fc", "mlp.act", "mlp.c_proj"),
        value="attn.c_attn",
        fused="thirds",
    ),
    Layout("GPT-NeoX", "parallel", fused="heads", **_NEOX),
    Layout("GPT-NeoX (sequential)", "pre", fused="heads", **_NEOX),
    Layout("OPT; encoders of Whisper and BART", "pre", mlp=_FC, **_BART, **_BART_NORMS),
    Layout("OPT-350m; encoders of Marian and BART", "post", mlp=_FC, **_BART, **_BART_NORMS),
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
        "Llama, Mistral, Qwen, SmolLM, Gemma",
        "pre",
        norm1="input_layernorm",
        norm2="post_attention_layernorm",
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
    Layout(
        "T5 encoder",
        "pre",
        attention="layer.0.SelfAttention",
        out="layer.0.SelfAttention.o",
        norm1="layer.0.layer_norm",
        norm2="layer.1.layer_norm",
        mlp=("layer.1.DenseReluDense",),
        value="layer.0.SelfAttention.v",
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
    Layout("ViT", "pre", norm1="layernorm_before", norm2="layernorm_after", mlp=("mlp",), **_VIT),
    Layout("CLIP", "pre", norm1="layer_norm1", norm2="layer_norm2", mlp=("mlp",), **_BART),
    Layout("wav2vec 2.0", "post", **_WAV2VEC2),
    Layout("wav2vec 2.0 (stable norm)", "pre", **_WAV2VEC2),
)
