"""Torch's objects: told from others without loading torch, and read as arrays."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray
    from torch import Tensor, nn
    from typing_extensions import TypeIs


def loaded(library: str, name: str) -> Any:
    """Return a name of a library that is loaded, or (), which nothing is an instance of.

    An object of a library exists only once the library is loaded, so telling it from others need not load it.
    """
    return getattr(sys.modules.get(library), name, ())


def is_tensor(value: object) -> TypeIs[Tensor]:
    """Return whether a value is a torch tensor."""
    return isinstance(value, loaded("torch", "Tensor"))


def is_module(value: object) -> TypeIs[nn.Module]:
    """Return whether a value is a torch module."""
    return isinstance(value, getattr(loaded("torch", "nn"), "Module", ()))


def as_array(values: Any) -> NDArray[Any]:
    """Return an array, or a tensor on any device, as numpy's; a tensor's half precision becomes float32."""
    if is_tensor(values):
        dense = values.detach().cpu().to_dense()
        return (dense.float() if is_half(dense) else dense).numpy()
    return np.asarray(values)


def as_tensor(value: Any) -> Any:
    """Return an array as a tensor that shares its memory; all else, and without torch the array, as it is."""
    torch = _torch() if isinstance(value, np.ndarray) else None
    return value if torch is None else torch.from_numpy(value)


@functools.cache
def _torch() -> ModuleType | None:
    try:
        import torch
    except ModuleNotFoundError:
        return None
    return torch


def is_half(x: Tensor) -> bool:
    """Return whether a tensor holds floats of less than four bytes."""
    return x.is_floating_point() and x.element_size() < np.dtype(np.float32).itemsize


def widened(x: Tensor) -> Tensor:
    """Return half precision as float32, anything else as it is."""
    return x.float() if is_half(x) else x


def kept_dtype(dtype: Any) -> np.dtype[np.float64] | np.dtype[np.float32]:
    """Return the precision in which numbers of torch's or numpy's `dtype` are stored: float64 or float32."""
    return np.dtype(np.float64) if str(dtype).endswith("float64") else np.dtype(np.float32)
