"""The tile store: the numbers behind all views of one trace, sent as they are asked for."""

from __future__ import annotations

from pathlib import PurePath
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from traitlets import Bytes, Dict

from attnwidgets.views.eager import Pack
from attnwidgets.views.runtime import SharedModel
from attnwidgets.views.sources import Source, is_attributions
from attnwidgets.views.thumbnails import thumbnails

if TYPE_CHECKING:
    from collections.abc import Sequence


class TileStore(SharedModel):
    """Holds explanations by method key, describes them in `header` and answers the views' requests.

    Requests arrive on a subshell, beside a running cell: the handler only reads what was recorded, and takes
    a lock only to look up a source.
    """

    header = Dict().tag(sync=True, echo_update=False)
    eager = Bytes(b"").tag(sync=True, echo_update=False)

    def __init__(self) -> None:
        self._lock = RLock()
        self._sources: dict[str, Source] = {}
        self._holders: dict[str, set[str]] = {}
        self._used: set[tuple[str, str]] = set()
        super().__init__()
        self.on_msg(self._answer)

    # -- what is in it -----------------------------------------------------------------------------

    def sources(self) -> tuple[Source, ...]:
        """Return every source, in the order of registration."""
        with self._lock:
            return tuple(self._sources.values())

    def register(
        self,
        explanations: Sequence[Any],
        holder: str,
        *,
        units: Sequence[str] = (),
        first: tuple[int | None, int | str | None] = (None, None),
    ) -> list[str]:
        """Make explanations known to the browser and return their method keys.

        An explanation that is here already (same method, options and numbers) keeps its key, so that
        running a cell again adds nothing.

        Args:
            explanations: MixingMaps or Attributions.
            holder: Token of the view that shows them.
            units: Only these units; empty: every unit an explanation can be read in.
            first: Layer and head a view opens with.
        """
        for explanation in explanations:
            # Requests arrive beside a running cell, where the model may be in use: none may run it.
            if getattr(explanation, "runs_model", False):
                for layer in explanation.layers:
                    explanation.layer(layer)
        keys = []
        with self._lock:
            before = tuple(self._sources)
            for explanation in explanations:
                key = self._key(explanation)
                keys.append(key)
                self._holders.setdefault(key, set()).add(holder)
                offered = units_of(explanation)
                for unit in [name for name in offered if name in units] or offered[: 1 if units else None]:
                    source = Source(explanation, key, unit)
                    self._sources.setdefault(source.id, source)
            changed = tuple(self._sources) != before
        if changed:
            self._describe(first)
        return keys

    def release(self, holder: str) -> None:
        """Forget what only one view showed; the last view closes the store."""
        with self._lock:
            for key, holders in list(self._holders.items()):
                holders.discard(holder)
                if not holders:
                    del self._holders[key]
            # The browser keeps the old header until something new is registered: nothing points at these.
            self._sources = {name: s for name, s in self._sources.items() if s.method in self._holders}
        super().release(holder)

    def _key(self, explanation: Any) -> str:
        """Return the key under which an explanation is known, or a new one.

        A key never comes to mean other numbers: browsers keep tiles by it.
        """
        stream = getattr(explanation, "stream", "") or "self"
        for held in self._sources.values():
            if held.method.split("#")[0] != explanation.method or held.stream != stream:
                continue
            found = in_unit(held.explanation, explanation.unit)
            if same(held.explanation, explanation) or same(found, explanation):
                return held.method
        key, number = str(explanation.method), 1
        while (key, stream) in self._used:
            number += 1
            key = f"{explanation.method}#{number}"
        self._used.add((key, stream))
        return key

    def _describe(self, first: tuple[int | None, int | str | None]) -> None:
        header, eager = describe(self.sources(), first)
        with self.hold_sync():
            self.eager = eager
            self.header = header

    # -- requests ----------------------------------------------------------------------------------

    def _answer(self, _: object, content: Any, __: object) -> None:
        if not isinstance(content, dict) or "kind" not in content:
            return
        reply, buffers = self.answer(content)
        if self.is_open:  # the views may have been closed while their request was on the way
            self.send(reply, buffers)

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """Return the Reply of wire.ts to a Request, and its buffers."""
        kind, number = request["kind"], request.get("id")
        if kind == "ping":
            return {"kind": "pong", "id": number}, []
        read = {"tile": _tile, "row": _row, "thumbs": _thumbs}.get(kind)
        if read is None:
            return {"kind": "error", "id": number, "message": f"unknown request {kind!r}"}, []
        try:
            return read(self._source(request.get("source", "")), request)
        except (LookupError, ValueError, TypeError, RuntimeError) as error:
            return {"kind": "error", "id": number, "message": str(error)}, []

    def _source(self, name: str) -> Source:
        with self._lock:
            source = self._sources.get(name)
        if source is None:
            raise LookupError(f"{name!r} is no longer shown; run the cell again.")
        return source


