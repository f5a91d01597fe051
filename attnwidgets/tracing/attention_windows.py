"""Attention in windows, as Longformer and LED return it, as maps over tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_ROUNDING = 0.02  # of a row's sum, in half precision


def over_tokens(
    local: Sequence[Tensor], from_global: Sequence[Tensor] | None, real: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Return the maps of layers whose weights are in windows around each query.

    Args:
        local: Of every layer, [batch, head, query, global + window]: the weights of tokens with global
            attention, in the order of the text, and of the tokens from `window // 2` before the query to as
            many after it. The rows of tokens with global attention are zero.
        from_global: Of every layer, [batch, head, key, global]: how tokens with global attention attend; None
            if there are none.
        real: [batch, token], 0 where tokens are padding; None if there is none.

    Returns:
        Of every layer, [batch, head, query, key].

    Raises:
        UnsupportedModelError: If some row of the result does not sum to 1.
    """
    global_layers = from_global or [layer.new_zeros(*layer.shape[:3], 0) for layer in local]
    return tuple(_over_tokens(*layers, real) for layers in zip(local, global_layers, strict=True))


def _over_tokens(local: Tensor, from_global: Tensor, real: Tensor | None) -> Tensor:
    batch, heads, n, _ = local.shape
    n_global = from_global.shape[-1]
    window = local[..., n_global:]
    before = window.shape[-1] // 2
    maps = local.new_zeros(batch, heads, n, n + window.shape[-1] - 1)
    columns = torch.arange(n, device=local.device)[:, None] + torch.arange(
        window.shape[-1], device=local.device
    )
    maps = maps.scatter(-1, columns.expand_as(window), window)[..., before : before + n]
    is_token = local.new_ones(batch, n, dtype=torch.bool) if real is None else real.bool()
    without_row = is_token & (local == 0).all(-1).all(1)
    for sample, is_global in enumerate(without_row):
        tokens = is_global.nonzero()[:, 0][:n_global]
        maps[sample][..., tokens] += local[sample, ..., : len(tokens)]
        maps[sample][:, tokens] = from_global[sample, :, :n, : len(tokens)].transpose(1, 2)
    sums = maps.sum(-1, dtype=torch.float64).transpose(1, 2)[is_token]
    if bool(((sums - 1).abs() > _ROUNDING).any()):
        raise UnsupportedModelError(
            "The attention weights are of windows, and which tokens the columns are is not clear: laid out "
            f"over the tokens, rows sum to {float(sums.min()):.3g} to {float(sums.max()):.3g}, not to one."
        )
    return maps
