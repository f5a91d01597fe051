"""Weights that accelerate has offloaded to a disk or to the memory of another device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.recording.twin import twin_of

if TYPE_CHECKING:
    from torch import nn


def loaded(module: nn.Module, name: str) -> Any:
    """Return a module's attribute, None if it has none; an offloaded weight is read.

    Raises:
        ValueError: If a weight is on the meta device, without numbers, and is not offloaded.
    """
    value = getattr(module, name, None)
    if not isinstance(value, torch.Tensor) or not value.is_meta:
        return value
    if hasattr(module, "_hf_hook"):
        from accelerate.utils import align_module_device

        # On a twin, since others may run the module meanwhile.
        twin = twin_of(module)
        with align_module_device(twin):
            value = getattr(twin, name)
    if value.is_meta:
        raise ValueError(
            f"{type(module).__name__}.{name} is on the meta device and has no numbers: load the model's "
            "weights."
        )
    return value
