"""From two places of a patching to the head between them that a claim is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.circuits.patching import Patching

_TWO = 2


def is_between(cells: Sequence[Sequence[Any]]) -> bool:
    """Return whether cells (site, layer, token, head) are two places of different tokens and layers.

    The twin of `isBetween` in js/src/views/circuits/patch/claimOf.ts.
    """
    if len(cells) != _TWO or any(site == "head" or token is None for site, _, token, _ in cells):
        return False
    (_, layer, token, _), (_, other, later, _) = sorted(cells, key=lambda cell: int(cell[1]))
    return bool(layer < other and token < later)


def between(patching: Patching, cells: Sequence[Sequence[Any]]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the head that carries most between two places, and their tokens.

    Args:
        patching: A patching of heads.
        cells: Two places (site, layer, token, None), the later one of a later token.

    Returns:
        (layer, head) and (earlier token, later token).

    Raises:
        LookupError: Heads were not patched, or the places are not two of this kind.
    """
    if not is_between(cells):
        raise LookupError(
            "a claim goes from a token to a later one in a later layer: choose two such places."
        )
    if patching.heads is None:
        raise LookupError("heads were not patched, so that none is known that lies between: patch them too.")
    first, second = sorted(cells, key=lambda cell: int(cell[1]))
    shares = np.nan_to_num(patching.heads[first[1] : second[1] + (second[0] != "state")])
    layer, head = np.unravel_index(int(np.abs(shares).argmax()), shares.shape)
    return (first[1] + int(layer), int(head)), (first[2], second[2])
