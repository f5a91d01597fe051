"""Weights that accelerate keeps elsewhere: on a disk, or in the memory of another device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.recording.twin import twin_of

if TYPE_CHECKING:
    from torch import nn


def loaded(module: nn.Module, name: str) -> Any:
    """Return what a module keeps under a name, None where it has none; a weight that is offloaded is read.

    Raises:
        ValueError: Where a weight has no numbers (the meta device) and nothing says where they are.
    """
    found = getattr(module, name, None)
    if not isinstance(found, torch.Tensor) or not found.is_meta:
        return found
    if hasattr(module, "_hf_hook"):
        from accelerate.utils import align_module_device

        # On a twin, since others may run the module meanwhile.
        twin = twin_of(module)
        with align_module_device(twin):
            found = getattr(twin, name)
    if found.is_meta:
        raise ValueError(
            f"{type(module).__name__}.{name} is on the meta device and has no numbers: load the model's "
            "weights."
        )
    return found
