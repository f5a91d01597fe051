"""What statistics and training depend on, by content: what resumes or merges them refuses anything else."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.fingerprint import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from attnwidgets.sae.corpus import Corpus
    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.hooks.hook_point import HookPoint

_LABELS = ("site", "model_name", "metadata", "origin")  # of an SAE: they change no number
_OTHER = {
    "version": "another version of attnwidgets",
    "model": "another model's weights (or other hooks, such as steering, or interventions in force)",
    "tokenizer": "another tokenizer",
    "sae": "another SAE",
    "site": "another site",
    "features": "other features",
    "texts": "other texts",
}


def states_about(prints: tuple[str, str], corpus: Corpus, site: HookPoint, **options: Any) -> dict[str, Any]:
    """Return what the states of a corpus depend on, but for its texts (JSON-able).

    Args:
        prints: Fingerprints of the model and of the tokenizer.
        corpus: What is read.
        site: Where the states are.
        options: What else the numbers depend on, by the names that errors give them.
    """
    return {
        "version": 1,
        "model": prints[0],
        "tokenizer": prints[1],
        "site": f"{site.module}.{site.side} {site.call}",
        "options": {
            "context": corpus.context,
            "prepend_bos": [list(corpus.before), list(corpus.after)],
            **options,
        },
    }


def sae_fingerprint(sae: SAE) -> str:
    """Return a hash of an SAE's weights and of the options that change its activations."""
    options = {name: value for name, value in sae.options().items() if name not in _LABELS}
    return hashlib.blake2b(f"{fingerprint_of(sae)} {options!r}".encode(), digest_size=16).hexdigest()


def require_same(folder: Path, kept: Any, wanted: Mapping[str, Any]) -> None:
    """Raise ValueError, with what differs, where a checkpoint is about something else; see `difference`."""
    if other := difference(kept, wanted):
        raise ValueError(f"checkpoint {str(folder)!r} is of {other}; remove it, or name another folder.")


def difference(kept: Any, wanted: Mapping[str, Any]) -> str:
    """Return in words of what else something is that was kept, or "" where it is of the same.

    Args:
        kept: What it says that it is about.
        wanted: What it should be about.
    """
    if not isinstance(kept, dict) or not isinstance(kept.get("options"), dict):
        return _OTHER["version"]
    found = [words for name, words in _OTHER.items() if kept.get(name) != wanted.get(name)]
    theirs, ours = kept["options"], wanted["options"]
    changed = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
    if changed:
        found.append(f"other options ({', '.join(changed)})")
    return " and ".join(found)
