"""What a model and a tokenizer are, as a hash of their content: never their name, folder or identity."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from attnwidgets.tracing.interventions import said_of
from attnwidgets.tracing.recording.borrow import unwrap


def fingerprint_of(model: Any) -> str:
    """Return a hash of a model's class, configuration, weights, buffers and the interventions in force."""
    inner = unwrap(model)
    digest = hashlib.blake2b(digest_size=16)
    config = getattr(inner, "config", None)
    digest.update(f"{type(inner).__qualname__} {config!r} {said_of(inner)!r}".encode())
    for name, tensor in (*inner.named_parameters(), *inner.named_buffers()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if not tensor.is_meta:
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
