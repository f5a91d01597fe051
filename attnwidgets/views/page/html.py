"""Standalone pages: one HTML file of views that needs neither kernel nor network."""

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
from attnwidgets.views.page.other_texts import other_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnwidgets.views.base.menu import Entry
    from attnwidgets.views.base.view import View
    from attnwidgets.views.page.other_texts import Group
    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.store import TileStore

BUDGET = 10_000_000
"""Default size limit of a page, in bytes."""

_OPENING_BYTES = 32_000
"""Bytes of matrices that are unpacked before the first picture, beyond the one a source opens with."""

_STYLE = """
:root{color-scheme:light dark}
body{margin:0;background:Canvas;color:CanvasText;font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1200px;margin:0 auto;padding:16px clamp(12px,3vw,32px)}
h1{font-size:1.25rem;font-weight:600;margin:0 0 12px;overflow-wrap:anywhere}
h2{font-size:1.05rem;font-weight:600;margin:32px 0 8px;overflow-wrap:anywhere}
nav ul{display:flex;flex-wrap:wrap;gap:4px 16px;margin:0;padding:0;list-style:none}
a{color:inherit}
.aw-view{margin:0 0 24px}
.aw-link-note{font-size:.8rem;margin:0 0 8px;overflow-wrap:anywhere}
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

    Small maps are included whole. Matrices that would make the page larger than `budget` are left out,
    largest maps first, with a note in the page; thumbnails and the selected matrices are always included. The
    map that a view was given, and the methods that an Explorer was given by name, are computed first; of
    methods chosen from an Explorer's menu, the layers computed so far are included. Of an Explorer of several
    texts, the page holds all of them, each unpacked when it is chosen.

    Args:
        views: One view, or several from top to bottom.
        path: The file to write; it is replaced once the page is complete.
        title: Title of the page, as text; by default the first view's title, or what it shows.
        headings: One heading for each view, as text, with a list of links to them at the top; empty: none.
        budget: Size limit of the page, in bytes.
        heads: Heads of large maps to include: numbers, "mean", "max"; "all": every one within the budget.
        layers: Layers of large maps to include, by number, or "all".

    Returns:
        The path, with the page's size printed at its foot.

    Raises:
        IndexError: No view has such a layer or head; the message names the range.
        ValueError: `heads` or `layers` is a string other than "all", there are no views, or the number of
            `headings` differs from that of the views.
        FileNotFoundError: The folder to write into does not exist.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.to_html([aw.Heatmap(trace), aw.TokenStrip(trace)], "cat.html", title="A cat").name
        'cat.html'
    """
    from attnwidgets.views.base.view import View as BaseView

    listed = list(views) if isinstance(views, Iterable) else [views]
    if not listed or not all(isinstance(view, BaseView) for view in listed):
        raise ValueError("to_html() takes one view or a list of views, such as aw.Explorer(trace).")
    headings = [headings] if isinstance(headings, str) else list(headings)
    if headings and len(headings) != len(listed):
        raise ValueError(
            f"headings has {len(headings)} for {len(listed)} views: give one for each view, or none."
        )
    choice = Choice.of(listed, heads, layers)
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path {str(path)!r} is in a folder that does not exist; make {str(target.parent)!r} first."
        )
    with other_texts(listed) as groups:
        others = (other for group in groups for line in group.views for other in line if other is not None)
        everything = list(dict.fromkeys([*listed, *others]))
        for view in everything:
            view.complete(choice.layers)
        page = _page(everything, len(listed), groups, title, headings, budget, choice)
    write_bytes(target, page.encode())
    return target


