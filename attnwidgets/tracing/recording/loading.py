"""Models and tokenizers given by name, and tokenizers without the padding of their last call."""

from __future__ import annotations

import copy
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_CODE = {"trust_remote_code": False}
"""Without it, transformers waits at a prompt for permission to run code stored with the weights."""


def load_named(model: Any, tokenizer: Any, *, needs_reader: bool) -> tuple[Any, Any]:
    """Load model and tokenizer if they are given by name, the model in its checkpoint's class."""
    if isinstance(model, (str, Path)):
        if tokenizer is None and needs_reader:
            tokenizer = model
        model = load_model(str(model))
    if isinstance(tokenizer, (str, Path)):
        tokenizer = load_tokenizer(str(tokenizer))
    return model, tokenizer


def load_model(name: str) -> Any:
    """Load a model by hub id or folder, in the class that its checkpoint was saved with.

    Raises:
        ValueError: If there is none, it needs its folder's code, or its weights could run code.
    """
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(name, **_NO_CODE)
        saved = (getattr(config, "architectures", None) or [""])[0]
        return getattr(transformers, saved, transformers.AutoModel).from_pretrained(name, **_NO_CODE)
    except UnpicklingError as error:
        raise ValueError(
            f"the weights of model {name!r} are a pickle with more in it than tensors, which could run code: "
            "it was not opened. Ask for .safetensors, or load the model yourself and pass the object."
        ) from error
    except ValueError as error:
        raise _own_code("model", name, error) or error from None
    except OSError as error:
        raise ValueError(
            f"model {name!r} is not a folder with a saved model, and could not be loaded from the hub. "
            "Pass a folder, a hub id that is reachable or cached, or a model object "
            "(aw.demo_model() returns one without a hub)."
        ) from error


def load_tokenizer(name: str) -> Any:
    """Load a tokenizer by hub id or folder.

    Raises:
        ValueError: If there is none.
    """
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(name, **_NO_CODE)
    except (OSError, ValueError) as error:
        if refused := _own_code("tokenizer", name, error):
            raise refused from None
        raise ValueError(
            f"tokenizer {name!r:.80} could not be loaded; if it is the text, pass text=...: {error}"
        ) from error


def _own_code(kind: str, name: str, error: Exception) -> ValueError | None:
    """Return an error that names the option, if transformers refused to run the code of a folder."""
    if "trust_remote_code" not in str(error):
        return None
    maker = "AutoModel" if kind == "model" else "AutoTokenizer"
    return ValueError(
        f"{kind} {name!r} has code in its folder, which was not run. If you trust it, load it with "
        f"transformers.{maker}.from_pretrained({name!r}, trust_remote_code=True), and pass the object."
    )


def own_tokenizer(tokenizer: Any) -> Any:
    """Return a fast tokenizer over a user's vocabulary that does not pad or truncate by itself.

    Every call with other options rewrites a fast tokenizer's padding and truncation, for its next caller, or
    for a caller in another thread at the same time. The vocabulary is shared, so this takes no time. Slow
    tokenizers keep no such state and are returned as they are.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return tokenizer
    private = copy.copy(tokenizer)
    vars(private)["_tokenizer"] = _unpadded(backend)
    return private


def _unpadded(backend: Any) -> Any:
    from tokenizers import Tokenizer

    unpadded = Tokenizer(backend.model)
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        part = getattr(backend, name)
        if part is not None:
            setattr(unpadded, name, part)
    unpadded.encode_special_tokens = backend.encode_special_tokens
    added = backend.get_added_tokens_decoder()
    for _, token in sorted(added.items()):
        (unpadded.add_special_tokens if token.special else unpadded.add_tokens)([token])
    if _spelled(unpadded.get_added_tokens_decoder()) == _spelled(added):
        return unpadded
    # Only a full copy keeps ids that have gaps between them.
    unpadded = copy.deepcopy(backend)
    unpadded.no_padding()
    unpadded.no_truncation()
    return unpadded


def _spelled(added: Mapping[int, Any]) -> dict[int, str]:
    return {number: repr(token) for number, token in added.items()}
