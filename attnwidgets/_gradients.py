"""Modes of autograd that an interrupt, at whatever moment, does not leave behind.

Torch's contexts are entered and left in Python. Ctrl+C in between leaves gradients off in the reader's
notebook, where the next training step then fails. Here every mode is restored twice, so that an interrupt of
a single restoration has no effect.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def grad_mode(*, enabled: bool) -> Iterator[None]:
    """Compute with gradients on or off, and restore the mode, also if interrupted on the way in or out."""
    import torch

    before = torch.is_grad_enabled()
    try:
        with torch.set_grad_enabled(enabled):
            yield
    finally:
        torch.set_grad_enabled(before)


no_grad = partial(grad_mode, enabled=False)
enable_grad = partial(grad_mode, enabled=True)
