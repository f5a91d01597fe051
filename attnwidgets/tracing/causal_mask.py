"""The mask of causal attention over a long text, whose rows are computed when they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._tensors import is_tensor

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LONG_MASK = 2**18
"""Pairs of query and key from which on a causal mask is not made whole: 512 tokens."""
_AXES = 4  # of a mask or bias: batch, head, query, key


@dataclass(frozen=True)
class CausalMask:
    """The numbers that causal attention adds to its scores [1, 1, query, key]: 0 or the dtype's minimum.

    Args:
        length: Number of queries and of keys.
        dtype: Precision of the numbers.
        device: Device of the numbers.
    """

    length: int
    dtype: torch.dtype
    device: torch.device

    def rows(self, chosen: Any = slice(None), keys: slice = slice(None)) -> Tensor:
        """Return the part of some queries [1, 1, query, key], by a slice or a list of their numbers."""
        import torch

        numbers = torch.arange(self.length, device=self.device)
        read, queries = numbers[keys], numbers[chosen]
        part = torch.full(
            (len(queries), len(read)), torch.finfo(self.dtype).min, dtype=self.dtype, device=self.device
        )
        if isinstance(chosen, slice) and chosen.step in {None, 1} and len(queries) and len(read):
            # Consecutive rows are a triangle, which is cut out several times as fast as cells are compared.
            return part.triu_(int(queries[0] - read[0]) + 1)[None, None]
        return part.masked_fill_(read <= queries[:, None], 0)[None, None]

    def cut(self, length: int) -> CausalMask:
        """Return the mask of the first tokens."""
        return CausalMask(length, self.dtype, self.device)


def whole(added: Any, query: int | None = None) -> Any:
    """Return a mask or bias [..., query, key] as a tensor, of a single query if `query` is not None."""
    if isinstance(added, CausalMask):
        return added.rows(slice(None) if query is None else [query])
    per_query = query is not None and getattr(added, "ndim", 0) == _AXES and added.shape[-2] > 1
    return added[..., [query], :] if per_query else added


def readable(mask: Any) -> Any:
    """Return True for every key that a mask, of numbers added to scores or of booleans, lets a query read."""
    if not is_tensor(mask):
        return mask if mask.dtype == np.bool_ else mask > np.finfo(mask.dtype).min / 2
    import torch

    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def supports_sdpa(model: Any) -> bool:
    """Return whether transformers runs a model with torch's fused attention, which takes no causal mask."""
    return bool(getattr(model, "_supports_sdpa", False))  # PEFT's wrappers pass it on
