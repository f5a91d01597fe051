"""The contents of a standalone page: matrices, thumbnails and answers, up to its size limit."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from attnwidgets._progress import progress
from attnwidgets._selecting import pick
from attnwidgets.views.page.script import base64_text, json_size
from attnwidgets.views.wire.handlers import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.views.base.view import View
    from attnwidgets.views.page.computed import PageMatrix
    from attnwidgets.views.wire.sources import Source

LEVEL = 6
"""Compression level."""
_DESCRIBED = 200  # bytes of the description of a matrix, at most
_OVERVIEW = 2  # matrices from which on thumbnails give an overview
_FOR_HEADS = 0.85  # of the room, at most, for heads from which other matrices are computed


@dataclass(frozen=True)
class Choice:
    """The heads and layers that a page contains; None: all."""

    heads: frozenset[int | str] | None
    layers: frozenset[int] | None

    @classmethod
    def of(
        cls, views: Sequence[View], heads: Sequence[int | str] | str, layers: Sequence[int] | str
    ) -> Choice:
        """Return the choice from the arguments of `to_html`.

        Raises:
            ValueError: A string is not "all".
            IndexError: No view has such a head or layer.
        """
        from attnwidgets.views.wire.axes import span
        from attnwidgets.views.wire.reader import REDUCTIONS

        sources = [source for view in views for source in view.sources()]
        known_heads = sorted({number for source in sources for number in source.heads or ()})
        known_layers = sorted({number for source in sources for number in source.layers})
        for name, given in (("heads", heads), ("layers", layers)):
            if isinstance(given, str) and given != "all":
                raise ValueError(f"{name}={given!r} is not 'all'; for a single one, give [{given!r}].")
        for head in () if isinstance(heads, str) else heads:
            if head not in {*known_heads, *REDUCTIONS}:
                raise IndexError(f"heads: {head!r} is not one of {span(tuple(known_heads))}, 'mean', 'max'.")
        return cls(
            None if isinstance(heads, str) else frozenset(heads),
            None if isinstance(layers, str) else frozenset(pick(layers, known_layers, "layers: layer")),
        )

    def takes(self, layer: int, head: int | str) -> bool:
        """Return whether a matrix was chosen."""
        in_heads = self.heads is None or head == "-" or head in self.heads
        return in_heads and (self.layers is None or layer in self.layers)


@dataclass
class Archive:
    """The tiles and thumbnails of a store that are not among its eager bytes.

    Equal bytes are stored once: `thumbs` and `tiles` describe each entry, with its offset and length.
    """

    thumbs: list[dict[str, Any]] = field(default_factory=list)
    tiles: list[dict[str, Any]] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    length: int = 0
    left_out: int = 0
    repeated: int = 0  # tiles that are among the eager bytes as well, for others to be computed from
    not_computed: Counter[str] = field(default_factory=Counter)  # layers, by the title of their map
    _offsets: dict[bytes, int] = field(default_factory=dict)

    def add(self, entries: list[dict[str, Any]], meta: dict[str, Any], data: bytes) -> None:
        """Append bytes unless they are stored already, and their description, offset and length to a list."""
        entries.append(
            {**meta, "offset": self._offsets.get(data, self.length if data else 0), "length": len(data)}
        )
        if self.added(data):
            self._offsets[data] = self.length
            self.parts.append(data)
            self.length += len(data)

    def added(self, data: bytes) -> int:
        """Return by how many bytes these make it longer: 0 for equal maps, as of words of a token each."""
        return 0 if data in self._offsets else len(data)


def filled(entry: dict[str, Any], choice: Choice, room: int) -> Archive:
    """Return all thumbnails, and the tiles that fit into `room` bytes of base64, most important first."""
    archive = Archive()
    main = selected_source(entry["sources"], entry["selection"])
    _add_thumbnails(archive, entry, main)
    tiles = Tiles(archive, entry, choice, room)
    tiles.add_heads()
    tiles.add_others(main)
    return archive


def _add_thumbnails(archive: Archive, entry: dict[str, Any], main: Source | None) -> None:
    from attnwidgets.views.wire.thumbnails import thumbnails

    sent = {thumbs["source"] for thumbs in entry["state"]["header"]["thumbs"]}
    shown = sorted(entry["special"])
    for source in entry["sources"]:
        grid = len(source.layers) * len(source.heads or (0,))
        ready = source.ready
        if source.unit == source.explanation.unit:
            archive.not_computed[source.title] += len(source.layers) - len(ready)
        ranged = not source.stochastic and not source.large
        is_shown = (entry["overview"] or ranged) and (not source.large or source is main)
        is_missing = is_shown and grid >= _OVERVIEW and ready and source.id not in sent
        kinds = {special and source.has_special for special in shown} if is_missing else ()
        for special in sorted(kinds):
            pooled = thumbnails(source, special=special)
            if pooled is not None:
                archive.add(archive.thumbs, pooled.meta(), zlib.compress(pooled.data, LEVEL))


class Tiles:
    """Adds tiles to an archive, up to `room` bytes of base64."""

    def __init__(self, archive: Archive, entry: dict[str, Any], choice: Choice, room: int) -> None:
        from attnwidgets.views.page.computed import Computed

        self._archive = archive
        self._sources: Sequence[Source] = entry["sources"]
        self._selection = entry["selection"]
        self._eager = {(t["source"], t["layer"], t["head"]) for t in entry["state"]["header"]["tiles"]}
        self._choice = choice
        self._room = room
        self._computed = Computed(entry["sources"])

    def add_heads(self) -> None:
        """Add heads from which the page's script computes other matrices, if all of them fit, and these."""
        from attnwidgets.views.page.computed import numbered

        for base in self._computed.bases():
            heads = [
                (layer, head)
                for layer in sorted(base.ready, key=lambda layer: abs(layer - self._selection.layer))
                for head in numbered(base, layer)
                if self._choice.takes(layer, head)
            ]
            expected = self._computed.expected_bytes(base, len(heads))
            if (self._archive.length + expected) * 4 / 3 < _FOR_HEADS * self._room:
                for layer, head in progress(heads, "heads of the page"):
                    added = self._include(self._computed.entry(base, layer, head))
                    self._archive.repeated += added and (base.id, layer, head) in self._eager
        self._add_computed()

    def add_others(self, main: Source | None) -> None:
        """Add the other tiles, and those that can be computed from them."""
        from attnwidgets.views.wire.reader import REDUCTIONS

        full = False
        ranked = list(_ranked(self._sources, main, self._selection))
        for source, layer, head in progress(ranked, "matrices of the page"):
            at = source.id, layer, head
            if at in self._eager or self._computed.has(at):
                continue
            # Of a long map that the page does not open with, only single heads in its first unit are read.
            is_aside = source.long and source is not main
            is_costly = is_aside and (source.unit != source.explanation.unit or head in REDUCTIONS)
            if is_costly or full or not self._choice.takes(layer, head):
                self._archive.left_out += 1
            elif head in source.heads_of_tiles(layer) and not self._include(
                self._computed.entry(source, layer, head)
            ):
                full = True
                self._archive.left_out += 1
        self._archive.left_out -= self._add_computed()

    def _include(self, matrix: PageMatrix) -> bool:
        """Add a matrix if it fits; return whether it does."""
        archive = self._archive
        size = archive.length + archive.added(matrix.data)
        if size * 4 / 3 + _DESCRIBED * (len(archive.tiles) + 1) > self._room:
            return False
        archive.add(archive.tiles, matrix.meta, matrix.data)
        self._computed.add(matrix)
        return True

    def _add_computed(self) -> int:
        """Add the matrices that can be computed from those of the archive; return how many it lacked."""
        lacked = 0
        for matrix in self._computed.recipes():
            if not self._include(matrix):
                break
            is_eager = matrix.address in self._eager
            self._archive.repeated += is_eager
            lacked += not is_eager
        return lacked


