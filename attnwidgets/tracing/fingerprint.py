"""What a model and a tokenizer are, as a hash of their content: never their name, folder or identity."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import torch

from attnwidgets.tracing.content import key_of
from attnwidgets.tracing.interventions import said_of
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.inputs import text_tokenizer

_SETTINGS = (
    "special_tokens_map", "model_max_length", "model_input_names", "truncation_side", "split_special_tokens",
    "add_bos_token", "add_eos_token",
)  # fmt: skip
"""What changes ids beside the vocabulary. Padding is ours, templates write text, cleaning is of decoding."""
_PLACES = ("name_or_path", "_file", "_files", "is_local", "local_files_only")
"""How options are called, or end, that say where files lie."""


_WRITTEN = ("_name_or_path", "name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
"""What of a config says where a model lies or how it was saved; the weights say their own dtype."""


def fingerprint_of(model: Any) -> str:
    """Return a hash of a model's class, configuration, weights, buffers, hooks and interventions in force.

    Weights that accelerate keeps in memory or on disk are read from there, and packed ones from the state
    that is saved, so that all of them count.
    """
    inner = unwrap(model)
    digest = hashlib.blake2b(digest_size=16)
    about = (
        type(inner).__qualname__,
        _chosen(getattr(inner, "config", None)),
        said_of(inner),
        hooks_of(inner),
    )
    digest.update(repr(about).encode())
    held = dict((*inner.named_parameters(), *inner.named_buffers()))
    pointers = {one.data_ptr() for one in held.values() if _is_plain(one)}  # tied weights count once
    packed = {
        name: one
        for name, one in inner.state_dict().items()
        if name not in held and not (_is_plain(one) and one.data_ptr() in pointers)
    }
    for name, value in (held | packed).items():
        found = _offloaded(inner, name) if getattr(value, "is_meta", False) else value
        digest.update(f"{name} {getattr(value, 'dtype', '')} {tuple(getattr(value, 'shape', ()))}".encode())
        digest.update(b"" if found is None else _bytes_of(found))
    return digest.hexdigest()


def _chosen(config: Any) -> str:
    """Return a config without what saving a model writes into it, which changes no number."""
    if not hasattr(config, "to_dict"):
        return repr(config)
    facts = {name: value for name, value in config.to_dict().items() if name not in _WRITTEN}
    return json.dumps(facts, sort_keys=True, default=repr)


def hooks_of(model: torch.nn.Module) -> list[str]:
    """Return what hooks change a model's states: their names, their modules, and what ours say that they do.

    Hooks that transformers installs to capture outputs change nothing, and are left out.
    """
    return [
        " ".join([getattr(hook, "__qualname__", type(hook).__qualname__), path, *_said(hook)])
        for path, module in model.named_modules()
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values())  # noqa: SLF001 - torch has no other way
        if not str(getattr(hook, "__module__", "")).startswith("transformers.")
    ]


def _said(hook: Any) -> list[str]:
    said = getattr(getattr(hook, "__self__", None), "said", None)
    return [] if said is None else [str(said)]


def _is_plain(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_quantized


def _bytes_of(value: Any) -> Any:
    """Return the numbers of a tensor; of other state, and of tensors that are packed, what is saved of it."""
    if _is_plain(value):
        return value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getbuffer()


def _offloaded(model: Any, name: str) -> torch.Tensor | None:
    """Return a weight that accelerate loads when its module runs; None where there is none."""
    path, _, own = name.rpartition(".")
    hook = getattr(model.get_submodule(path), "_hf_hook", None)
    for one in getattr(hook, "hooks", (hook,)):
        kept = getattr(one, "weights_map", None)
        if kept is not None:
            return kept[own]
    return None


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Return a hash of all in a tokenizer, or a processor's tokenizer, that the ids of a text follow from.

    Of a fast tokenizer: its serialised backend, without the truncation and padding that its last call left
    there. Of a slow one: its vocabulary, its merges or sentencepiece model, and the options that it was made
    with, without names of files. Of both: special tokens, the longest input, the names of model inputs. So a
    tokenizer in another folder is the same one.
    """
    reader = text_tokenizer(tokenizer)
    if reader is None:
        return key_of(tokenizer)
    settings = {name: getattr(reader, name, None) for name in _SETTINGS}
    backend = getattr(reader, "backend_tokenizer", None)
    if backend is not None:
        described = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
        return key_of(type(reader), settings, json.dumps(described, sort_keys=True))
    options = {
        name: value
        for name, value in getattr(reader, "init_kwargs", {}).items()
        if not name.endswith(_PLACES)
    }
    parts = [getattr(reader, name, None) for name in ("bpe_ranks", "sp_model")]
    vocabulary = reader.get_vocab() if hasattr(reader, "get_vocab") else vars(reader)
    return key_of(type(reader), settings, vocabulary, options, *parts)
