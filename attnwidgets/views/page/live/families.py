"""The blocks and heads that a live page computes: GPT-2, BERT, and those built like Llama.

`FAMILIES` names for each kind of model the function that describes it (`_gpt2`, `_llama`, `_bert`): its
`Shape`, the number of its positions, and its weights by the names of the layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Named = Iterator[tuple[str, Any]]

_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "silu": "silu",
    "swish": "silu",
}


def _activation(name: Any) -> str:
    if name not in _ACTIVATIONS:
        raise ValueError(f"the activation {name!r} is none of those of a page: {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _module(name: str, module: Any) -> Named:
    """Yield the matrix [to, from] or the gain of a module, and its bias; of None, nothing."""
    if module is None:
        return
    is_conv = type(module).__name__ == "Conv1D"  # GPT-2 keeps [from, to]
    yield name, module.weight.T if is_conv else module.weight
    yield f"{name}b", getattr(module, "bias", None)


# -- GPT-2 -----------------------------------------------------------------------------------------


def _gpt2(config: Any, base: Any) -> tuple[dict[str, Any], int, Named]:
    if config.add_cross_attention:
        raise ValueError("attention to another text (add_cross_attention) is not computed in a page")
    size = config.n_embd // config.n_head
    by_layer = [
        (size**-0.5 if config.scale_attn_weights else 1.0)
        / (layer + 1 if config.scale_attn_by_inverse_layer_idx else 1)
        for layer in range(config.n_layer)
    ]
    shape = {
        **_shape(config.n_embd, config.n_head, config.n_head, size, by_layer, config.layer_norm_epsilon),
        "activation": _activation(config.activation_function),
    }
    return shape, config.n_positions, _gpt2_weights(base)


def _gpt2_weights(base: Any) -> Named:
    yield "token", base.wte.weight
    yield "position", base.wpe.weight
    for number, block in enumerate(base.h):
        projections = block.attn.c_attn
        for name, weight, bias in zip(
            "qkv", projections.weight.T.chunk(3), projections.bias.chunk(3), strict=True
        ):
            yield f"{number}.{name}", weight
            yield f"{number}.{name}b", bias
        parts = {
            "n1": block.ln_1,
            "o": block.attn.c_proj,
            "n2": block.ln_2,
            "up": block.mlp.c_fc,
            "down": block.mlp.c_proj,
        }
        for name, module in parts.items():
            yield from _module(f"{number}.{name}", module)
    yield from _module("end", base.ln_f)


# -- Llama, Mistral, Qwen2, Qwen3 ------------------------------------------------------------------


def _llama(config: Any, base: Any) -> tuple[dict[str, Any], int, Named]:
    rotary: dict[str, Any] = dict(
        getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    )
    kind = rotary.get("rope_type", "default")
    if kind != "default":
        raise ValueError(f"the rotary embedding {kind!r} is not computed in a page, only the default one")
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    scales = [float(size**-0.5)] * config.num_hidden_layers
    shape = {
        **_shape(config.hidden_size, heads, config.num_key_value_heads, size, scales, config.rms_norm_eps),
        "rms": True,
        "rotary": float(rotary.get("rope_theta") or getattr(config, "rope_theta", None) or 10_000.0),
        "activation": _activation(config.hidden_act),
    }
    # Within the window of a sliding one, attention is whole.
    windows = getattr(config, "sliding_window", None) or config.max_position_embeddings
    return shape, min(windows, config.max_position_embeddings), _llama_weights(base)


def _llama_weights(base: Any) -> Named:
    yield "token", base.embed_tokens.weight
    for number, block in enumerate(base.layers):
        attention, network = block.self_attn, block.mlp
        parts = {
            "n1": block.input_layernorm,
            "q": attention.q_proj,
            "k": attention.k_proj,
            "v": attention.v_proj,
            "o": attention.o_proj,
            "n2": block.post_attention_layernorm,
            "up": network.up_proj,
            "gate": network.gate_proj,
            "down": network.down_proj,
            "qn": getattr(attention, "q_norm", None),
            "kn": getattr(attention, "k_norm", None),
        }
        for name, module in parts.items():
            yield from _module(f"{number}.{name}", module)
    yield from _module("end", base.norm)


# -- BERT ------------------------------------------------------------------------------------------


def _bert(config: Any, base: Any) -> tuple[dict[str, Any], int, Named]:
    positions = getattr(config, "position_embedding_type", "absolute")
    if config.is_decoder or positions not in {"absolute", None}:
        part = "a BERT that decodes" if config.is_decoder else f"positions of the kind {positions!r}"
        raise ValueError(f"{part} is not computed in a page")
    heads = config.num_attention_heads
    size = config.hidden_size // heads
    scales = [float(size**-0.5)] * config.num_hidden_layers
    shape = {
        **_shape(config.hidden_size, heads, heads, size, scales, config.layer_norm_eps),
        "causal": False,
        "after": True,
        "activation": _activation(config.hidden_act),
    }
    return shape, config.max_position_embeddings, _bert_weights(base)


def _bert_weights(base: Any) -> Named:
    embeddings = base.embeddings
    yield "token", embeddings.word_embeddings.weight
    yield "position", embeddings.position_embeddings.weight
    yield "type", embeddings.token_type_embeddings.weight[0]  # a text is the first segment
    yield from _module("start", embeddings.LayerNorm)
    for number, block in enumerate(base.encoder.layer):
        attention = block.attention
        parts = {
            "q": attention.self.query,
            "k": attention.self.key,
            "v": attention.self.value,
            "o": attention.output.dense,
            "n1": attention.output.LayerNorm,
            "up": block.intermediate.dense,
            "down": block.output.dense,
            "n2": block.output.LayerNorm,
        }
        for name, module in parts.items():
            yield from _module(f"{number}.{name}", module)


# -- heads -----------------------------------------------------------------------------------------


def _shape(
    width: int, heads: int, sources: int, size: int, scales: list[float], eps: float
) -> dict[str, Any]:
    """Return the shape of a causal model with norms before attention and network, for families to change."""
    return {
        "width": int(width),
        "heads": int(heads),
        "sources": int(sources),
        "size": int(size),
        "causal": True,
        "after": False,
        "rms": False,
        "eps": float(eps),
        "rotary": 0,
        "scales": scales,
    }


def _nothing(model: Any, shape: dict[str, Any]) -> Named:
    """Yield nothing: the model returns its states."""
    del model, shape
    yield from ()


def _tokens(model: Any, shape: dict[str, Any]) -> Named:
    shape["reads"] = "all"
    yield from _module("out", model.lm_head)


def _last(model: Any, shape: dict[str, Any]) -> Named:
    shape["reads"] = "last"
    yield from _module("out", model.score)


def _every(model: Any, shape: dict[str, Any]) -> Named:
    shape["reads"] = "all"
    yield from _module("out", model.classifier)


def _pooled(model: Any, shape: dict[str, Any]) -> Named:
    shape |= {"reads": "first", "steps": ["tanh"]}
    yield from _module("s0", model.bert.pooler.dense)
    yield from _module("out", model.classifier)


def _masked(model: Any, shape: dict[str, Any]) -> Named:
    head = model.cls.predictions
    shape |= {"reads": "all", "steps": [shape["activation"], "norm"]}
    yield from _module("s0", head.transform.dense)
    yield from _module("s1", head.transform.LayerNorm)
    yield from _module("out", head.decoder)


_CAUSAL = {"ForCausalLM": _tokens, "ForSequenceClassification": _last, "Model": _nothing}

FAMILIES: Mapping[str, tuple[Callable[..., Any], Mapping[str, Callable[..., Named]]]] = {
    "GPT2": (_gpt2, {"LMHeadModel": _tokens, "ForSequenceClassification": _last, "Model": _nothing}),
    "Llama": (_llama, _CAUSAL),
    "Mistral": (_llama, _CAUSAL),
    "Qwen2": (_llama, _CAUSAL),
    "Qwen3": (_llama, _CAUSAL),
    "Bert": (
        _bert,
        {
            "ForTokenClassification": _every,
            "ForSequenceClassification": _pooled,
            "ForMaskedLM": _masked,
            "Model": _nothing,
        },
    ),
}
"""How the blocks of a family are read, and which weights read the outcomes from its last states, by class."""
