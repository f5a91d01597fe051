"""Standalone pages: views in one file that needs neither kernel nor network."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._files import write_bytes
from attnwidgets.tracing.text.display import well_formed
from attnwidgets.views.base.menu import NEEDS_KERNEL
from attnwidgets.views.page.contents import LEVEL, Archive, Choice, answers_of, filled
from attnwidgets.views.page.escaping import base64_text, json_text, safe_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnwidgets.views.base.menu import Entry
    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.store import TileStore

BUDGET = 10_000_000
"""Bytes a page may have when nothing else is said."""

_STYLE = """
:root{color-scheme:light dark}
body{margin:0;background:Canvas;color:CanvasText;font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1200px;margin:0 auto;padding:16px clamp(12px,3vw,32px)}
h1{font-size:1.25rem;font-weight:600;margin:0 0 12px;overflow-wrap:anywhere}
h2{font-size:1.05rem;font-weight:600;margin:32px 0 8px;overflow-wrap:anywhere}
nav ul{display:flex;flex-wrap:wrap;gap:4px 16px;margin:0;padding:0;list-style:none}
a{color:inherit}
.aw-view{margin:0 0 24px}
footer{font-size:.8rem;opacity:.75}
"""


def to_html(
    views: View | Sequence[View],
    path: str | Path,
    *,
    title: str | None = None,
    headings: Sequence[str] = (),
    budget: int = BUDGET,
    heads: Sequence[int | str] | str = "all",
    layers: Sequence[int] | str = "all",
) -> Path:
    """Write views as one HTML file that opens anywhere: no kernel, no network; linked views stay linked.

    Small maps come whole. What would make the page larger than `budget` is left out, largest maps first,
    with a note in the page; thumbnails and the selected matrices always come. The map that a view was given
    and the methods that an Explorer was given by name are computed where they are not yet; of what was
    chosen from an Explorer's menu comes what was computed.

    Args:
        views: One view, or several, from top to bottom.
        path: The file to write; it is replaced once the page is whole.
        title: Title of the page, as text; by default the first view's title, or what it shows.
        headings: One for each view, as text, with a list of links to them at the top; none by default.
        budget: Bytes the page may have.
        heads: Heads of large maps to put in: numbers, "mean", "max"; "all": every one while the budget lasts.
        layers: Layers of large maps to put in, by number, or "all".

    Returns:
        The path, with the page's size printed at its foot.

    Raises:
        IndexError: A layer or head that no view has; the message names the range.
        ValueError: `heads` or `layers` is another string than "all", there are no views, or `headings` are
            not as many as they.
        FileNotFoundError: The folder to write into does not exist.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.to_html([aw.Heatmap(trace), aw.TokenStrip(trace)], "cat.html", title="A cat").name
        'cat.html'
    """
    from attnwidgets.views.base.view import View as BaseView

    shown = list(views) if isinstance(views, Iterable) else [views]
    if not shown or not all(isinstance(view, BaseView) for view in shown):
        raise ValueError("to_html() takes one view or a list of views, such as aw.Explorer(trace).")
    headings = [headings] if isinstance(headings, str) else list(headings)
    if headings and len(headings) != len(shown):
        raise ValueError(
            f"headings has {len(headings)} for {len(shown)} views: give one for each view, or none."
        )
    choice = Choice.of(shown, heads, layers)
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path {str(path)!r} lies in a folder that does not exist; make {str(target.parent)!r} first."
        )
    for view in shown:
        view.complete(choice.layers)
    write_bytes(target, _page(shown, title, headings, budget, choice).encode())
    return target


def _page(
    views: Sequence[View], title: str | None, headings: Sequence[str], budget: int, choice: Choice
) -> str:
    from attnwidgets._version import __version__
    from attnwidgets.views.wire.runtime import bundle
    from attnwidgets.views.wire.stub import COMMON_PARTS

    parts = sorted({name for view in views for name in (*view.PARTS, *COMMON_PARTS)})
    code = ",".join(bundle(f"{name}.js").strip() for name in parts)
    script = f"globalThis.awParts=[{code}];{bundle('standalone.js')}"
    script = re.sub(r"<(?=/script|!--)", r"\\x3c", script, flags=re.IGNORECASE)
    named = (
        title
        or next((view.options["title"] for view in views if view.options["title"]), "")
        or _heading(views)
    )
    models, order, stores = _models(views)
    blobs: dict[str, str] = {}
    for name, entry in stores.items():
        blobs[f"aw-data-{name}"] = base64_text(zlib.compress(entry["eager"], LEVEL))
    spent = len(script) + sum(map(len, blobs.values())) + len(json_text({"models": models})) + 4000
    archives: dict[str, Archive] = {}
    answers, told, untold = answers_of(views, order, budget - spent)
    blobs |= told
    spent += sum(map(len, told.values())) + len(json_text(answers))
    for name, entry in stores.items():
        share = (budget - spent) // (len(stores) - len(archives))
        archives[name] = filled(entry, choice, share)
        blobs[f"aw-tiles-{name}"] = base64_text(b"".join(archives[name].parts))
        spent += len(blobs[f"aw-tiles-{name}"]) + len(
            json_text([archives[name].places, archives[name].thumbs])
        )
    state = {
        "version": 1,
        "models": models,
        "views": order,
        "archive": {name: archive.places for name, archive in archives.items()},
        "answers": answers,
        "thumbs": {name: archive.thumbs for name, archive in archives.items()},
    }
    left_out = sum(archive.left_out for archive in archives.values())
    kept = sum(len(archive.places) for archive in archives.values())
    kept += sum(len(entry["state"]["header"]["tiles"]) for entry in stores.values())
    note = (
        ({0: "", 1: "The one matrix is in it."}.get(kept, f"All {kept:,} matrices are in it."))
        if not left_out
        else f"It holds {kept:,} of {kept + left_out:,} matrices{_thumbs_words(stores)}; "
        "the others were left out for its size, and need the notebook."
    )
    missing = sum(archive.not_computed for archive in archives.values())
    if missing:
        note += f" {missing:,} {'layer was' if missing == 1 else 'layers were'} not computed."
    if untold:
        note += f" {untold:,} answers were left out for its size, and need the notebook."
    data = "\n".join(
        f'<script type="application/octet-stream;base64" id="{name}">{blob}</script>'
        for name, blob in blobs.items()
    )
    # Only our own script may run and nothing may be loaded: whatever a text holds, it stays text.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:"
    )
    places = _places(order, headings)
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{safe_text(named)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{safe_text(named)}</h1>
{places}
<footer>Standalone page of attnwidgets {__version__}, \0SIZE\0, works offline. {note}</footer>
</main>
<script type="application/json" id="aw-state">{json_text(state)}</script>
{data}
<script type="module">{script}</script>
</body>
</html>
"""
    page = well_formed(page)
    return page.replace("\0SIZE\0", f"{len(page.encode()) / 1e6:.2f} MB")


