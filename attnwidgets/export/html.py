"""Standalone pages: views in one file that needs neither kernel nor network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._progress import progress
from attnwidgets.views.menu import NEEDS_KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.views.base import View
    from attnwidgets.views.menu import Entry
    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.store import TileStore

BUDGET = 10_000_000
"""Bytes a page may have when nothing else is said."""

_LEVEL = 6
_OVERVIEW = 2  # matrices of which thumbnails are an overview: one is none
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
        path: The file to write; it is replaced.
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
    """
    from attnwidgets.views.base import View as BaseView

    shown = [views] if isinstance(views, BaseView) else list(views)
    if not shown or not all(isinstance(view, BaseView) for view in shown):
        raise ValueError("to_html() takes one view or a list of views, such as aw.Explorer(trace).")
    headings = [headings] if isinstance(headings, str) else list(headings)
    if headings and len(headings) != len(shown):
        raise ValueError(
            f"headings has {len(headings)} for {len(shown)} views: give one for each view, or none."
        )
    choice = _Choice.of(shown, heads, layers)
    for view in shown:
        view.complete(choice.layers)
    target = Path(path)
    target.write_text(_page(shown, title, headings, budget, choice), encoding="utf-8")
    return target


@dataclass(frozen=True)
class _Choice:
    """Heads and layers asked for; None: all."""

    heads: frozenset[int | str] | None
    layers: frozenset[int] | None

    @classmethod
    def of(
        cls, views: Sequence[View], heads: Sequence[int | str] | str, layers: Sequence[int] | str
    ) -> _Choice:
        from attnwidgets.views.wire.sources import REDUCTIONS, span

        sources = [source for view in views for source in view.sources()]
        known_heads = sorted({n for s in sources for n in s.heads or ()})
        known_layers = sorted({n for s in sources for n in s.layers})
        for name, given in (("heads", heads), ("layers", layers)):
            if isinstance(given, str) and given != "all":
                raise ValueError(f"{name}={given!r} is neither 'all' nor a list; for one, give [{given!r}].")
        for head in () if isinstance(heads, str) else heads:
            if head not in {*known_heads, *REDUCTIONS}:
                raise IndexError(f"heads: {head!r} is not one of {span(tuple(known_heads))}, 'mean', 'max'.")
        for layer in () if isinstance(layers, str) else layers:
            if layer not in known_layers:
                raise IndexError(
                    f"layers: {layer!r} is out of range: the layers are {span(tuple(known_layers))}."
                )
        return cls(
            None if isinstance(heads, str) else frozenset(heads),
            None if isinstance(layers, str) else frozenset(layers),
        )

    def takes(self, layer: int, head: int | str) -> bool:
        in_heads = self.heads is None or head == "-" or head in self.heads
        return in_heads and (self.layers is None or layer in self.layers)


@dataclass
class _Archive:
    """The tiles and thumbnails of one store that do not lie in its eager bytes."""

    thumbs: list[dict[str, Any]] = field(default_factory=list)
    places: list[dict[str, Any]] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    length: int = 0
    left_out: int = 0
    not_computed: int = 0

    def add(self, places: list[dict[str, Any]], meta: dict[str, Any], data: bytes) -> None:
        places.append({**meta, "offset": self.length, "length": len(data)})
        self.parts.append(data)
        self.length += len(data)


