"""Hashes of a model's content: never of its name, folder or identity."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import torch

from attnwidgets.tracing.architecture import WRITTEN_ON_SAVING
from attnwidgets.tracing.interventions import said_of
from attnwidgets.tracing.recording.borrow import unwrap

_SAMPLE = 4096  # numbers of a weight that `sampled_fingerprint_of` reads


def fingerprint_of(model: Any) -> str:
    """Return a hash of a model's class, configuration, weights, buffers, hooks and interventions in force.

    Weights that accelerate keeps in memory or on disk are read from there, and packed weights from the
    model's saved state, so that all of them count.
    """
    inner = unwrap(model)
    digest = hashlib.blake2b(digest_size=16)
    config = _chosen(getattr(inner, "config", None))
    digest.update(repr((type(inner).__qualname__, config, said_of(inner), hooks_of(inner))).encode())
    held = dict((*inner.named_parameters(), *inner.named_buffers()))
    pointers = {tensor.data_ptr() for tensor in held.values() if _is_plain(tensor)}  # tied weights count once
    packed = {
        name: value
        for name, value in inner.state_dict().items()
        if name not in held and not (_is_plain(value) and value.data_ptr() in pointers)
    }
    for name, value in (held | packed).items():
        weights = _offloaded(inner, name) if getattr(value, "is_meta", False) else value
        digest.update(f"{name} {getattr(value, 'dtype', '')} {tuple(getattr(value, 'shape', ()))}".encode())
        digest.update(b"" if weights is None else _bytes_of(weights))
    return digest.hexdigest()


def sampled_fingerprint_of(model: Any) -> str:
    """Return a hash of some numbers of every weight: of the weights alone, in a fraction of a second.

    Training changes nearly every number, so that other weights have another hash. Numbers are rounded to
    bfloat16 first: a model in float32 has the same hash as the same model loaded in bfloat16.
    """
    digest = hashlib.blake2b(digest_size=16)
    inner = unwrap(model)
    for name, weight in inner.named_parameters():
        held = _offloaded(inner, name) if weight.is_meta else weight
        if held is None:
            continue
        flat = held.detach().reshape(-1)
        some = flat[:: max(1, len(flat) // _SAMPLE)].float().cpu().bfloat16()
        digest.update(repr(tuple(weight.shape)).encode())
        digest.update(some.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _chosen(config: Any) -> str:
    """Return a config without the entries that saving a model writes into it, which change no number."""
    if not hasattr(config, "to_dict"):
        return repr(config)
    facts = {name: value for name, value in config.to_dict().items() if name not in WRITTEN_ON_SAVING}
    return json.dumps(facts, sort_keys=True, default=repr)


def hooks_of(model: torch.nn.Module) -> list[str]:
    """Return the hooks that change a model's states: names, modules, and descriptions where they have one.

    Hooks that transformers installs to capture outputs change nothing, and are left out.
    """
    return [
        " ".join([getattr(hook, "__qualname__", type(hook).__qualname__), path, *_description(hook)])
        for path, module in model.named_modules()
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values())  # noqa: SLF001 - torch has no other way
        if not str(getattr(hook, "__module__", "")).startswith("transformers.")
    ]


def _description(hook: Any) -> list[str]:
    said = getattr(getattr(hook, "__self__", None), "said", None)
    return [] if said is None else [str(said)]


def _is_plain(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_quantized


def _bytes_of(value: Any) -> Any:
    """Return the numbers of a tensor; for other state, and for packed tensors, the bytes that are saved."""
    if _is_plain(value):
        return value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getbuffer()


def _offloaded(model: Any, name: str) -> torch.Tensor | None:
    """Return a weight that accelerate loads when its module runs; None if there is none."""
    path, _, weight = name.rpartition(".")
    hook = getattr(model.get_submodule(path), "_hf_hook", None)
    for part in getattr(hook, "hooks", (hook,)):
        weights = getattr(part, "weights_map", None)
        if weights is not None:
            return weights[weight]
    return None
