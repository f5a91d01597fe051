"""Precision of computed numbers: half precision is widened, everything else stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnwidgets._tensors import is_half

if TYPE_CHECKING:
    from torch import Tensor


def widened(x: Tensor) -> Tensor:
    """Return half precision as float32, anything else as it is."""
    return x.float() if is_half(x) else x
