"""The header: what a store holds, described for the browser as wire.ts has it."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnwidgets.views.base.menu import Entry
    from attnwidgets.views.wire.eager import Pack
    from attnwidgets.views.wire.sources import Source


def describe(sources: Sequence[Source], pack: Pack, menu: Mapping[str, Entry]) -> dict[str, Any]:
    """Return the Header of wire.ts.

    Args:
        sources: Most important first.
        pack: The eager bytes of these sources.
        menu: What can be chosen, by key.
    """
    axes: dict[str, dict[str, Any]] = {}
    described = []
    for source in sources:
        query, key = (_place(axes, side) for side in source.axes())
        described.append(source.describe(query, key))
    provenance = dict(getattr(sources[0].explanation, "provenance", {})) if sources else {}
    predictions = (predictions_of(source.explanation) for source in sources)
    return {
        "version": 1,
        "model": model_name(str(provenance.get("model", "") or "")),
        "text": str(provenance.get("text", "") or ""),
        "axes": axes,
        "sources": described,
        "methods": [entry.describe(key) for key, entry in menu.items()],
        "thumbs": pack.thumbs,
        "tiles": pack.tiles,
        "predictions": next((p for p in predictions if p["items"]), {"title": "", "items": []}),
    }


def looked_at(sources: Sequence[Source], first: tuple[int | None, int | str | None]) -> tuple[int, int | str]:
    """Return the layer and head that a view opens with; None in `first` is the first there is."""
    if not sources:
        return 0, "-"
    main = sources[0]
    layer = main.layers[0] if first[0] is None else first[0]
    head = (main.heads or ("-",))[0] if first[1] is None else first[1]
    return layer, head


def model_name(name: str) -> str:
    """Return a model's name as it is shown: of a folder its last two parts, for pages are published."""
    parts = PurePath(name).parts
    return "/".join(parts[-2:]) if len(parts) > 2 or PurePath(name).is_absolute() else name  # noqa: PLR2004


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
