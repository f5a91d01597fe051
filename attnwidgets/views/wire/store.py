"""The tile store: the numbers behind all views of one trace, sent on request."""

from __future__ import annotations

import dataclasses
import warnings
from threading import RLock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from traitlets import Bytes, Dict

from attnwidgets._errors import suggest
from attnwidgets._progress import Cancelled
from attnwidgets.views.base.accepts import best_for_predictions
from attnwidgets.views.wire.axes import (
    base_of,
    by_layer,
    divides,
    in_unit,
    is_by_layer,
    key_for_target,
    method_of,
    target_of,
    units_of,
)
from attnwidgets.views.wire.handlers import fault, reply, words
from attnwidgets.views.wire.header import Pack, describe, opening_first, opening_matrix
from attnwidgets.views.wire.jobs import Job, Jobs
from attnwidgets.views.wire.media import MediaModel
from attnwidgets.views.wire.reader import QUICK_VALUES, SLOW_VALUES
from attnwidgets.views.wire.runtime import SharedModel
from attnwidgets.views.wire.sources import Source, is_special, same
from attnwidgets.views.wire.widget import WidgetTrait

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnwidgets.tracing.trace import Trace
    from attnwidgets.views.base.accepts import Entry
    from attnwidgets.views.base.needs import Needs

    Answer = tuple[dict[str, Any], list[bytes]]
    Matrix = tuple[str, int, int | str]