def selected_source(sources: Sequence[Source], selection: Any) -> Source | None:
    """Return the source that a selection names, or the first."""
    fields = selection.method, selection.stack, selection.unit
    matching = (source for source in sources if (source.method, source.stack, source.unit) == fields)
    return next(matching, None) or next(iter(sources), None)


def _ranked(
    sources: Sequence[Source], main: Source | None, selection: Any
) -> Iterator[tuple[Source, int, int | str]]:
    """Yield every tile: the selected, means over heads, small sources, layers near the selected layer.

    Large maps in a unit other than their first come last, and none of their layers is read to learn its
    heads.
    """
    from attnwidgets.views.wire.reader import REDUCTIONS

    def rank(at: tuple[Source, int, int | str]) -> tuple[Any, ...]:
        source, layer, head = at
        rows, cols = source.shape
        selected = source.method == selection.method and layer == selection.layer and head == selection.head
        return (
            not (selected and source.unit == selection.unit),
            source.large and source is not main,
            source.large and source is not main and source.unit != source.explanation.unit,
            # A reduction reads all heads.
            head in REDUCTIONS if source.long else head not in {"-", "mean"},
            # Few matrices of a long text fit: prefer those that the slider leads to.
            source.long and head != selection.head,
            rows * cols,
            abs(layer - selection.layer),
        )

    def heads_of(source: Source, layer: int) -> tuple[int | str, ...]:
        if source.long or not source.large or source.heads is None:
            return source.heads_of_tiles(layer)
        return (*source.heads, *REDUCTIONS)

    everything = [(s, layer, head) for s in sources for layer in s.ready for head in heads_of(s, layer)]
    yield from sorted(everything, key=rank)


