"""The header: the contents of a store, described for the browser (`Header` of wire.ts)."""

from __future__ import annotations

from math import isnan
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from attnwidgets.views.wire.keys import key_for_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnwidgets.views.base.menu import Entry
    from attnwidgets.views.wire.eager import Pack
    from attnwidgets.views.wire.sources import Source


def describe(
    sources: Sequence[Source],
    pack: Pack,
    menu: Mapping[str, Entry],
    explains: str = "",
    *,
    computes: bool = True,
) -> dict[str, Any]:
    """Return the Header of wire.ts.

    Args:
        sources: Most important first.
        pack: The eager bytes of these sources.
        menu: Methods that can be chosen, by key.
        explains: Key of the method that explains predictions.
        computes: Whether a kernel can explain predictions that no source explains yet.
    """
    axes: dict[str, dict[str, Any]] = {}
    described = []
    for source in sources:
        query, key = (_axis_key(axes, axis) for axis in source.axes())
        described.append(source.describe(query, key))
    provenance = sources[0].explanation.provenance if sources else {}
    shown = (predictions_of(source.explanation) for source in sources)
    predictions: dict[str, Any] = next((p for p in shown if p["items"]), {"title": "", "items": []})
    explained = None if computes else _explained(sources, explains, predictions["items"])
    return {
        "version": 1,
        "model": model_name(str(provenance.get("model", "") or "")),
        "text": str(provenance.get("text", "") or ""),
        "axes": axes,
        "sources": described,
        "methods": [entry.describe(key) for key, entry in menu.items()],
        "thumbs": pack.thumbs,
        "tiles": pack.tiles,
        "predictions": predictions | {"method": explains, "explained": explained},
    }


def _explained(sources: Sequence[Source], explains: str, items: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the ids of the predictions that a source explains by the method with the key `explains`."""
    keys = {source.method for source in sources}
    by_key = {explained_key(explains, items, place): item["id"] for place, item in enumerate(items)}
    return [number for key, number in by_key.items() if key in keys]


def explained_key(explains: str, items: Sequence[Any], place: int) -> str:
    """Return the key under which the explanation of a prediction is stored; the first needs no target."""
    return key_for_target(explains, items[place]["id"] if place else None, None)


def opening_matrix(
    sources: Sequence[Source], first: tuple[int | None, int | str | None]
) -> tuple[int, int | str]:
    """Return the layer and head that a view opens with; None in `first` stands for the first one."""
    if not sources:
        return 0, "-"
    main = sources[0]
    layer = main.layers[0] if first[0] is None else first[0]
    head = (main.heads or ("-",))[0] if first[1] is None else first[1]
    return layer, head


def model_name(name: str) -> str:
    """Return a model's name for display: of a folder only the last two parts, because pages are published."""
    parts = PurePath(name).parts
    return "/".join(parts[-2:]) if len(parts) > 2 or PurePath(name).is_absolute() else name  # noqa: PLR2004


def predictions_of(explanation: Any) -> dict[str, Any]:
    """Return the model's predictions: `Predictions` of wire.ts."""
    title, items = explanation.predictions or ("", ())
    return {"title": str(title), "items": [prediction_of(item, title) for item in items]}


def prediction_of(item: Any, title: str) -> dict[str, Any]:
    """Return a prediction: `Prediction` of wire.ts; a number without the title that stands before it."""
    share = float(item.probability)
    if isnan(share):
        label = item.label.replace(" -", " −").removeprefix(f"{title} ")
        return {"label": label, "probability": None, "id": int(item.id)}
    return {"label": str(item.label), "probability": share, "id": int(item.id)}


def _axis_key(axes: dict[str, dict[str, Any]], axis: dict[str, Any]) -> str:
    """Put an axis into the header once and return its key."""
    for key, known in axes.items():
        if known == axis:
            return key
    key = axis["unit"]
    while key in axes:
        key += "'"
    axes[key] = axis
    return str(key)
