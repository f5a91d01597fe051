"""Packing: views as the models and bytes that a page without a kernel holds."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.text.display import well_formed
from attnwidgets.views.base.accepts import NEEDS_KERNEL
from attnwidgets.views.page.contents import LEVEL, Archive, answers_of, filled
from attnwidgets.views.page.other_texts import other_texts
from attnwidgets.views.page.script import base64_text, json_size, json_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from attnwidgets.views.base.accepts import Entry
    from attnwidgets.views.base.view import View
    from attnwidgets.views.page.contents import Choice
    from attnwidgets.views.page.live.files import ModelFiles
    from attnwidgets.views.page.other_texts import Group
    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.store import TileStore

_OPENING_BYTES = 32_000
"""Bytes of matrices that are unpacked before the first picture, beyond the opening matrix of a source."""


@dataclass(frozen=True)
class Live:
    """How models travel with a page in which they run.

    Attributes:
        weights: How their numbers are stored; see `to_html`.
        in_files: Whether all of them are in files next to the page, not only large ones.
    """

    weights: str = "auto"
    in_files: bool = False


@dataclass(frozen=True)
class Packed:
    """The models and bytes of a page's views.

    Attributes:
        state: The `Page` of js/src/host/standalone.ts; its `views` names the models of the given views.
        blobs: Compressed bytes as base64, by the id of the element that holds them.
        first: The ids of those that the page opens with.
        note: Which matrices, layers and answers are in it, in words.
        files: The models that travel in files next to the page.
    """

    state: dict[str, Any]
    blobs: dict[str, str]
    first: frozenset[str]
    note: str
    files: Sequence[ModelFiles] = ()

    def elements(self, *, first: bool) -> Iterator[str]:
        """Yield the elements that hold bytes: those that the page opens with, or the others."""
        for name, blob in self.blobs.items():
            if (name in self.first) == first:
                yield f'<script type="application/octet-stream;base64" id="{name}">{blob}</script>'

    def described(self) -> dict[str, Any]:
        """Return this as JSON can hold it."""
        return {"state": self.state, "blobs": self.blobs, "first": sorted(self.first)}


def pack(
    views: Sequence[View], choice: Choice, budget: int, prefix: str = "", *, live: Live | None = None
) -> Packed:
    """Return the models and bytes of views, after computing the maps that they were given.

    Args:
        views: The views of the page, from top to bottom, without those inside others.
        choice: The heads and layers of large maps to include.
        budget: How many bytes it may take, about.
        prefix: Beginning of the names of its models, if a page holds several packs.
        live: How the views' models travel with the page; None: they do not run in it.

    Raises:
        ValueError: With `live`, a model or a tokenizer cannot run in a page.
    """
    with_inner = list(dict.fromkeys([*views, *(inner for view in views for inner in view.nested())]))
    with other_texts(with_inner, live=live is not None) as groups:
        others = (other for group in groups for line in group.views for other in line if other is not None)
        everything = list(dict.fromkeys([*with_inner, *others]))
        for view in everything:
            view.complete(choice.layers)
        return _packed(everything, len(views), groups, budget, choice, prefix, live=live)


def _packed(
    views: Sequence[View],
    count: int,
    groups: Sequence[Group],
    budget: int,
    choice: Choice,
    prefix: str,
    *,
    live: Live | None,
) -> Packed:
    """Return the models and bytes of the first `count` views; the others stand for them with other texts."""
    models, order, stores = _models(views, prefix, count)
    name_of: dict[View | None, str] = dict(zip(views, order, strict=True))
    inside = [name_of[inner] for view in views[:count] for inner in view.nested()]
    at_once = {
        models[name]["state"]["store"].removeprefix("anywidget:") for name in (*order[:count], *inside)
    }
    texts = [
        {"shown": group.shown, "views": [[name_of.get(item) for item in line] for line in group.views]}
        for group in groups
    ]
    state: dict[str, Any] = {"version": 1, "models": models, "views": order[:count], "texts": texts}
    blobs: dict[str, str] = {}
    files: Sequence[ModelFiles] = ()
    if live is not None:
        from attnwidgets.views.page.live.packing import add_live

        given = groups, name_of, state, blobs, live.weights
        files = add_live(*given, in_files=live.in_files, prefix=prefix)
    media = {name: entry["media"] for name, entry in stores.items() if entry["media"] is not None}
    for store, model in media.items():
        name = models[store]["state"]["media"].removeprefix("anywidget:")
        blobs[f"aw-data-{name}"] = base64_text(zlib.compress(model.data, LEVEL))
        at_once |= {name} if store in at_once else set()
    for name, entry in stores.items():
        blobs[f"aw-data-{name}"] = base64_text(zlib.compress(entry["eager"], LEVEL))
        if name not in at_once:
            header = models[name]["state"].pop("header")
            blobs[f"aw-head-{name}"] = base64_text(
                zlib.compress(well_formed(json_text(header)).encode(), LEVEL)
            )
    spent = sum(map(len, blobs.values())) + json_size({"models": models}) + 4000
    archives: dict[str, Archive] = {}
    answers, answer_blobs, omitted = answers_of(views, order, budget - spent)
    blobs |= answer_blobs
    spent += sum(map(len, answer_blobs.values())) + json_size(answers)
    for name, entry in stores.items():
        share = (budget - spent) // (len(stores) - len(archives))
        archive = archives[name] = filled(entry, choice, share) if entry["reads"] else Archive()
        blob = blobs[f"aw-tiles-{name}"] = base64_text(b"".join(archive.parts))
        spent += len(blob) + json_size([archive.tiles, archive.thumbs])
    state |= {
        "archive": {name: archive.tiles for name, archive in archives.items()},
        "answers": answers,
        "thumbs": {name: archive.thumbs for name, archive in archives.items()},
    }
    first = frozenset(f"aw-data-{name}" for name in at_once)
    return Packed(state, blobs, first, _note(stores, archives.values(), omitted), files)


def _note(stores: Mapping[str, Mapping[str, Any]], archives: Iterable[Archive], omitted: int) -> str:
    """Return which matrices, layers and answers a page contains, in words, as HTML."""
    archives = list(archives)
    left_out = sum(archive.left_out for archive in archives)
    included = sum(len(archive.tiles) - archive.repeated for archive in archives)
    included += sum(len(entry["state"]["header"]["tiles"]) for entry in stores.values())
    missing = sum((archive.not_computed for archive in archives), Counter())  # without those of 0
    note = {0: "", 1: "The one matrix is in it."}.get(included, f"All {included:,} matrices are in it.")
    if left_out:
        note = (
            f"It holds {included:,} of {included + left_out:,} matrices{_thumbs_words(stores)}; "
            "the others were left out for its size, and need the notebook."
        )
    if missing:
        each = (f"{title} ({count:,} layer{'s' * (count != 1)})" for title, count in missing.items())
        note += f" Not computed: {escape(', '.join(each))}."
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


def _models(
    views: Sequence[View], prefix: str, count: int | None = None
) -> tuple[dict[str, Any], list[str], dict[str, dict[str, Any]]]:
    """Return the models' states by short name, the views' names in order, and the contents of each store.

    The first `count` views stand on the page; the others are shown inside these, or instead of them.
    """
    from attnwidgets.views.wire.header import Pack, describe, opening_first, opening_matrix

    models: dict[str, Any] = {}
    names: dict[int, str] = {}
    stores: dict[str, dict[str, Any]] = {}
    order = []

    def name_of(kind: str, widget: Any) -> str:
        count = sum(name.startswith(prefix + kind) for name in names.values())
        return names.setdefault(id(widget), f"{prefix}{kind}{count}")

    for view in views:
        is_known = id(view.store) in names
        store, selection = name_of("store", view.store), name_of("selection", view.selection)
        if not is_known:
            sources = _sources(views, view.store)
            matrix = opening_matrix(sources, (view.selection.layer, view.selection.head))
            linked = [other for other in views if other.store is view.store]
            overview = any(other.needs.thumbnails for other in linked)
            special = {other.shows_special for other in linked}
            packed = opening_first(sources, view.selection.unit)
            shown = {other.presentation.source.id for other in linked if other.sources()}
            # Long texts have large matrices: of those that no view opens with, none is unpacked at once.
            packed = [
                source
                for source in packed
                if source is packed[0] or source.id in shown or math.prod(source.shape) <= _OPENING_BYTES
            ]
            is_large = bool(packed) and packed[0].large
            if is_large:
                packed[0].keep_layers()
            # In the archive, with the other matrices: all thumbnails of a large map; of others, those that no
            # view opens with.
            room = Pack([], matrix)
            room.room_for_tiles = _OPENING_BYTES
            show = overview and not is_large
            reads = any(other.needs.matrices for other in linked)
            pack = Pack(packed, matrix, room, overview=show, special=special, shown=shown)
            if not reads:
                pack = Pack([], matrix)
            explains = view.store.explains
            header = describe(sources, pack, _menu(views, view.store), explains, computes=False)
            stores[store] = {
                "sources": sources,
                "eager": pack.data,
                "state": {"header": header},
                "selection": view.selection,
                "overview": overview,
                "reads": reads,
                "special": special,
                "media": view.store.media if any(other.needs.media for other in linked) else None,
            }
            models[store] = {"kind": "store", "state": {"header": header}}
            if stores[store]["media"] is not None:
                model = stores[store]["media"]
                media = name_of("media", model)
                models[store]["state"]["media"] = f"anywidget:{media}"
                models[media] = {"kind": "media", "state": {"media": model.media, "lengths": model.lengths}}
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
    for view, name in zip(views, order, strict=True):
        if view.inner:  # views that stand on the page themselves are not shown twice
            drawn = {id(other) for other in views[:count]}
            models[name]["state"]["options"]["inner"] = [
                inner.inside() | {"model": f"anywidget:{names[id(inner)]}"}
                for inner in view.inner
                if id(inner) not in drawn
            ]
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
    """Return only the sources of these views: the page of an assignment must not contain the solution."""
    shown = (source for view in views if view.store is store for source in view.sources())
    return list({source.id: source for source in shown}.values())


def _menu(views: Sequence[View], store: TileStore) -> dict[str, Entry]:
    """Return the methods that these views offer and the page does not contain, with the reason."""
    keys = {key for view in views if view.store is store for key in view.options["methods"]}
    return {
        key: replace(entry, refusal=entry.refusal or NEEDS_KERNEL)
        for key, entry in store.menu.items()
        if key in keys
    }