def _page(
    views: Sequence[View], title: str | None, headings: Sequence[str], budget: int, choice: _Choice
) -> str:
    from attnwidgets import __version__
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
        blobs[f"aw-data-{name}"] = _base64(zlib.compress(entry["eager"], _LEVEL))
    spent = len(script) + sum(map(len, blobs.values())) + len(_json({"models": models})) + 4000
    archives: dict[str, _Archive] = {}
    answers, told, untold = _answers(views, order, budget - spent)
    blobs |= told
    spent += sum(map(len, told.values())) + len(_json(answers))
    for name, entry in stores.items():
        share = (budget - spent) // (len(stores) - len(archives))
        archives[name] = _fill(entry, choice, share)
        blobs[f"aw-tiles-{name}"] = _base64(b"".join(archives[name].parts))
        spent += len(blobs[f"aw-tiles-{name}"]) + len(_json([archives[name].places, archives[name].thumbs]))
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
        else f"It holds {kept:,} of {kept + left_out:,} matrices and all thumbnails; "
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
<title>{_text(named)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{_text(named)}</h1>
{places}
<footer>Standalone page of attnwidgets {__version__}, \0SIZE\0, works offline. {note}</footer>
</main>
<script type="application/json" id="aw-state">{_json(state)}</script>
{data}
<script type="module">{script}</script>
</body>
</html>
"""
    return page.replace("\0SIZE\0", f"{len(page.encode()) / 1e6:.2f} MB")


def _places(order: Sequence[str], headings: Sequence[str]) -> str:
    """Return where the views are drawn, under their headings, which are linked to."""
    places = [f'<div class="aw-view" data-model="{name}"></div>' for name in order]
    if not headings:
        return "\n".join(places)
    named = list(zip(order, map(_text, headings), places, strict=True))
    links = "\n".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in named)
    sections = "\n".join(f'<h2 id="{name}">{heading}</h2>\n{place}' for name, heading, place in named)
    return f'<nav aria-label="views"><ul>\n{links}\n</ul></nav>\n{sections}'


def _models(views: Sequence[View]) -> tuple[dict[str, Any], list[str], dict[str, dict[str, Any]]]:
    """Return the models' states by short name, the views' names in order, and what each store holds."""
    from attnwidgets.views.wire.eager import Pack
    from attnwidgets.views.wire.header import describe, looked_at

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
            pack = Pack(held, looked_at(held, (view.selection.layer, view.selection.head)))
            header = describe(held, pack, _menu(views, view.store))
            stores[store] = {
                "sources": held,
                "eager": pack.data,
                "state": {"header": header},
                "selection": view.selection,
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


def _answers(
    views: Sequence[View], names: Sequence[str], room: int
) -> tuple[dict[str, Any], dict[str, str], int]:
    """Return what each view answers in a page, by element id the bytes of it, and what had no room.

    A view names first what matters most: from where `room` bytes are spent on, answers are left out.
    """
    untold = 0
    answers: dict[str, Any] = {}
    blobs: dict[str, str] = {}
    for view, name in zip(views, names, strict=True):
        archive = _Archive()
        told = []
        for topic, args, answer in progress(view.questions_for_page(), "answers of the page"):
            if room < 0:
                untold += 1
                continue
            meta, buffers = answer()
            packed = [zlib.compress(data, _LEVEL) for data in buffers]
            room -= sum(map(len, packed)) * 4 // 3 + len(_json([topic, args, meta])) + 60 * len(packed)
            if room < 0:
                untold += 1
                continue
            places: list[dict[str, Any]] = []
            for data in packed:
                archive.add(places, {}, data)
            told.append({"topic": topic, "args": args, "meta": meta, "buffers": places})
        if told:
            answers[name] = told
            blobs[f"aw-tiles-{name}"] = _base64(b"".join(archive.parts))
    return answers, blobs, untold


def _selection_state(selection: Any) -> dict[str, Any]:
    names = (
        "layer",
        "head",
        "unit",
        "method",
        "stream",
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


def _fill(entry: dict[str, Any], choice: _Choice, room: int) -> _Archive:
    """Return all thumbnails, and the tiles that fit into `room` bytes of base64, most looked at first."""
    from attnwidgets.views.wire.eager import OVERVIEW_VALUES
    from attnwidgets.views.wire.thumbnails import thumbnails

    archive = _Archive()
    sent = {thumbs["source"] for thumbs in entry["state"]["header"]["thumbs"]}
    for source in entry["sources"]:
        grid = len(source.layers) * len(source.heads or (0,))
        ready = source.ready
        if source.unit == source.explanation.unit:
            archive.not_computed += len(source.layers) - len(ready)
        seen = source.size <= OVERVIEW_VALUES or source is entry["sources"][0]
        made = thumbnails(source) if seen and ready and grid >= _OVERVIEW and source.id not in sent else None
        if made is not None:
            archive.add(archive.thumbs, made.meta(), zlib.compress(made.data, _LEVEL))
    eager = {(t["source"], t["layer"], t["head"]) for t in entry["state"]["header"]["tiles"]}
    full = False
    for source, layer, head in _ranked(entry["sources"], entry["selection"]):
        if (source.id, layer, head) in eager:
            continue
        if full or not choice.takes(layer, head):
            archive.left_out += 1
            continue
        if head not in source.heads_of_tiles(layer):
            continue
        tile = source.tile(layer, head)
        data = zlib.compress(tile.data, _LEVEL)
        if (archive.length + len(data)) * 4 / 3 + 200 * (len(archive.places) + 1) > room:
            full = True
            archive.left_out += 1
            continue
        archive.add(archive.places, tile.meta(), data)
    return archive


def _ranked(sources: Sequence[Source], selection: Any) -> Iterator[tuple[Source, int, int | str]]:
    """Yield every tile: the selected one, means over heads, small sources, layers near the selected one.

    What a large map is in another unit comes last, and no layer of one is read to learn its heads.
    """
    from attnwidgets.views.wire.eager import OVERVIEW_VALUES
    from attnwidgets.views.wire.sources import REDUCTIONS

    def rank(at: tuple[Source, int, int | str]) -> tuple[Any, ...]:
        source, layer, head = at
        rows, cols = source.shape
        selected = source.method == selection.method and layer == selection.layer and head == selection.head
        return (
            not (selected and source.unit == selection.unit),
            source.size > OVERVIEW_VALUES and source.unit != source.explanation.unit,
            head not in {"-", "mean"},
            rows * cols,
            abs(layer - selection.layer),
        )

    def heads_of(source: Source, layer: int) -> tuple[int | str, ...]:
        if source.size <= OVERVIEW_VALUES or source.heads is None:
            return source.heads_of_tiles(layer)
        return (*source.heads, *REDUCTIONS)

    everything = [(s, layer, head) for s in sources for layer in s.ready for head in heads_of(s, layer)]
    yield from sorted(everything, key=rank)


def _heading(views: Sequence[View]) -> str:
    """Return what the first view shows, in words."""
    header = views[0].store.header
    model, text = header.get("model", ""), header.get("text", "").strip()
    short = text if len(text) <= 80 else text[:79] + "…"  # noqa: PLR2004 - a line
    return " · ".join(filter(None, (model.rsplit("/", 1)[-1], short))) or views[0].name


def _json(value: Any) -> str:
    # `<` would end the script element; the two separators are line ends to JavaScript but not to JSON.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


_CONTROLS = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: "␡",
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C], "�"),
}


def _text(text: str) -> str:
    """Return text as HTML: escaped, control characters visible, unable to turn its surroundings around."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8").translate(_CONTROLS))
