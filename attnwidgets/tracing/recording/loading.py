"""Models and tokenizers that are given by name: a hub id or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any


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
        ValueError: If there is none.
    """
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(name)
        saved = (getattr(config, "architectures", None) or [""])[0]
        return getattr(transformers, saved, transformers.AutoModel).from_pretrained(name)
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
        return transformers.AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"tokenizer {name!r:.80} could not be loaded; if it is the text, pass text=...: {error}"
        ) from error
