"""Fingerprints of everything statistics and training depend on, compared before resuming or merging."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.content import weights_fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from attnwidgets.sae.corpus import Corpus
    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.hooks.hook_point import HookPoint

_LABELS = ("site", "model_name", "metadata", "origin")  # SAE options that change no number
_OTHER = {
    "version": "another version of attnwidgets",
    "model": "another model's weights (or other hooks, such as steering, or active interventions)",
    "tokenizer": "another tokenizer",
    "sae": "another SAE",
    "site": "another site",
    "features": "other features",
    "texts": "other texts",
}


def states_about(
    prints: tuple[str, str], corpus: Corpus, hook_point: HookPoint, **options: Any
) -> dict[str, Any]:
    """Return a JSON-able description of everything the states of a corpus depend on, except its texts.

    Args:
        prints: Fingerprints of the model and of the tokenizer.
        corpus: The corpus.
        hook_point: Where its states are read.
        options: Further options the numbers depend on, by the names used in error messages.
    """
    return {
        "version": 1,
        "model": prints[0],
        "tokenizer": prints[1],
        "site": f"{hook_point.module}.{hook_point.side} {hook_point.call}",
        "options": {
            "context": corpus.context,
            "prepend_bos": [list(corpus.before), list(corpus.after)],
            **options,
        },
    }


def sae_fingerprint(sae: SAE) -> str:
    """Return a hash of an SAE's weights and of the options that change its activations."""
    options = {name: value for name, value in sae.options().items() if name not in _LABELS}
    return hashlib.blake2b(f"{weights_fingerprint_of(sae)} {options!r}".encode(), digest_size=16).hexdigest()


def require_same(folder: Path, stored: Any, expected: Mapping[str, Any]) -> None:
    """Raise ValueError, naming the difference, if a checkpoint belongs to something else."""
    if other := difference(stored, expected):
        raise ValueError(f"checkpoint {str(folder)!r} is of {other}; remove it, or name another folder.")


def difference(stored: Any, expected: Mapping[str, Any]) -> str:
    """Return in words how two descriptions by `states_about` differ; "" if they are equal.

    Args:
        stored: The description in a file.
        expected: The description of the present call.
    """
    if not isinstance(stored, dict) or not isinstance(stored.get("options"), dict):
        return _OTHER["version"]
    differences = [words for name, words in _OTHER.items() if stored.get(name) != expected.get(name)]
    stored_options, expected_options = stored["options"], expected["options"]
    changed = [
        name
        for name in {**expected_options, **stored_options}
        if stored_options.get(name) != expected_options.get(name)
    ]
    if changed:
        differences.append(f"other options ({', '.join(changed)})")
    return " and ".join(differences)