def _tile(source: Source, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    tile = source.tile(request["layer"], request["head"])
    return {"kind": "tile", "id": request["id"], **tile.meta()}, [tile.data]


def _row(source: Source, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    values, row = source.matrix(request["layer"], request["head"]), int(request["row"])
    if not 0 <= row < len(values):
        raise IndexError(f"row {row} is out of range: the rows are 0 to {len(values) - 1}.")
    place = {"source": source.id, "layer": request["layer"], "head": request["head"], "row": row}
    return {"kind": "row", "id": request["id"], **place}, [np.asarray(values[row], dtype="<f4").tobytes()]


def _thumbs(source: Source, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    made = thumbnails(source)
    if made is None:
        raise ValueError(f"{source.id} has too many layers and heads for thumbnails.")
    return {"kind": "thumbs", "id": request["id"], **made.meta()}, [made.data]


def describe(
    sources: Sequence[Source], first: tuple[int | None, int | str | None]
) -> tuple[dict[str, Any], bytes]:
    """Return the header of wire.ts for sources, and the eager bytes it points into.

    Args:
        sources: Most important first.
        first: Layer and head a view opens with; None: the first there is.
    """
    axes: dict[str, dict[str, Any]] = {}
    described = []
    for source in sources:
        query, key = (_place(axes, side) for side in source.axes())
        described.append(source.describe(query, key))
    main = sources[0]
    layer = main.layers[0] if first[0] is None else first[0]
    head = (main.heads or ("-",))[0] if first[1] is None else first[1]
    pack = Pack(sources, (layer, head))
    provenance = dict(getattr(main.explanation, "provenance", {}))
    predictions = (predictions_of(source.explanation) for source in sources)
    warnings = dict.fromkeys(str(getattr(source.explanation, "warning", "") or "") for source in sources)
    header = {
        "version": 1,
        "model": model_name(str(provenance.get("model", "") or "")),
        "text": str(provenance.get("text", "") or ""),
        "warning": "; ".join(filter(None, warnings)),
        "axes": axes,
        "sources": described,
        "thumbs": pack.thumbs,
        "tiles": pack.tiles,
        "predictions": next((p for p in predictions if p["items"]), {"title": "", "items": []}),
    }
    return header, pack.data


def model_name(name: str) -> str:
    """Return a model's name as it is shown: of a folder its last two parts, for pages are published."""
    parts = PurePath(name).parts
    return "/".join(parts[-2:]) if len(parts) > 2 or PurePath(name).is_absolute() else name  # noqa: PLR2004


def units_of(explanation: Any) -> list[str]:
    """Return the units an explanation can be read in, its own first."""
    available = getattr(explanation, "available_units", None)
    names = list(available()) if available is not None else []
    return list(dict.fromkeys([explanation.unit, *names]))


def same(one: Any, other: Any) -> bool:
    """Return whether two explanations are the same numbers got in the same way."""
    if one is other:
        return True
    if type(one) is not type(other) or one.method != other.method or one.unit != other.unit:
        return False
    if repr(one.provenance) != repr(other.provenance):
        return False
    if is_attributions(one):
        return bool(np.array_equal(one.values, other.values))
    if one.layers != other.layers or one.heads != other.heads:
        return False
    return all(np.array_equal(one.layer(n), other.layer(n)) for n in one.layers)


def in_unit(explanation: Any, unit: str) -> Any:
    """Return an explanation in another unit, or None where it cannot be read so."""
    if unit == explanation.unit or unit not in units_of(explanation):
        return None
    return explanation.to(unit)


def predictions_of(explanation: Any) -> dict[str, Any]:
    """Return what the model predicted, as wire.ts has it."""
    carried = getattr(explanation, "predictions", None) or ("", ())
    title, items = carried
    return {
        "title": str(title),
        "items": [
            {"label": str(item.label), "probability": float(item.probability), "id": int(item.id)}
            for item in items
        ],
    }


def _place(axes: dict[str, dict[str, Any]], axis: dict[str, Any]) -> str:
    """Put an axis into the header once and return its key."""
    for key, held in axes.items():
        if held == axis:
            return key
    key = axis["unit"]
    while key in axes:
        key += "'"
    axes[key] = axis
    return str(key)
