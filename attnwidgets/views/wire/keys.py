"""Keys of methods: what the browser selects a method by, and what one of it is about.

`lrp` is a method about what the model predicts, `lrp@1` about the class or token 1, `lrp@1-0` about 1 rather
than 0; `lrp:layers` is what it says of every layer.
"""

from __future__ import annotations

import re

_BY_LAYER = ":layers"
_ASKED = re.compile(r"@(\d+)(?:-(\d+))?")


def by_layer(key: str) -> str:
    """Return the key of what attributions say of every layer, where they say anything."""
    return key + _BY_LAYER


def is_by_layer(key: str) -> bool:
    """Return whether a key is one of `by_layer`."""
    return key.endswith(_BY_LAYER)


def asked_about(key: str, target: int | None, foil: int | None) -> str:
    """Return the key of a method about a target, rather than a foil; without one, the prediction."""
    base = base_of(key).removesuffix(_BY_LAYER)
    if target is None:
        return base
    return f"{base}@{target}" if foil is None else f"{base}@{target}-{foil}"


def base_of(key: str) -> str:
    """Return a key without what it is about."""
    return _ASKED.sub("", key)


def asked_of(key: str) -> dict[str, int]:
    """Return what a key is about, as a method takes it: target, foil, or nothing."""
    found = _ASKED.search(key)
    pairs = zip(("target", "foil"), found.groups(), strict=True) if found else ()
    return {name: int(text) for name, text in pairs if text}


def method_of(key: str) -> str:
    """Return the method's name in a key."""
    return base_of(key).removesuffix(_BY_LAYER).split("#")[0]