class TileStore(SharedModel):
    """Holds explanations by method key, describes them in `header` and answers requests for their numbers.

    Requests arrive on a subshell, during a running cell: they only read what was recorded or computed, and
    take the lock only to look up a source. A remaining computation becomes a job of the main loop.
    """

    header = Dict().tag(sync=True, echo_update=False)
    eager = Bytes(b"").tag(sync=True, echo_update=False)
    # The runtime that computes without a kernel; empty until the browser asks for it; None for large models.
    stand_in: Any = Dict(None, allow_none=True).tag(sync=True, echo_update=False)
    media = WidgetTrait().tag(sync=True)

    def __init__(self) -> None:
        self._lock = RLock()
        self._name = uuid4().hex  # as a user of its media
        self._sources: dict[str, Source] = {}
        self._menu: dict[str, Entry] = {}
        self._targetable: dict[str, Entry] = {}
        self._units: dict[str, frozenset[str]] = {}
        self._holders: dict[str, set[str]] = {}
        self._used: set[tuple[str, str]] = set()
        self._first: tuple[int, int | str] = (0, "-")
        self._shown: dict[str, Matrix] = {}
        self._all_heads = False
        self._base: Pack | None = None
        self._overview = self._matrices = False
        self._special: set[bool] = set()
        self._opens: str | None = None
        super().__init__(stand_in=None)
        self._jobs = Jobs(self._reply)
        self.on_msg(self._answer)

    # -- contents ----------------------------------------------------------------------------------

    def sources(self) -> tuple[Source, ...]:
        """Return every source, in the order of registration."""
        with self._lock:
            return tuple(self._sources.values())

    @property
    def menu(self) -> dict[str, Entry]:
        """Methods that can be chosen, and those that cannot, by key; without those already computed."""
        with self._lock:
            computed = {source.method for source in self._sources.values()}
            return {key: entry for key, entry in self._menu.items() if key not in computed}

    def register(
        self,
        explanations: Sequence[Any],
        holder: str,
        needs: Needs,
        *,
        units: Sequence[str] = (),
        first: tuple[int | None, int | str | None] = (None, None),
        menu: Sequence[Entry] = (),
        targetable: Mapping[str, Entry] | None = None,
        special: bool = False,
        opens: str | None = None,
    ) -> list[str]:
        """Make explanations known to the browser; return their method keys, followed by those of the menu.

        An explanation that is registered already (same method, options and numbers) keeps its key, so that
        running a cell again adds nothing. If the main map is computed on demand, the layer that the view
        opens with is computed.

        Args:
            explanations: MixingMaps or Attributions.
            holder: Token of the view that shows them.
            needs: What that view needs.
            units: Only these units; empty: every unit an explanation can be read in.
            first: Layer and head that the view opens with.
            menu: Methods that the view computes when they are chosen.
            targetable: By name, methods among the explanations that can explain other targets.
            special: Whether it shows special tokens in the map.
            opens: The unit that it opens in; None: the first of them.
        """
        keys: list[str] = []
        before = self._contents()
        self._all_heads |= needs.all_heads
        self._overview |= needs.thumbnails
        self._matrices |= needs.matrices
        self._special.add(special)
        for index, explanation in enumerate(explanations):
            registered = self._registered(explanation)
            computed = explanation if registered is None else registered.explanation
            if index == 0:
                _compute_first(computed, first[0])
            if registered is not None:
                key = registered.method
            else:
                pairs = zip(explanations, keys, strict=False)
                parent = next((key for whole, key in pairs if _is_map_of(whole, explanation)), None)
                key = by_layer(parent) if parent else self._new_key_of(explanation)
            keys.append(key)
            self._hold(key, holder)
            entry = (targetable or {}).get(method_of(key))
            if entry is not None and not is_by_layer(key):
                with self._lock:
                    self._targetable.setdefault(base_of(key), entry)
            self._add(computed, key, units)
        for entry in menu:
            key = self._key_of(entry)
            if entry.takes_targets and not entry.refusal:
                with self._lock:
                    self._targetable[key] = entry
            names = [key, by_layer(key)] if "Attributions" in entry.method.returns else [key]
            keys.extend(names)
            for name in names:
                self._hold(name, holder)
            restricted = self._units.get(key, frozenset(units))
            self._units[key] = restricted | frozenset(units) if restricted and units else frozenset()
        if self._contents() != before:
            self._base = None
            self._opens = opens
            self._first = opening_matrix(self.sources(), first)
            self.announce()
        return keys

    def _contents(self) -> list[Any]:
        return [
            self._overview,
            self._matrices,
            *sorted(self._special),
            *self._sources,
            *((key, entry.refusal, entry.method.mark) for key, entry in self._menu.items()),
            self._all_heads,
        ]

    def _hold(self, key: str, holder: str) -> None:
        with self._lock:
            self._holders.setdefault(key, set()).add(holder)

    def _add(self, explanation: Any, key: str, units: Sequence[str] | frozenset[str]) -> None:
        offered = units_of(explanation)
        shown = [name for name in offered if divides(explanation, name)]
        for unit in [name for name in offered if name in units] or shown[: 1 if units else None]:
            parents = (source for source in self.sources() if by_layer(source.method) == key)
            whole = next(
                (parent.explanation for parent in parents if parent.stack == _stack(explanation)), None
            )
            with self._lock:
                takes_targets = base_of(key) in self._targetable
                source = Source(explanation, key, unit, targets=takes_targets, whole=whole)
                self._sources.setdefault(source.id, source)

    def send_along(self, holder: str, matrix: Matrix) -> None:
        """Send the matrix that a view shows without a request for it: a page without a kernel shows it too.

        Args:
            holder: Token of the view.
            matrix: Id of the source, layer and head.
        """
        self._shown[holder] = matrix
        sent = {(tile["source"], tile["layer"], tile["head"]) for tile in self.header.get("tiles", ())}
        seen = {thumbs["source"] for thumbs in self.header.get("thumbs", ())}
        source = next((item for item in self.sources() if item.id == matrix[0]), None)
        if source is None or source.large or matrix[1] not in source.ready:
            return
        if matrix not in sent or (self._overview and not source.of_targets and source.id not in seen):
            self.announce()

    def show_media(self, trace: Trace) -> None:
        """Send the picture or the sound of the trace, if it has one; called by views that show it."""
        if self.media is None and (result := MediaModel.of(trace)) is not None:
            result.acquire(self._name)
            self.media = result

    def release(self, holder: str) -> None:
        """Remove the sources that no other view shows; the last view closes the store."""
        with self._lock:
            self._shown.pop(holder, None)
            for key, holders in list(self._holders.items()):
                holders.discard(holder)
                if not holders:
                    del self._holders[key]
            # The browser keeps the old header until another source is registered; no view refers to these.
            self._sources = {name: s for name, s in self._sources.items() if s.method in self._holders}
            self._menu = {key: entry for key, entry in self._menu.items() if key in self._holders}
            self._targetable = {key: entry for key, entry in self._targetable.items() if key in self._holders}
        super().release(holder)
        if not self.is_open:
            self._jobs.close()
            if self.media is not None:
                self.media.release(self._name)

    def _registered(self, explanation: Any) -> Source | None:
        """Return the source of an explanation that is registered, perhaps with more layers computed."""
        for source in self.sources():
            if method_of(source.method) != explanation.method or source.stack != _stack(explanation):
                continue
            aggregated = in_unit(source.explanation, explanation.unit)
            if same(source.explanation, explanation) or same(aggregated, explanation):
                return source
        return None

    def _key_of(self, entry: Entry) -> str:
        """Return the key of an entry of the menu, and of the explanations that it makes."""
        # A user may have registered another function by the same name.
        keys = (key for key, listed in self._menu.items() if listed.method.function is entry.method.function)
        key = next(keys, None) or self._new_key(entry.name, *entry.trace.stacks)
        with self._lock:
            self._menu[key] = entry  # after a failure, it can be chosen again
        return key

    def _new_key_of(self, explanation: Any) -> str:
        return self._new_key(str(explanation.method), _stack(explanation), bare=not is_special(explanation))

    def _new_key(self, name: str, *stacks: str, bare: bool = True) -> str:
        # A key never changes its numbers: browsers keep tiles by it.
        key, number = (name, 1) if bare else (f"{name}#2", 2)
        while any((key, stack) in self._used for stack in stacks):
            number += 1
            key = f"{name}#{number}"
        self._used |= {(key, stack) for stack in stacks}
        return key

    def announce(self) -> None:
        """Tell the browser about all sources; those packed before are not packed again."""
        sources, menu = self.sources(), self.menu
        if not (self.is_open and sources):  # the views may have been closed in the meantime
            return
        if not self._matrices:  # each view asks for what it shows
            self._tell(Pack([], self._first), sources, menu)
            return
        base = self._base
        if base is None:
            lasting = opening_first([source for source in sources if not source.on_demand], self._opens)
            opened = {
                source.id
                for source in lasting
                if source.unit == (self._opens or lasting[0].unit) or source.size <= QUICK_VALUES
            }
            base = Pack(
                lasting,
                self._first,
                all_heads=self._all_heads,
                overview=self._overview,
                special=self._special,
                shown=opened,
            )
            self._base = base
        pack = Pack(
            [source for source in sources if source.id not in base.ids],
            self._first,
            base,
            special=self._special,
        )
        pack.include(sources, list(self._shown.values()), overview=self._overview)
        self._tell(pack, sources, menu)

    def _tell(self, pack: Pack, sources: Sequence[Source], menu: Mapping[str, Entry]) -> None:
        with self.hold_sync():
            self.eager = pack.data
            self.header = describe(sources, pack, menu, self.explains)

    # -- the menu ----------------------------------------------------------------------------------

    def make(self, key: str, layer: int | None = None, *, announce: bool = True) -> None:
        """Compute a method of the menu with the selected layer, and show it. Runs the model.

        Args:
            key: The method, and perhaps its target: see `attnwidgets.views.wire.axes`.
            layer: The selected layer.
            announce: Whether the browser is told now; False: the caller makes others, and announces them all.

        Raises:
            LookupError: The entry or the target is unknown.
            ValueError: The method does not support the trace. Other errors of the method pass through.
        """
        base, target = base_of(key), target_of(key)
        with self._lock:
            entry = self._targetable.get(base) if target else self._menu.get(key)
        if entry is None:
            raise LookupError(f"{key!r} is no longer offered; run the cell again.")
        if any(source.method == key for source in self.sources()):
            return
        if entry.refusal:
            raise ValueError(entry.refusal)
        explanations = []
        for explanation in entry.make(**target):
            registered = self._registered(explanation)
            explanations.append(explanation if registered is None else registered.explanation)
        _compute_first(explanations[0], layer)
        if base in self._holders:
            for holder in self._holders[base] if target else ():
                self._hold(key, holder)
                self._hold(by_layer(key), holder)
            units = self._units.get(base, frozenset())
            for explanation in explanations:
                self._add(explanation, key, units)
                layers = getattr(explanation, "map", None)
                if layers is not None and by_layer(key) in self._holders:
                    self._add(layers, by_layer(key), units)
        if announce:
            self.announce()

    @property
    def explains(self) -> str:
        """Key of the method that explains predictions, the reader having chosen none; "" without one."""
        with self._lock:
            return best_for_predictions(
                {key: self._menu.get(key, entry) for key, entry in self._targetable.items()}
            )

    def takes_targets(self, key: str) -> bool:
        """Return whether a method can explain a target that the reader chooses."""
        with self._lock:
            return key_for_target(key, None, None) in self._targetable

    def outcome(self, value: Any, name: str) -> tuple[int, str]:
        """Return the index and the label of a class or token; of the model's prediction for None.

        Raises:
            ValueError, IndexError, TypeError: The class or token is unknown; the message names the nearest.
        """
        with self._lock:
            trace = next((entry.trace for entry in self._targetable.values()), None)
        if trace is not None:
            from attnwidgets.explanations.targets.named import resolve_target

            target = resolve_target(trace, value, method="Selection", name=name, logit=True)
            if target.note:
                warnings.warn(target.note, UserWarning, stacklevel=2)
            return int(target.index or 0), target.label
        items = (self.header.get("predictions") or {}).get("items", [])
        for item in items:
            if value in {None, item["id"], item["label"]}:
                return int(item["id"]), str(item["label"])
        labels = [str(item["label"]) for item in items]
        listed = ", ".join(map(repr, labels)) or "of which there are none"
        raise ValueError(
            f"{name}={value!r} is none of the predictions, {listed}.{suggest(str(value), labels)}"
        )

    def _choose(self, request: dict[str, Any]) -> None:
        key = request.get("source", "")
        try:
            self.make(key, request.get("layer"))
        except Cancelled:
            raise
        except Exception as error:
            with self._lock:
                if key in self._menu:  # an error for one target does not apply to all
                    self._menu[key] = dataclasses.replace(self._menu[key], refusal=words(error))
            self.announce()
            raise
        self._reply({"kind": "made", "id": request["id"], "source": key})

    # -- requests ----------------------------------------------------------------------------------

    def _reply(self, reply: dict[str, Any], buffers: Sequence[bytes] = ()) -> None:
        if self.is_open:  # the views may have been closed in the meantime
            self.send(reply, list(buffers))

    def _answer(self, _: object, content: Any, __: object) -> None:
        complaint = fault(content)
        if complaint is not None:
            self._reply(complaint)
            return
        kind, number = content["kind"], content.get("id")
        if kind == "cancel":
            self._jobs.cancel(content.get("job"))
        elif kind == "method":
            entry = self._menu.get(base_of(content.get("source", "")))
            text = "" if entry is None else entry.title
            job = Job(number, "method", content.get("source"), text, lambda: self._choose(content))
            self._jobs.submit(job)
        elif (source := self._slow_source(content)) is not None:
            kind, layer = f"{source.method}/{source.stack}", content["layer"]
            text = f"{source.title}, layer {layer}"
            self._jobs.submit(Job(number, kind, layer, text, lambda: self._compute(content)))
        else:
            self._reply(*self.answer(content))

    def _slow_source(self, request: dict[str, Any]) -> Source | None:
        """Return the source of a request if it must compute a layer, or read many values, to answer."""
        source, layer = self._sources.get(request.get("source", "")), request.get("layer")
        if source is None or layer not in source.layers or request["kind"] not in {"tile", "layer"}:
            return None
        if layer not in source.ready:
            return source
        heads = request.get("heads", [request.get("head")])
        return source if source.long and source.reads(heads) > SLOW_VALUES else None

    def _compute(self, request: dict[str, Any]) -> None:
        source = self._source(request.get("source", ""))
        was_ready = request["layer"] in source.ready
        if not was_ready:
            source.layer(request["layer"])
        self._reply(*self.answer(request))
        if not was_ready:
            self.announce()

    def answer(self, request: dict[str, Any]) -> Answer:
        """Return the Reply of wire.ts to a Request for numbers, and its buffers."""
        return reply(request, self._source)

    def _source(self, name: str) -> Source:
        with self._lock:
            source = self._sources.get(name)
        if source is None:
            raise LookupError(f"{name!r} is no longer shown; run the cell again.")
        return source


def _is_map_of(whole: Any, layers: Any) -> bool:
    """Return whether a map holds the layers of attributions (`.map`)."""
    return whole is not layers and getattr(whole, "map", None) is layers


def _stack(explanation: Any) -> str:
    return explanation.stack or "self"


def _compute_first(explanation: Any, layer: int | None) -> None:
    """Compute the layer that a view opens with, or the nearest one, of a map computed on demand."""
    if getattr(explanation, "on_demand", False):
        nearest_to = explanation.layers[0] if layer is None else layer
        explanation.layer(min(explanation.layers, key=lambda number: abs(number - nearest_to)))
