"""What one element reads, or who reads it, in every layer and head: rows, where matrices are too large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.media.patches import sides_of
from attnwidgets.views.wire.codec import quantise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

    Floats = NDArray[np.float32]

_EXACT = 32
"""Up to so many elements other than patches are sent as float32: their shares are printed."""


def values_of(source: Source, side: str, index: int) -> Floats:
    """Return what an element reads, or how much each element reads of it, [layer, head, element].

    Layers are those that are ready. A head that was pruned holds NaN. Of attributions every target is a head,
    whatever the element.

    Args:
        source: The map or attributions.
        side: "query": what the element reads; "key": who reads it.
        index: Number of the element in the source's unit.

    Raises:
        IndexError: The element is out of range.
    """
    if source.of_targets:
        return np.stack([source.layer(layer)[0] for layer in source.ready])
    rows = [source.across(layer, side, index) for layer in source.ready]
    heads = len(source.heads or (0,))
    whole = [np.pad(row, ((0, heads - len(row)), (0, 0)), constant_values=np.nan) for row in rows]
    return np.stack(whole).astype(np.float32)


def packed_values(source: Source, side: str, index: int) -> Answer:
    """Return `values_of` for the browser: `PatchRows` of js/src/views/media/rows.ts, and its buffers.

    The buffers are the codes of patches [layer, head, patch], row by row; the scale of every map of patches
    [layer, head], float32, NaN for a pruned head; the sum over patches [layer, head], float32; and the other
    elements [layer, head, element]: float32, or if they are many codes, followed by their scales.
    """
    values = values_of(source, side, index)
    query, key = sides_of(source)
    places = key if side == "query" or source.of_targets else query
    patches, others = (values[..., list(part)] for part in (places.patches, places.others))
    codes, scale = _coded(patches, signed=source.signed)
    sums = np.nansum(patches, axis=-1, dtype=np.float64).astype("<f4")
    exact = len(places.others) <= _EXACT
    rest = [others.astype("<f4").tobytes()]
    if not exact:
        other_codes, other_scale = _coded(others, signed=source.signed)
        rest = [other_codes.tobytes(), other_scale.tobytes()]
    meta = {
        "layers": list(source.ready),
        "heads": values.shape[1],
        "grid": list(places.grid),
        "patches": _runs(places.patches),
        "others": _runs(places.others),
        "signed": source.signed,
        "exact": exact,
    }
    return meta, [codes.tobytes(), scale.tobytes(), sums.tobytes(), *rest]


def _coded(values: Floats, *, signed: bool) -> tuple[NDArray[np.uint8], Floats]:
    """Return codes, and the scale of every layer and head, NaN for pruned heads."""
    missing = np.isnan(values).all(axis=-1) & (values.shape[-1] > 0)
    scale = np.max(np.abs(np.nan_to_num(values)), axis=-1, initial=0.0).astype("<f4")
    codes = quantise(values, scale[..., None], signed=signed)
    return codes, np.where(missing, np.nan, scale).astype("<f4")


def _runs(elements: tuple[int, ...]) -> list[Any]:
    """Return elements as [first, count] if they follow each other, else one by one in [numbers]."""
    first = elements[0] if elements else 0
    if elements == tuple(range(first, first + len(elements))):
        return [first, len(elements)]
    return [list(elements)]
