"""Precision of computed numbers: half precision is widened, everything else stays as it is."""

from __future__ import annotations

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


def widened(x: Tensor) -> Tensor:
    """Return half precision as float32, anything else as it is."""
    return x.float() if x.dtype in HALF else x


def kept_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the precision in which a model's numbers are kept: float64 or float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32
