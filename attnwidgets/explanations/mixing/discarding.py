"""Tokens left out of a map before it is followed through its layers, and a note where one would take all.

In causal models much attention rests on the first token whatever it says (Xiao et al. 2024, Efficient
Streaming Language Models with Attention Sinks), and a product of layers hands nearly everything to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from operator import index
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from attnwidgets._errors import suggest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.tracing.text.units import Unit

    Float = NDArray[np.float64]

Discard: TypeAlias = Literal["first", "special"] | Sequence[int] | None

MOST = 0.9
"""Share of the rows above which a note says that the first token holds it."""

_NAMES = ("first", "special")


def discarded(discard: Discard, unit: Unit, name: str) -> tuple[int, ...]:
    """Return the positions that `discard` names.

    Args:
        discard: "first"; "special": the special tokens; positions, negative ones from the end; None: none.
        unit: What the positions count.
        name: The method's name, for errors.

    Raises:
        ValueError: For an unknown name, a number alone, no special tokens, or where nothing would be left.
        IndexError: For a position that is not there.
        TypeError: For positions that are no whole numbers.
    """
    count = len(unit)
    if discard is None:
        return ()
    if isinstance(discard, (str, Number)):
        if discard not in _NAMES:
            near = suggest(discard, _NAMES) if isinstance(discard, str) else ""
            raise ValueError(
                f"{name}: discard {discard!r} is not 'first', 'special' or a list of positions, as [0].{near}"
            )
        places = [0] if discard == "first" else [i for i, apart in enumerate(unit.special) if apart]
        if not places:
            raise ValueError(
                f"{name}: discard='special', and there is no special {unit.name} here; 'first' leaves out "
                "the first one, a list of positions any others."
            )
    else:
        places = [_position(one, count, name) for one in discard]
    found = tuple(sorted(set(places)))
    if len(found) == count:
        raise ValueError(f"{name}: discard={discard!r} leaves none of the {count} {unit.name}s; keep one.")
    return found


def _position(given: Any, count: int, name: str) -> int:
    try:
        place = index(given)
    except TypeError as error:
        raise TypeError(f"{name}: discard holds {given!r}; positions are whole numbers.") from error
    if not -count <= place < count:
        raise IndexError(f"{name}: discard names position {place}; there are 0 to {count - 1}.")
    return place % count


def without(matrix: Float, places: Sequence[int]) -> Float:
    """Return [query, key] with the columns at `places` set to zero."""
    if not places:
        return matrix
    kept: Float = matrix.copy()
    kept[:, list(places)] = 0
    return kept


def said(discard: Discard, unit: str) -> str:
    """Return in words what was left out."""
    if discard is None:
        return ""
    if isinstance(discard, str):
        return f"without the first {unit}" if discard == "first" else f"without special {unit}s"
    return f"without {unit}s {', '.join(map(str, discard))}"


def taken_by_first(found: MixingMap) -> str:
    """Return what to say where one element holds most of a map that can leave elements out.

    That is the first element, or the first that is left where others were discarded. Its share is that of its
    column in a row's absolute values, averaged over the queries after it. It is read from the layers that are
    computed; none is computed for it.
    """
    options = found.provenance["options"]
    if "discard" not in options:
        return ""
    shares = {number: _share(found.layer(number)) for number in found.held_layers}
    layer = max(shares, key=lambda number: shares[number][1], default=None)
    if layer is None or shares[layer][1] <= MOST:
        return ""
    place, share = shares[layer]
    name = f"{found.unit} {place}, the first that is left," if place else f"the first {found.unit}"
    remedy = '; discard="first" leaves it out' if options["discard"] is None else ""
    return f"{name} holds {share:.1%} of a row at layer {layer} (mean over the queries after it){remedy}"


def _share(matrix: Any) -> tuple[int, float]:
    """Return the first element that another one draws from, and its mean share of the rows after it."""
    sizes = np.abs(np.asarray(matrix, dtype=np.float64))
    totals = sizes.sum(-1)
    if len(sizes) == sizes.shape[-1]:
        read = (sizes - np.diag(np.diag(sizes))).any(axis=0)
    else:
        read = sizes.any(axis=0)
    place = int(read.argmax())
    filled = np.flatnonzero(totals[place + 1 :] > 0) + place + 1
    return place, float((sizes[filled, place] / totals[filled]).mean()) if read.any() and len(filled) else 0.0
