"""Keys by which the browser selects a method, its target, and its values by layer.

`lrp` explains the model's prediction, `lrp@1` the class or token 1, `lrp@1-0` 1 rather than 0; `lrp:layers`
holds its values in every layer.
"""

from __future__ import annotations

import re

_BY_LAYER = ":layers"
_TARGET = re.compile(r"@(\d+)(?:-(\d+))?")


def by_layer(key: str) -> str:
    """Return the key of the layers of attributions (`.map`)."""
    return key + _BY_LAYER


def is_by_layer(key: str) -> bool:
    """Return whether a key is one of `by_layer`."""
    return key.endswith(_BY_LAYER)


def asked_about(key: str, target: int | None, foil: int | None) -> str:
    """Return the key of a method for a target, rather than a foil; without a target, for the prediction."""
    base = base_of(key).removesuffix(_BY_LAYER)
    if target is None:
        return base
    return f"{base}@{target}" if foil is None else f"{base}@{target}-{foil}"


def base_of(key: str) -> str:
    """Return a key without target and foil."""
    return _TARGET.sub("", key)


def asked_of(key: str) -> dict[str, int]:
    """Return the target and the foil of a key, as options of a method."""
    match = _TARGET.search(key)
    pairs = zip(("target", "foil"), match.groups(), strict=True) if match else ()
    return {name: int(number) for name, number in pairs if number}


def method_of(key: str) -> str:
    """Return the method's name in a key."""
    return base_of(key).removesuffix(_BY_LAYER).split("#")[0]