def _page(
    views: Sequence[View],
    count: int,
    groups: Sequence[Group],
    title: str | None,
    headings: Sequence[str],
    budget: int,
    choice: Choice,
) -> str:
    """Return the page of the first `count` views; the others stand for them with other texts."""
    from attnwidgets._version import __version__
    from attnwidgets.views.wire.runtime import bundle
    from attnwidgets.views.wire.stub import COMMON_PARTS

    parts = sorted({name for view in views for name in (*view.PARTS, *COMMON_PARTS)})
    code = ",".join(bundle(f"{name}.js").strip() for name in parts)
    script = f"globalThis.awParts=[{code}];{bundle('standalone.js')}"
    script = re.sub(r"<(?=/script|!--)", r"\\x3c", script, flags=re.IGNORECASE)
    titles = (view.options["title"] for view in views)
    title = title or next(filter(None, titles), "") or _default_title(views)
    models, order, stores = _models(views)
    name_of: dict[View | None, str] = dict(zip(views, order, strict=True))
    at_once = {models[name]["state"]["store"].removeprefix("anywidget:") for name in order[:count]}
    blobs = {}
    for name, entry in stores.items():
        blobs[f"aw-data-{name}"] = base64_text(zlib.compress(entry["eager"], LEVEL))
        if name not in at_once:
            header = models[name]["state"].pop("header")
            blobs[f"aw-head-{name}"] = base64_text(
                zlib.compress(well_formed(json_text(header)).encode(), LEVEL)
            )
    spent = len(script) + sum(map(len, blobs.values())) + len(json_text({"models": models})) + 4000
    archives: dict[str, Archive] = {}
    answers, answer_blobs, omitted = answers_of(views, order, budget - spent)
    blobs |= answer_blobs
    spent += sum(map(len, answer_blobs.values())) + len(json_text(answers))
    for name, entry in stores.items():
        share = (budget - spent) // (len(stores) - len(archives))
        archive = archives[name] = filled(entry, choice, share)
        blob = blobs[f"aw-tiles-{name}"] = base64_text(b"".join(archive.parts))
        spent += len(blob) + len(json_text([archive.places, archive.thumbs]))
    state = {
        "version": 1,
        "models": models,
        "views": order[:count],
        "texts": [
            {"shown": group.shown, "views": [[name_of.get(one) for one in line] for line in group.views]}
            for group in groups
        ],
        "archive": {name: archive.places for name, archive in archives.items()},
        "answers": answers,
        "thumbs": {name: archive.thumbs for name, archive in archives.items()},
    }
    note = _note(stores, archives.values(), omitted)
    # What a page opens with stands before the script, which draws it while the rest is still being read.
    elements: dict[bool, list[str]] = {True: [], False: []}
    for name, blob in blobs.items():
        element = f'<script type="application/octet-stream;base64" id="{name}">{blob}</script>'
        elements[name.startswith("aw-data-") and name.removeprefix("aw-data-") in at_once].append(element)
    opening, rest = map("\n".join, (elements[True], elements[False]))
    # Only this script may run, and nothing may be loaded: whatever a text contains, it stays text.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:"
    )
    places = _places(order[:count], headings)
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{safe_text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{safe_text(title)}</h1>
{places}
<footer>Standalone page of attnwidgets {__version__}, \0SIZE\0, works offline. {note}</footer>
</main>
<script type="application/json" id="aw-state">{json_text(state)}</script>
{opening}
<script type="text/javascript">{script}</script>
{rest}
</body>
</html>
"""
    page = well_formed(page)
    return page.replace("\0SIZE\0", f"{len(page.encode()) / 1e6:.2f} MB")


def _note(stores: Mapping[str, Mapping[str, Any]], archives: Iterable[Archive], omitted: int) -> str:
    """Return which matrices, layers and answers a page contains, in words."""
    left_out = sum(archive.left_out for archive in archives)
    included = sum(len(archive.places) for archive in archives)
    included += sum(len(entry["state"]["header"]["tiles"]) for entry in stores.values())
    missing = sum(archive.not_computed for archive in archives)
    note = {0: "", 1: "The one matrix is in it."}.get(included, f"All {included:,} matrices are in it.")
    if left_out:
        note = (
            f"It holds {included:,} of {included + left_out:,} matrices{_thumbs_words(stores)}; "
            "the others were left out for its size, and need the notebook."
        )
    if missing:
        note += f" {missing:,} {'layer was' if missing == 1 else 'layers were'} not computed."
    if omitted:
        note += f" {omitted:,} answers were left out for its size, and need the notebook."
    return note


def _thumbs_words(stores: Mapping[str, Mapping[str, Any]]) -> str:
    """Return which thumbnails a page contains, in words; of a large map only those in its opening unit."""
    if not any(entry["overview"] for entry in stores.values()):
        return ""
    sources = [source for entry in stores.values() for source in entry["sources"]]
    large_units = {source.unit for source in sources if source.large and source.heads is not None}
    return " and all thumbnails" if len(large_units) < 2 else " and the thumbnails of what it opens with"  # noqa: PLR2004


def _places(order: Sequence[str], headings: Sequence[str]) -> str:
    """Return the elements that views are drawn into, under their headings, with links to these."""
    places = [f'<div class="aw-view" data-model="{name}"></div>' for name in order]
    if not headings:
        return "\n".join(places)
    headed = list(zip(order, map(safe_text, headings), places, strict=True))
    links = "\n".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in headed)
    sections = "\n".join(f'<h2 id="{name}">{heading}</h2>\n{place}' for name, heading, place in headed)
    return f'<nav aria-label="views"><ul>\n{links}\n</ul></nav>\n{sections}'


def _models(views: Sequence[View]) -> tuple[dict[str, Any], list[str], dict[str, dict[str, Any]]]:
    """Return the models' states by short name, the views' names in order, and the contents of each store."""
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
        is_known = id(view.store) in names
        store, selection = name_of("store", view.store), name_of("selection", view.selection)
        if not is_known:
            sources = _sources(views, view.store)
            matrix = opening_matrix(sources, (view.selection.layer, view.selection.head))
            linked = [other for other in views if other.store is view.store]
            overview = any(other.SHOWS_ALL_HEADS for other in linked)
            special = {other.shows_special for other in linked}
            packed = opening_first(sources, view.selection.unit)
            is_large = bool(packed) and packed[0].large
            if is_large:
                packed[0].keep_layers()
            # All thumbnails of a large map are in the archive, with the other matrices.
            room = Pack([], matrix)
            room.room_for_tiles = _OPENING_BYTES
            pack = Pack(packed, matrix, room, overview=overview and not is_large, special=special)
            header = describe(sources, pack, _menu(views, view.store))
            stores[store] = {
                "sources": sources,
                "eager": pack.data,
                "state": {"header": header},
                "selection": view.selection,
                "overview": overview,
                "special": special,
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
                "options": _page_options(view),
            },
        }
    return models, order, stores


def _page_options(view: View) -> dict[str, Any]:
    """Return the options of a view in a page, where no text can be typed."""
    options = dict(view.options)
    if "texts" in options:
        options["texts"] = {**options["texts"], "refusal": NEEDS_KERNEL}
    return options


def _selection_state(selection: Any) -> dict[str, Any]:
    shown = ("layer", "head", "unit", "method", "stack", "feature", "interventions", "opening")
    names = (*shown, "pinned", "pins", "heads", "span", "target", "foil")
    state = selection.get_state(key=names)
    return {name: state[name] for name in names} | {"hover": None}


def _sources(views: Sequence[View], store: TileStore) -> list[Source]:
    """Return only what these views show: the page of an assignment must not contain the solution."""
    shown = (source for view in views if view.store is store for source in view.sources())
    return list({source.id: source for source in shown}.values())


def _menu(views: Sequence[View], store: TileStore) -> dict[str, Entry]:
    """Return what these views offer and the page does not contain, with the reason."""
    keys = {key for view in views if view.store is store for key in view.options["methods"]}
    return {
        key: replace(entry, refusal=entry.refusal or NEEDS_KERNEL)
        for key, entry in store.menu.items()
        if key in keys
    }


def _default_title(views: Sequence[View]) -> str:
    """Return what the first view shows, in words."""
    header = views[0].store.header
    model, text = header.get("model", ""), header.get("text", "").strip()
    if len(views[0].traces) > 1 and "texts" in views[0].options:
        text = f"{len(views[0].traces)} texts"
    short = text if len(text) <= 80 else text[:79] + "…"  # noqa: PLR2004 - a line
    return " · ".join(filter(None, (model.rsplit("/", 1)[-1], short))) or views[0].name