def _thumbs_words(stores: Mapping[str, Mapping[str, Any]]) -> str:
    """Return which thumbnails a page holds, in words; those of a large map only in the unit it opens in."""
    if not any(entry["overview"] for entry in stores.values()):
        return ""
    sources = [source for entry in stores.values() for source in entry["sources"]]
    some = {source.unit for source in sources if source.large and source.heads is not None}
    return " and all thumbnails" if len(some) < 2 else " and the thumbnails of what it opens with"  # noqa: PLR2004


def _places(order: Sequence[str], headings: Sequence[str]) -> str:
    """Return where the views are drawn, under their headings, which are linked to."""
    places = [f'<div class="aw-view" data-model="{name}"></div>' for name in order]
    if not headings:
        return "\n".join(places)
    named = list(zip(order, map(safe_text, headings), places, strict=True))
    links = "\n".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in named)
    sections = "\n".join(f'<h2 id="{name}">{heading}</h2>\n{place}' for name, heading, place in named)
    return f'<nav aria-label="views"><ul>\n{links}\n</ul></nav>\n{sections}'


def _models(views: Sequence[View]) -> tuple[dict[str, Any], list[str], dict[str, dict[str, Any]]]:
    """Return the models' states by short name, the views' names in order, and what each store holds."""
    from attnwidgets.views.wire.eager import Pack, opening_first
    from attnwidgets.views.wire.header import describe, opening_matrix

    models: dict[str, Any] = {}
    names: dict[int, str] = {}
    stores: dict[str, dict[str, Any]] = {}
    order = []

    def name_of(kind: str, widget: Any) -> str:
        count = sum(name.startswith(kind) for name in names.values())
        return names.setdefault(id(widget), f"{kind}{count}")

    for view in views:
        known = id(view.store) in names
        store, selection = name_of("store", view.store), name_of("selection", view.selection)
        if not known:
            held = _sources(views, view.store)
            place = opening_matrix(held, (view.selection.layer, view.selection.head))
            overview = any(one.SHOWS_ALL_HEADS for one in views if one.store is view.store)
            packed = opening_first(held, view.selection.unit)
            if packed and packed[0].large:
                packed[0].keep_layers()
            # Thumbnails of a large map lie beside the other matrices, all of them.
            pack = Pack(packed, place, overview=overview and not (packed and packed[0].large))
            header = describe(held, pack, _menu(views, view.store))
            stores[store] = {
                "sources": held,
                "eager": pack.data,
                "state": {"header": header},
                "selection": view.selection,
                "overview": overview,
            }
            models[store] = {"kind": "store", "state": {"header": header}}
        models[selection] = {"kind": "selection", "state": _selection_state(view.selection)}
        name = name_of("view", view)
        order.append(name)
        models[name] = {
            "kind": "view",
            "view": view.name,
            "state": {
                "runtime": "",
                "store": f"anywidget:{store}",
                "selection": f"anywidget:{selection}",
                "options": dict(view.options),
            },
        }
    return models, order, stores


def _selection_state(selection: Any) -> dict[str, Any]:
    names = (
        "layer",
        "head",
        "unit",
        "method",
        "stack",
        "pinned",
        "target",
        "foil",
        "feature",
        "interventions",
    )
    state = selection.get_state(key=names)
    return {**{name: state[name] for name in names}, "hover": None}


def _sources(views: Sequence[View], store: TileStore) -> list[Source]:
    """Return only what these views show: an assignment's page must not hold its answer."""
    found: dict[str, Source] = {}
    for view in views:
        if view.store is store:
            found |= {source.id: source for source in view.sources()}
    return list(found.values())


def _menu(views: Sequence[View], store: TileStore) -> dict[str, Entry]:
    """Return what these views offer and the page does not hold, with the reason."""
    keys = {key for view in views if view.store is store for key in view.options["methods"]}
    return {
        key: replace(entry, refusal=entry.refusal or NEEDS_KERNEL)
        for key, entry in store.menu.items()
        if key in keys
    }


def _heading(views: Sequence[View]) -> str:
    """Return what the first view shows, in words."""
    header = views[0].store.header
    model, text = header.get("model", ""), header.get("text", "").strip()
    short = text if len(text) <= 80 else text[:79] + "…"  # noqa: PLR2004 - a line
    return " · ".join(filter(None, (model.rsplit("/", 1)[-1], short))) or views[0].name
