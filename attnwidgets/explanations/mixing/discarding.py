"""Tokens left out of a map before its layers are multiplied, and a note if the first token dominates.

In causal models much attention goes to the first token, whatever it is (Xiao et al. 2024, Efficient Streaming
Language Models with Attention Sinks), and a product of layers assigns nearly everything to it.
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
"""Share of the rows that goes to the first token, above which a note says so."""

_NAMES = ("first", "special")


def discard_positions(discard: Discard, unit: Unit, name: str) -> tuple[int, ...]:
    """Return the positions that `discard` selects.

    Args:
        discard: "first"; "special" for the special tokens; a list of positions, negatives counting from
            the end; None for none.
        unit: The unit whose elements the positions count.
        name: The method's name, for messages.

    Raises:
        ValueError: For an unknown name, a number outside a list, no special tokens, or if nothing is left.
        IndexError: For a position that does not exist.
        TypeError: For positions that are not whole numbers.
    """
    count = len(unit)
    if discard is None:
        return ()
    if isinstance(discard, (str, Number)):
        if discard not in _NAMES:
            near = suggest(discard, _NAMES) if isinstance(discard, str) else ""
            raise ValueError(
                f"{name}: discard {discard!r} is not 'first', 'special' or a list of positions ([0]).{near}"
            )
        selected = [0] if discard == "first" else np.flatnonzero(unit.special).tolist()
        if not selected:
            raise ValueError(
                f"{name}: discard='special' needs a special {unit.name}, and the text has none; use "
                "'first' or a list of positions."
            )
    else:
        selected = [_position(item, count, name) for item in discard]
    positions = tuple(sorted(set(selected)))
    if len(positions) == count:
        raise ValueError(f"{name}: discard={discard!r} leaves none of the {count} {unit.name}s; keep one.")
    return positions


def _position(item: Any, count: int, name: str) -> int:
    try:
        position = index(item)
    except TypeError as error:
        raise TypeError(f"{name}: discard holds {item!r}; positions are whole numbers.") from error
    if not -count <= position < count:
        raise IndexError(f"{name}: discard names position {position}; there are 0 to {count - 1}.")
    return position % count


def drop_columns(matrix: Float, positions: Sequence[int]) -> Float:
    """Return a matrix [query, key] with the columns at `positions` set to zero."""
    if not positions:
        return matrix
    remaining: Float = matrix.copy()
    remaining[:, list(positions)] = 0
    return remaining


def drop_lowest(matrix: Float, share: float) -> Float:
    """Return a matrix [query, key] whose lowest weights, a share of all of them, are zero.

    The first token's weight to itself stays, as in vit-explain, where this comes from. Of equal weights the
    earlier weights go first.
    """
    count = int(matrix.size * share)
    if not count:
        return matrix
    lowest = np.argsort(matrix, axis=None, kind="stable")[:count]
    remaining: Float = matrix.copy()
    remaining.reshape(-1)[lowest[lowest != 0]] = 0
    return remaining


def discard_note(discard: Discard, unit: str) -> str:
    """Return a note on the elements left out; "" if there are none."""
    if discard is None:
        return ""
    if isinstance(discard, str):
        return f"without the first {unit}" if discard == "first" else f"without special {unit}s"
    return f"without {unit}s {', '.join(map(str, discard))}"


def taken_by_first(mixing: MixingMap) -> str:
    """Return a note if a single element has most of a map of a method that has `discard`; otherwise "".

    That element is the first, or the first that remains. Its share is that of its column in the absolute
    values of a row, averaged over the queries after it. Only layers that are already computed are read.
    """
    options = mixing.provenance["options"]
    if "discard" not in options:
        return ""
    shares = {number: _share(mixing.layer(number)) for number in mixing.held_layers}
    layer = max(shares, key=lambda number: shares[number][1], default=None)
    if layer is None or shares[layer][1] <= MOST:
        return ""
    position, share = shares[layer]
    name = f"{mixing.unit} {position}, the first remaining one," if position else f"the first {mixing.unit}"
    remedy = '; discard="first" leaves it out' if options["discard"] is None else ""
    return f"{name} holds {share:.1%} of a row at layer {layer} (mean over the queries after it){remedy}"


def _share(matrix: Any) -> tuple[int, float]:
    """Return the first element that another element reads, and its mean share of the rows after it."""
    sizes = np.abs(np.asarray(matrix, dtype=np.float64))
    totals = sizes.sum(-1)
    square = len(sizes) == sizes.shape[-1]
    read = (sizes - np.diag(np.diag(sizes)) if square else sizes).any(axis=0)
    first = int(read.argmax())
    rows = np.flatnonzero(totals[first + 1 :] > 0) + first + 1
    return first, float((sizes[rows, first] / totals[rows]).mean()) if read.any() and len(rows) else 0.0
