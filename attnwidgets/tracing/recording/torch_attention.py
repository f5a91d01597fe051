"""`multi_head_attention_forward` of torch in steps, between which attention can be seen and changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    # (query, key, value, mask) [batch, head, token, dim], the mask to add to the scores, or None
    # -> (output [batch, head, token, dim], weights [batch, head, query, key], or None)
    Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]

ARGUMENTS = (
    *("query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k"),
    *("bias_v", "add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias", "training"),
    *("key_padding_mask", "need_weights", "attn_mask", "use_separate_proj_weight", "q_proj_weight"),
    *("k_proj_weight", "v_proj_weight", "static_k", "static_v", "average_attn_weights", "is_causal"),
)
"""The names of its arguments, in order."""


def adds_keys(options: Mapping[str, Any]) -> bool:
    """Return whether keys are read that no token has, or that were given instead of projected ones."""
    unusual = (options.get(name) for name in ("bias_k", "bias_v", "static_k", "static_v"))
    return bool(options.get("add_zero_attn")) or any(option is not None for option in unusual)


def multi_head_attention(options: Mapping[str, Any], attend: Attend) -> tuple[Tensor, Tensor | None]:
    """Return the output of the function and, if it returns them, the weights.

    Args:
        options: Its arguments by name, none of which add keys.
        attend: Computes the attention of heads.
    """
    if options.get("use_separate_proj_weight"):
        weights = [options[f"{name}_proj_weight"] for name in "qkv"]
    else:
        weights = list(options["in_proj_weight"].chunk(3))
    bias = options.get("in_proj_bias")
    biases = [None, None, None] if bias is None else list(bias.chunk(3))
    states = [options[name] for name in ("query", "key", "value")]
    single = states[0].dim() == len(("token", "width"))
    states = [x.unsqueeze(1) if single else x for x in states]
    query, key, value = (
        # [token, batch, width] -> [batch, head, token, dim]
        torch.nn.functional.linear(x, w, b).unflatten(-1, (options["num_heads"], -1)).permute(1, 2, 0, 3)
        for x, w, b in zip(states, weights, biases, strict=True)
    )
    output, attention = attend(query, key, value, _mask(options, query, single=single))
    output = output.permute(2, 0, 1, 3).flatten(-2)
    output = torch.nn.functional.linear(output, options["out_proj_weight"], options["out_proj_bias"])
    if attention is not None and options.get("average_attn_weights") is not False:
        attention = attention.mean(1)
    if single:
        output, attention = output.squeeze(1), None if attention is None else attention.squeeze(0)
    return output, attention if options.get("need_weights") is not False else None


def _mask(options: Mapping[str, Any], query: Tensor, *, single: bool) -> Tensor | None:
    """Return the masks as a term to add [batch or 1, head or 1, query or 1, key]; True hides a key."""
    masks = []
    for name in ("attn_mask", "key_padding_mask"):
        mask: Tensor | None = options.get(name)
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
