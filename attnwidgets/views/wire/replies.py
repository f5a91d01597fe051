"""Replies to requests for numbers: a matrix, the heads of a layer, an exact row, thumbnails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.wire.thumbnails import some_thumbnails, thumbnails
from attnwidgets.views.wire.validation import fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.views.wire.sources import Source

    Answer = tuple[dict[str, Any], list[bytes]]


LAYER_BYTES = 3_900_000
"""Size limit of a message with several heads of a layer; a single head may be larger."""


def reply(request: dict[str, Any], source: Callable[[str], Source]) -> Answer:
    """Return the Reply of wire.ts to a Request, and its buffers; an error is a reply as well.

    Args:
        request: The message from the browser; "kind" names what is requested.
        source: Returns the source of a name, or raises a LookupError if it is no longer shown.
    """
    complaint = fault(request)
    if complaint is not None:
        return complaint, []
    kind, number = request["kind"], request.get("id")
    if kind == "ping":
        return {"kind": "pong", "id": number}, []
    read = {"tile": _tile, "layer": _layer, "row": _row, "thumbs": _thumbs}.get(kind)
    if read is None:
        return {"kind": "error", "id": number, "message": f"unknown request {kind!r}"}, []
    try:
        return read(source(request.get("source", "")), request)
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        return {"kind": "error", "id": number, "message": words(error)}, []


def words(error: BaseException) -> str:
    """Return the message of an error."""
    # str() of a KeyError is its argument's repr.
    return str(error.args[0] if isinstance(error, KeyError) and error.args else error) or type(error).__name__


def _tile(source: Source, request: dict[str, Any]) -> Answer:
    tile = source.tile(request["layer"], request["head"])
    return {"kind": "tile", "id": request["id"], **tile.meta()}, [tile.data]


def _layer(source: Source, request: dict[str, Any]) -> Answer:
    tiles: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    parts: list[bytes] = []
    length = 0
    for head in request["heads"]:
        if length and length + source.tile_bytes > LAYER_BYTES:  # the browser asks for the rest
            break
        try:
            tile = source.tile(request["layer"], head)
        except IndexError as error:
            refused.append({"head": head, "message": str(error)})
            continue
        tiles.append({**tile.meta(), "offset": length, "length": len(tile.data)})
        parts.append(tile.data)
        length += len(tile.data)
    place = {"source": source.id, "layer": request["layer"], "tiles": tiles, "refused": refused}
    return {"kind": "layer", "id": request["id"], **place}, [b"".join(parts)]


def _row(source: Source, request: dict[str, Any]) -> Answer:
    if request["layer"] not in source.ready and request["layer"] in source.layers:
        raise ValueError(f"layer {request['layer']} is not computed yet.")
    row = int(request["row"])
    values = source.row(request["layer"], request["head"], row)
    place = {"source": source.id, "layer": request["layer"], "head": request["head"], "row": row}
    return {"kind": "row", "id": request["id"], **place}, [np.asarray(values, dtype="<f4").tobytes()]


def _thumbs(source: Source, request: dict[str, Any]) -> Answer:
    special = bool(request.get("special"))
    if source.parts:
        place, head = map(int, request.get("from") or (0, 0))
        some = some_thumbnails(source, place, head, special=special)
        return {"kind": "thumbs", "id": request["id"], **some.meta()}, [some.data]
    made = thumbnails(source, special=special)
    if made is None:
        raise ValueError(f"{source.id} has too many layers and heads for thumbnails.")
    return {"kind": "thumbs", "id": request["id"], **made.meta()}, [made.data]
