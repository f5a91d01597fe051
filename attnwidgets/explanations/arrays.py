"""Anyone's array as float32 numpy, without importing torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def as_float32(array: Any) -> Array:
    """Return a float32 numpy array of a numpy array, a nested sequence or a torch tensor on any device.

    A float32 array or CPU tensor is not copied.
    """
    if hasattr(array, "detach"):  # a torch tensor; .float() because numpy has no bfloat16
        array = array.detach().cpu().float().numpy()
    converted: Array = np.asarray(array, dtype=np.float32)
    return converted


def read_only(array: Array) -> Array:
    """Return a view that cannot be written through; the owner of the memory keeps its own rights."""
    view: Array = array.view()
    view.flags.writeable = False
    return view


def require_finite(array: Array, what: str) -> None:
    """Raise ValueError where `array` holds NaN or an infinity, naming how many and the first place."""
    finite = np.isfinite(array)
    if not finite.all():
        bad = np.argwhere(~finite)
        place = ", ".join(str(int(i)) for i in bad[0])
        message = (
            f"{what} holds {len(bad)} values that are NaN or infinite (first at [{place}]); "
            "check the model's output or mask before explaining it."
        )
        raise ValueError(message)
