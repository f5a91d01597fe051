"""Rules for attention: the softmax, and fused attention kernels, which are computed step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnwidgets.relevance.affine import arguments
from attnwidgets.relevance.products import size
from attnwidgets.relevance.settings import live, run_without_rule

if TYPE_CHECKING:
    from attnwidgets.relevance.settings import Settings

_KERNEL = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_MODULE = (
    *("query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k"),
    *("bias_v", "add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias", "training"),
    *("key_padding_mask", "need_weights", "attn_mask", "use_separate_proj_weight", "q_proj_weight"),
    *("k_proj_weight", "v_proj_weight", "static_k", "static_v", "average_attn_weights", "is_causal"),
)


def softmax(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Treat the softmax as it is (AttnLRP) or as a constant (all other rules).

    Source: Achtibat et al. 2024, proposition 3.1; Ali et al. 2022, section 4.
    """
    return func(*args, **kwargs) if settings.rule == "attnlrp" else size(settings, func, args, kwargs)


def scaled_dot_product_attention(
    settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Compute attention step by step, each step under its rule."""
    query, key, value, mask, _, causal, scale, grouped = arguments(args, kwargs, _KERNEL)
    if not any(map(live, (query, key, value))):
        return func(*args, **kwargs)
    if causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    with settings.mode:
        if grouped:
            key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], dim=-3) for x in (key, value))
        return _attention(query, key, value, _additive_mask(mask, query), scale)[0]


def multi_head_attention(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute `nn.MultiheadAttention` step by step, each step under its rule."""
    options = dict(zip(_MODULE, arguments(args, kwargs, _MODULE), strict=True))
    states = [options[name] for name in ("query", "key", "value")]
    if not any(map(live, states)):
        return func(*args, **kwargs)
    unusual = (options[name] for name in ("bias_k", "bias_v", "static_k", "static_v"))
    if options["add_zero_attn"] or any(option is not None for option in unusual):
        return run_without_rule(settings, func, args, kwargs)
    if options["use_separate_proj_weight"]:
        weights = [options[f"{name}_proj_weight"] for name in "qkv"]
    else:
        weights = list(options["in_proj_weight"].chunk(3))
    bias = options["in_proj_bias"]
    biases = [None, None, None] if bias is None else list(bias.chunk(3))
    heads = options["num_heads"]
    with settings.mode:
        single = states[0].dim() == len(("token", "width"))
        states = [x.unsqueeze(1) if single else x for x in states]
        query, key, value = (
            # [token, batch, width] -> [batch, head, token, dim]
            torch.nn.functional.linear(x, w, b).unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
            for x, w, b in zip(states, weights, biases, strict=True)
        )
        output, attention = _attention(query, key, value, _module_mask(options, query, single=single))
        output = output.permute(2, 0, 1, 3).flatten(-2)
        output = torch.nn.functional.linear(output, options["out_proj_weight"], options["out_proj_bias"])
        if options["average_attn_weights"] is not False:
            attention = attention.mean(1)
        if single:
            output, attention = output.squeeze(1), attention.squeeze(0)
        return output, attention if options["need_weights"] is not False else None


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return the output and the weights of attention over [..., token, dim]."""
    scores = torch.matmul(query, key.transpose(-2, -1)) * (
        query.shape[-1] ** -0.5 if scale is None else scale
    )
    weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
    return torch.matmul(weights, value), weights


def _additive_mask(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Return a kernel's mask as a term to add; a boolean mask is True where a key may be read."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(~mask, -torch.inf)


def _module_mask(options: dict[str, Any], query: Tensor, *, single: bool) -> Tensor | None:
    """Return the masks of `nn.MultiheadAttention` as a term to add; True is where a key is hidden."""
    masks = []
    for name in ("attn_mask", "key_padding_mask"):
        mask: Tensor | None = options[name]
        if mask is None:
            continue
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask, -torch.inf)
        if name == "key_padding_mask":
            mask = mask.reshape(1 if single else mask.shape[0], 1, 1, -1)
        elif mask.dim() == len(("batch and head", "query", "key")):
            mask = mask.unflatten(0, (-1, query.shape[1]))
        masks.append(mask)
    return sum(masks[1:], masks[0]) if masks else None
