"""Fast products of many vectors with one matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor


class Product:
    """x matrix + bias, by the fastest of torch's kernels.

    In single precision on a CPU, torch multiplies with MKL, which leaves half of an AMD CPU idle. Inputs in
    oneDNN's layout are multiplied with oneDNN, which uses all of it.

    Args:
        matrix: [input, output].
        bias: [output], or None.
    """

    def __init__(self, matrix: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._bias = matrix.T.contiguous(), bias
        single = matrix.device.type == "cpu" and matrix.dtype == torch.float32
        backend = torch.backends.mkldnn
        self._by_onednn = single and backend.is_available() and backend.enabled

    def __call__(self, x: Tensor) -> Tensor:
        """Return x matrix + bias [..., output] for x [..., input]."""
        rows = x.reshape(-1, x.shape[-1])
        if self._by_onednn and len(rows) and not torch.is_autocast_enabled("cpu"):
            product = nn.functional.linear(rows.to_mkldnn(), self._weight, self._bias).to_dense()
        else:
            product = nn.functional.linear(rows, self._weight, self._bias)
        return product.reshape(*x.shape[:-1], product.shape[-1])