def answers_of(
    views: Sequence[View], names: Sequence[str], room: int
) -> tuple[dict[str, Any], dict[str, str], int]:
    """Return each view's answers, their bytes by element id, and how many answers did not fit.

    The answers that views open with come first. Then the views take turns in half of the remaining `room`
    bytes, as matrices need room, too: when the next answer of a view does not fit, its others are left out.
    Of a refused answer the page holds the reason, which the view reports as it does with a kernel.
    """
    omitted = 0
    full: set[str] = set()
    archives = {name: Archive() for name in names}
    answers: dict[str, Any] = {name: [] for name in names}
    first, others = _in_turns(views, names)
    for number, (name, (topic, args, answer)) in enumerate(
        progress([*first, *others], "answers of the page")
    ):
        if number == len(first):
            room //= 2
        if name in full:
            omitted += 1
            continue
        try:
            meta, buffers = answer()
        except ValueError as error:  # of a model that cannot answer, too
            answers[name].append({"topic": topic, "args": args, "refused": words(error)})
            continue
        packed = [zlib.compress(data, LEVEL) for data in buffers]
        size = sum(map(len, packed)) * 4 // 3 + json_size([topic, args, meta]) + 60 * len(packed)
        if size > room:
            full.add(name)
            omitted += 1
            continue
        room -= size
        buffers_of: list[dict[str, Any]] = []
        for data in packed:
            archives[name].add(buffers_of, {}, data)
        answers[name].append({"topic": topic, "args": args, "meta": meta, "buffers": buffers_of})
    with_answers = {name: included for name, included in answers.items() if included}
    return (
        with_answers,
        {f"aw-tiles-{name}": base64_text(b"".join(archives[name].parts)) for name in with_answers},
        omitted,
    )


def _in_turns(
    views: Sequence[View], names: Sequence[str]
) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Return the answers with the names of their views: those at the opening, and the others in turns."""
    first, rest = [], []
    for view, name in zip(views, names, strict=True):
        opening = view.requests.opening_for_page()
        listed = [(name, item) for item in view.requests.for_page()]
        first += [item for item in listed if item[1][:2] in opening]
        rest.append([item for item in listed if item[1][:2] not in opening])
    return first, [item for turn in zip_longest(*rest) for item in turn if item is not None]
