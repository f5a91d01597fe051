"""Hashes of a model's content: never of its name, folder or identity."""

from __future__ import annotations

import hashlib
import io
import json
from contextvars import ContextVar
from typing import Any

import torch

from attnwidgets.tracing.architecture import WRITTEN_ON_SAVING
from attnwidgets.tracing.content import key_of
from attnwidgets.tracing.interventions import said_of
from attnwidgets.tracing.model_state import hooks_in, options_of
from attnwidgets.tracing.recording.borrow import unwrap

# The modules of the models that are being hashed, by id.
_reading: ContextVar[frozenset[int]] = ContextVar("reading", default=frozenset())
_SAMPLE = 4096  # numbers of a weight that `sampled_fingerprint_of` reads


def fingerprint_of(model: Any) -> str:
    """Return a hash of all that decides a model's answers.

    Its class and configuration; the class, options and replaced `forward` of every module; hooks, by their
    content; weights and buffers; interventions in force. Weights that accelerate keeps in memory or on disk
    are read from there, and packed weights from the model's saved state, so that all of them count.
    """
    inner = unwrap(model)
    if id(inner) in _reading.get():  # a hook, or a replaced forward, that holds a part of its own model
        return type(inner).__qualname__
    mark = _reading.set(_reading.get() | set(map(id, inner.modules())))
    try:
        return _fingerprint(inner)
    finally:
        _reading.reset(mark)


def _fingerprint(inner: torch.nn.Module) -> str:
    digest = hashlib.blake2b(digest_size=16)
    config = _chosen(getattr(inner, "config", None))
    digest.update(repr((type(inner).__qualname__, config, said_of(inner), _modules_of(inner))).encode())
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
    """Return hashes of the hooks that may change a model's states, with the paths of their modules.

    Hooks are hashed by their content, or by a description where they have one.
    """
    return [
        f"{path} {_description(hook) or key_of(hook)}"
        for path, module in model.named_modules()
        for hook in hooks_in(module)
    ]


def _modules_of(model: torch.nn.Module) -> list[Any]:
    """Return what every module is besides its weights: class, options, replaced `forward` and hooks."""
    parts = [
        (path, type(module).__qualname__, sorted(options_of(module)), _own_forward(module))
        for path, module in model.named_modules()
    ]
    return [parts, hooks_of(model)]


def _own_forward(module: torch.nn.Module) -> str:
    """Return a hash of the function that stands in for a module's `forward`; "" if none does."""
    own = vars(module).get("forward")
    if own is None or hasattr(module, "_hf_hook"):
        return ""  # accelerate's moves weights, and changes no number
    return key_of(getattr(own, "__func__", own))


def _description(hook: Any) -> str:
    return str(getattr(getattr(hook, "__self__", None), "said", ""))


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
