"""Rules for attention: the softmax, and fused attention kernels, which are computed step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnwidgets.relevance.affine import arguments
from attnwidgets.relevance.products import size
from attnwidgets.relevance.settings import live, run_without_rule
from attnwidgets.tracing.recording.torch_attention import ARGUMENTS, adds_keys
from attnwidgets.tracing.recording.torch_attention import multi_head_attention as steps

if TYPE_CHECKING:
    from attnwidgets.relevance.settings import Settings

_KERNEL = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


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
    options = dict(zip(ARGUMENTS, arguments(args, kwargs, ARGUMENTS), strict=True))
    if not any(live(options[name]) for name in ("query", "key", "value")):
        return func(*args, **kwargs)
    if adds_keys(options):
        return run_without_rule(settings, func, args, kwargs)
    with settings.mode:
        return steps(options, _attention)


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
