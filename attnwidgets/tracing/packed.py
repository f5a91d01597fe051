"""Matrix products with the same matrix again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor


class Packed:
    """x matrix + bias for many rows, with the matrix laid out for the processor once.

    In single precision on a processor, torch multiplies by MKL, which leaves half of an AMD one idle, unless
    it is given tensors in the layout of oneDNN. Packing takes as long as multiplying a few rows.

    Args:
        matrix: [input, output].
        bias: [output], or None.
    """

    def __init__(self, matrix: Tensor, bias: Tensor | None = None) -> None:
        self._matrix, self._bias = matrix, bias
        self._packed: tuple[Tensor, Tensor] | None = None
        backend = torch.backends.mkldnn
        single = matrix.device.type == "cpu" and matrix.dtype == torch.float32
        if single and backend.is_available() and backend.enabled and not torch.is_autocast_enabled("cpu"):
            shift = matrix.new_zeros(matrix.shape[1]) if bias is None else bias.contiguous()
            self._packed = matrix.T.contiguous().to_mkldnn(), shift.to_mkldnn()

    def __call__(self, x: Tensor) -> Tensor:
        """Return x matrix + bias [..., output] for x [..., input]."""
        rows = x.reshape(-1, x.shape[-1])
        if self._packed is not None and len(rows):
            made = nn.functional.linear(rows.to_mkldnn(), *self._packed).to_dense()
        elif self._bias is None:
            made = rows @ self._matrix
        else:
            made = torch.addmm(self._bias, rows, self._matrix)
        return made.reshape(*x.shape[:-1], made.shape[-1])
