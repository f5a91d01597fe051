"""Arrays from any library as numpy float32 or float64, without importing torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnwidgets._tensors import as_array

Array = NDArray[np.floating]
"""float32, or float64 if the numbers were computed or given in it."""


def as_floats(array: Any, dtype: str | None = None) -> Array:
    """Return numpy floats of a numpy array, a nested sequence or a torch tensor on any device.

    Args:
        array: The numbers; an array or CPU tensor that has the dtype already is not copied.
        dtype: "float32" or "float64"; by default float64 if the numbers are float64 already (as Python's own
            floats are), else float32.
    """
    array = as_array(array)
    if dtype is None:
        dtype = "float64" if array.dtype == np.float64 else "float32"
    return np.asarray(array, dtype=dtype)


def read_only(array: Array) -> Array:
    """Return a read-only view; the array itself stays writable."""
    view: Array = array.view()
    view.flags.writeable = False
    return view


def require_finite(array: Array, what: str) -> None:
    """Raise ValueError if `array` holds NaN or infinity; the message counts them and names the first."""
    finite = np.isfinite(array)
    if not finite.all():
        bad = np.argwhere(~finite)
        place = ", ".join(str(int(i)) for i in bad[0])
        raise ValueError(
            f"{what} holds {len(bad)} values that are NaN or infinite (first at [{place}]); "
            "check the model's output or mask before explaining it."
        )
