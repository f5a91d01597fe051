"""A user's tokenizer without the padding and truncation that its last caller left in it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def own_tokenizer(tokenizer: Any) -> Any:
    """Return a fast tokenizer over a user's vocabulary that does not pad or truncate by itself.

    Every call with other options rewrites a fast tokenizer's padding and truncation, for its next caller, or
    for one in another thread at the same time. The vocabulary is shared, so this takes no time. Slow
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

    made = Tokenizer(backend.model)
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        part = getattr(backend, name)
        if part is not None:
            setattr(made, name, part)
    made.encode_special_tokens = backend.encode_special_tokens
    added = backend.get_added_tokens_decoder()
    for _, token in sorted(added.items()):
        (made.add_special_tokens if token.special else made.add_tokens)([token])
    if _spelled(made.get_added_tokens_decoder()) == _spelled(added):
        return made
    # Only a full copy keeps ids that have gaps between them.
    made = copy.deepcopy(backend)
    made.no_padding()
    made.no_truncation()
    return made


def _spelled(added: Mapping[int, Any]) -> dict[int, str]:
    return {number: repr(token) for number, token in added.items()}
