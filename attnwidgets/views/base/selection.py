"""The Selection: what every linked view shows, readable and writable from Python."""

from __future__ import annotations

from collections.abc import Iterable
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from traitlets import All, Bool, Int, Unicode, observe, validate
from traitlets import Any as AnyTrait

from attnwidgets._errors import suggest
from attnwidgets.views.base.selectable import (
    Cell,
    Outcome,
    Span,
    cell_of,
    cell_to_json,
    cells_to_json,
    outcome_from_json,
    outcome_to_json,
    span_to_json,
)
from attnwidgets.views.interventions.specs import checked_specs
from attnwidgets.views.wire.axes import span
from attnwidgets.views.wire.keys import base_of, key_for_target, target_of
from attnwidgets.views.wire.reader import REDUCTIONS
from attnwidgets.views.wire.runtime import SharedModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnwidgets.views.base.opening import Opening
    from attnwidgets.views.interventions.specs import Reach, Spec
    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.store import TileStore


MOST_PINS = 400
"""As many cells can be pinned at once: each is drawn in every linked view."""


def _heads_to_json(heads: tuple[tuple[int, int], ...], _: object) -> list[list[int]]:
    return [list(head) for head in heads]


def _opening_to_json(opening: Opening | None, _: object) -> dict[str, Any] | None:
    return None if opening is None else opening.describe()


def _specs_to_json(specs: tuple[Spec, ...], _: object) -> list[Spec]:
    return [dict(spec) for spec in specs]


# `set_state` tells the pages itself, in every front end and with every version of ipywidgets.
_MOVED: dict[str, Any] = {"sync": True, "echo_update": False}
_OUTCOME: dict[str, Any] = {**_MOVED, "to_json": outcome_to_json, "from_json": outcome_from_json}
_NOT_CHOSEN = {"opening", "hover", "writer"}


class Selection(SharedModel):
    """Layer, head, unit, method, stack, pinned cells, heads, span and target, shared among linked views.

    Every view has one, `view.selection`; setting a trait moves all linked views. `layer` is a number, `head`
    a number, `"mean"`, `"max"` or `"-"` (no head axis); numbers are the model's own, from 0. `pinned` is None
    or `(query, key)`, counted in `unit`, or `(query, key, unit)`. `hover` lives in the browser and is never
    sent to Python.

    A cell may also name the one layer in which it is pinned: `(query, key, unit, layer)`.

    `pins` are all pinned cells in the order in which they were chosen, in one unit, at most 400; `pinned` is
    the last of them, and setting it leaves only this one. `heads` are heads chosen together, as `(layer,
    head)`; empty: only the shown one. They belong to `stack` and end with it. `span` is None or a range of
    elements, `(start, stop)` without `stop`, counted in `unit`, or `(start, stop, unit, side)`; see `Span`.
    Its side is "query", or "key" where rows are explanations, as in a comparison. Shift + click adds or
    removes a cell, head or token, dragging chooses several cells or heads, or a span. `clear()` unpins all
    of these.

    `target` and `foil` are the reader's choice among the predictions: None or an `Outcome(id, label)`; set
    them by name or number. A method that explains a target explains this one, rather than the foil, when it
    is chosen; if it is already shown, it is computed again.

    `inside` says whether attributions are shown inside the model, at the selected layer, instead of at the
    input. A click on a row of the layers sets it; choosing another method resets it.

    `opening` is where its first view opened: the head with the strongest pattern, and the last content token,
    which views show while nothing is pinned (`opening.words`: "reads the token before").

    `feature` is the feature of a sparse autoencoder that views of features show, or None.

    `interventions` are the active interventions, in the order in which they apply: a tuple of dicts, each
    `{"kind": "ablate", "layer": 3, "head": 1}` (with `"how": "zero"` or `"mean"`, over the text) or
    `{"kind": "row", "layer": 3, "head": 1, "query": 5, "to": "uniform"}` (or `"one_hot"` with the `"key"`
    that is read, or `"free"` with the `"amount"`, 0 to 1, of what can move; tokens by position), with
    `"stack"` where there are several. Maps show the model as recorded; `view.interventions()` returns what
    `trace.rerun` takes. Assign a new tuple to change them; `undo()` removes the last one.

    Args:
        store: The store whose sources can be selected.
        layer: Layer at first.
        head: Head at first, or a reduction.
        unit: Unit at first.
        method: Method at first.
        stack: Stack at first.
        opening: Where its first view opens.

    Raises:
        IndexError: A layer, head, feature, pinned index, end of a span, class or token is out of range; the
            message names the range.
        ValueError: A unit, method, stack, reduction, class, token or kind of intervention is unknown; the
            message lists the known ones. Or `pins` are in several units or more than 400, or a span is empty.
        TypeError: `interventions` is not a list of dicts, or `pins` or `heads` is not a list.

    Example:
        >>> view = aw.Heatmap(aw.trace(*aw.demo_model("encoder"), "The cat sat."))
        >>> view.selection.pins = [(1, 2), (3, 2)]
        >>> view.selection.pinned
        Cell(query=3, key=2, unit='token')
        >>> view.selection.heads = [(0, 1), (2, 4)]
        >>> view.selection.span = (1, 4)
        >>> view.selection.span
        Span(start=1, stop=4, unit='token', side='query')
    """

    layer = Int(0).tag(**_MOVED)
    head = AnyTrait(0).tag(**_MOVED)
    unit = Unicode("token").tag(**_MOVED)
    method = Unicode("").tag(**_MOVED)
    stack = Unicode("self").tag(**_MOVED)
    pinned = AnyTrait(None, allow_none=True).tag(**_MOVED, to_json=cell_to_json)
    pins = AnyTrait(()).tag(**_MOVED, to_json=cells_to_json)
    heads = AnyTrait(()).tag(**_MOVED, to_json=_heads_to_json)
    span = AnyTrait(None, allow_none=True).tag(**_MOVED, to_json=span_to_json)
    target = AnyTrait(None, allow_none=True).tag(**_OUTCOME)
    foil = AnyTrait(None, allow_none=True).tag(**_OUTCOME)
    inside = Bool(default_value=False).tag(**_MOVED)
    feature = Int(None, allow_none=True).tag(**_MOVED)
    interventions = AnyTrait(()).tag(**_MOVED, to_json=_specs_to_json)
    has_given_layer = False  # whether a view was given the layer, so that no later one searches for another
    opening = AnyTrait(None, allow_none=True).tag(**_MOVED, to_json=_opening_to_json)
    hover = AnyTrait(None, allow_none=True).tag(**_MOVED, to_json=cell_to_json)
    writer = AnyTrait(None, allow_none=True).tag(**_MOVED)  # set by pages, see wire.ts

    moves = 0
    """How often Python has set something, rather than a reader."""
    _is_told = False  # by a page of the browser, now

    d_sae = 0
    """Number of features of the SAE that is shown; 0 without one."""

    reach: Reach | None = None
    """Layers, heads and tokens that interventions can name; None if no view has the trace."""

    def __init__(
        self,
        store: TileStore,
        *,
        layer: int = 0,
        head: int | str = 0,
        unit: str = "token",
        method: str = "",
        stack: str = "self",
        opening: Opening | None = None,
    ) -> None:
        self._stores: list[TileStore] = [store]
        super().__init__(layer=layer, head=head, unit=unit, method=method, stack=stack, opening=opening)
        self.on_msg(self._answer)

    @observe(All)
    def _count(self, _: object) -> None:
        self.moves += not self._is_told

    def covers(self, store: TileStore) -> None:
        """Include the sources of another store (after `link`)."""
        if store not in self._stores:
            self._stores.append(store)

    def forget(self, store: TileStore) -> None:
        """Exclude a store that no view of this selection shows any more."""
        if store in self._stores and len(self._stores) > 1:
            self._stores.remove(store)

    def undo(self) -> None:
        """Remove the last intervention."""
        self.interventions = self.interventions[:-1]

    def clear(self) -> None:
        """Unpin all cells, and choose no heads and no span, as Escape does."""
        with self.hold_sync():
            self.pins, self.heads, self.span = (), (), None

    def move(self, place: Mapping[str, Any]) -> None:
        """Move everything at once, or nothing if something is out of range; see `View.at`.

        Args:
            place: Traits by name. Without pins, heads, a span, a target or a foil there are none; the others
                stay where they are. A method is one without its target.
        """
        before = {name: getattr(self, name) for name in self._chosen_names()}
        wanted = {"heads": (), "pins": (), "span": None, "target": None, "foil": None, "inside": False}
        wanted |= {name: value for name, value in place.items() if value is not None}
        with self.hold_sync():
            try:
                self._move(wanted)
            except BaseException:
                for name in ("foil", "target"):  # while there is a target, a method is of it
                    setattr(self, name, None)
                for name, value in before.items():
                    setattr(self, name, value)
                raise

    def _move(self, place: dict[str, Any]) -> None:
        target, foil = (self._outcome(name, place.pop(name)) for name in ("target", "foil"))
        method = place.pop("method", base_of(self.method))
        for name, outcome in (("foil", foil), ("target", target)):
            if outcome is None and getattr(self, name) is not None:
                setattr(self, name, None)
        if "layer" in place:
            self.layer = place.pop("layer")
        # Its own target at once: the method's explanation of another one would be computed for nothing.
        self.method = self._about(method, target, foil) if target or foil else method
        for name, outcome in (("target", target), ("foil", foil)):
            if outcome is not None:
                setattr(self, name, outcome)
        # The heads belong to a stack, and pins are counted in the unit, if they do not say so.
        for name in ("stack", "unit", "head", "heads", "pins", "span", "inside", "feature", "interventions"):
            if name in place:
                setattr(self, name, place[name])

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Apply what a page of the browser sent, except for hover, and tell every page what it is now."""
        # A front end may send more than the reader moved: what other pages moved, and hover, which would move
        # the pointers of other pages. So a page names what it saves.
        writer = sync_data.get("writer")
        names = set(sync_data if writer is None else writer["names"]) & set(self._chosen_names())
        before = {name: getattr(self, name) for name in names}
        self._is_told = True
        try:
            super().set_state({name: value for name, value in sync_data.items() if name in names})
        except BaseException:
            for name, value in before.items():  # traitlets would keep what is refused
                setattr(self, name, value)
            raise
        finally:
            self._is_told = False
            self._tell(names, writer)

    def _tell(self, names: Iterable[str], writer: Any = None) -> None:
        """Tell every page of the browser what these are now: `Moved` of wire.ts."""
        self.send({"kind": "moved", "writer": writer, "values": self.get_state(names)})

    def _answer(self, _: object, content: Any, __: object) -> None:
        """Answer a page that opens, to which its front end may have given the state of long ago."""
        if isinstance(content, dict) and content.get("kind") == "where":
            self._tell(self._chosen_names())

    def __repr__(self) -> str:
        state = (f"{name}={getattr(self, name)!r}" for name in self._chosen_names() if name != "feature")
        return f"Selection({', '.join(state)})"

    def _chosen_names(self) -> list[str]:
        """Return the names of what a reader can choose, in the order in which they are declared."""
        return [name for name in vars(Selection) if name in self.keys and name not in _NOT_CHOSEN]

    # -- validation --------------------------------------------------------------------------------

    @validate("layer")
    def _check_layer(self, proposal: dict[str, Any]) -> int:
        return self._layer("layer", int(proposal["value"]))

    def _layer(self, name: str, layer: int) -> int:
        known = sorted({number for source in self._sources() for number in source.layers})
        if known and layer not in known:
            raise IndexError(f"{name}={layer} is out of range: the layers are {span(tuple(known))}.")
        return layer

    @validate("head")
    def _check_head(self, proposal: dict[str, Any]) -> int | str:
        head = proposal["value"]
        if isinstance(head, str):
            if head not in {*REDUCTIONS, "-"}:
                raise ValueError(f"head={head!r} is not a head number, 'mean', 'max' or '-'.")
            return head
        if isinstance(head, bool) or not hasattr(head, "__index__"):
            raise ValueError(f"head={head!r} is not a head number, 'mean', 'max' or '-'.")
        known = self._known_heads()
        if known and head not in known:
            raise IndexError(f"head={head} is out of range: the heads are {span(known)}, 'mean' and 'max'.")
        return int(head)

    def _known_heads(self) -> tuple[int, ...]:
        return tuple(sorted({number for source in self._sources() for number in source.heads or ()}))

    @validate("heads")
    def _check_heads(self, proposal: dict[str, Any]) -> tuple[tuple[int, int], ...]:
        known = self._known_heads()
        heads: dict[tuple[int, int], None] = {}
        for item in _listed("heads", proposal["value"], "(layer, head)"):
            if not (isinstance(item, (tuple, list)) and len(item) == 2 and all(map(_is_index, item))):  # noqa: PLR2004
                raise ValueError(f"heads: {item!r} is not (layer, head), as in heads=[(3, 1), (4, 0)].")
            layer, head = self._layer("heads: layer", int(item[0])), int(item[1])
            if head not in known:
                raise IndexError(f"heads: head={head} is out of range: {_ranges(known)}.")
            heads[layer, head] = None
        return tuple(heads)

    @observe("stack")
    def _forget_heads(self, _: object) -> None:
        """The heads of another stack are other heads."""
        self.heads = ()

    @validate("feature")
    def _check_feature(self, proposal: dict[str, Any]) -> int | None:
        feature: int | None = proposal["value"]
        if feature is not None and not 0 <= feature < (self.d_sae or feature + 1):
            raise IndexError(f"feature={feature} is out of range: the features are 0 to {self.d_sae - 1}.")
        return feature

    @validate("interventions")
    def _check_interventions(self, proposal: dict[str, Any]) -> tuple[Spec, ...]:
        return checked_specs(proposal["value"], self.reach)

    @validate("unit")
    def _check_unit(self, proposal: dict[str, Any]) -> str:
        return self._among("unit", proposal["value"])

    @validate("method")
    def _check_method(self, proposal: dict[str, Any]) -> str:
        method = proposal["value"]
        if method == key_for_target(method, None, None):  # without a target yet, and not by layers
            method = self._about(method, self.target, self.foil)
        self._make(method)
        return self._among("method", method)

    @validate("stack")
    def _check_stack(self, proposal: dict[str, Any]) -> str:
        return self._among("stack", proposal["value"])

    @validate("target")
    def _check_target(self, proposal: dict[str, Any]) -> Outcome | None:
        target = self._outcome("target", proposal["value"])
        if target is not None and target == self.foil:
            raise ValueError(
                f"target={target.label!r} is the foil; name another one, or set foil=None first."
            )
        self._make(self._about(self.method, target, self.foil))
        return target

    @validate("foil")
    def _check_foil(self, proposal: dict[str, Any]) -> Outcome | None:
        foil = self._outcome("foil", proposal["value"])
        # Without a target, the prediction is contrasted with the foil.
        target = self.target if foil is None or self.target is not None else self._predicted()
        if foil is not None and foil == target:
            raise ValueError(
                f"foil={foil.label!r} is the target itself; name another one, or another target."
            )
        self._make(self._about(self.method, target, foil))
        return foil

    @observe("method")
    def _begin_at_the_input(self, _: object) -> None:
        self.inside = False

    @observe("target", "foil")
    def _ask_again(self, _: object) -> None:
        """Show the method's explanation of the new target."""
        if self.foil is not None and self.target is None:
            self.target = self._predicted()
        self.method = self._about(self.method, self.target, self.foil)

    def _predicted(self) -> Outcome:
        return Outcome(*self._stores[0].outcome(None, "target"))

    def _outcome(self, name: str, value: Any) -> Outcome | None:
        if value is None or isinstance(value, Outcome):
            return value
        return Outcome(*self._stores[0].outcome(value, name))

    def _about(self, method: str, target: Outcome | None, foil: Outcome | None) -> str:
        """Return the key of a method for a target, if it takes one."""
        if not any(store.takes_targets(method) for store in self._stores):
            return method
        return key_for_target(method, target and target.id, foil and foil.id)

    def _make(self, method: str) -> None:
        """Compute a method that was chosen from Python; the browser requests it from the store first."""
        if current_thread() is not main_thread():
            return
        for store in self._stores:
            if method in store.menu or (target_of(method) and store.takes_targets(method)):
                store.make(method, self.layer)

    def _sources(self) -> list[Source]:
        return [source for store in self._stores for source in store.sources()]

    def _among(self, field: str, value: str, name: str = "") -> str:
        """Return a method, stack or unit, checked to be that of a source."""
        known = list(dict.fromkeys(getattr(source, field) for source in self._sources()))
        if known and value not in known:
            listed, near = ", ".join(map(repr, known)), suggest(value, known)
            raise ValueError(f"{name or field}={value!r} is not one of {listed}.{near}")
        return value

    @validate("hover")
    def _check_hover(self, proposal: dict[str, Any]) -> Cell | None:
        return cell_of("hover", proposal["value"], self.unit)

    @validate("pinned")
    def _check_pinned(self, proposal: dict[str, Any]) -> Cell | None:
        cell = self._pin("pinned", proposal["value"])
        if not self._cross_validation_lock and cell is not None and cell == self.pinned:
            self.pins = (cell,)  # pinned again, without the others: nothing would be observed
        return cell

    @validate("pins")
    def _check_pins(self, proposal: dict[str, Any]) -> tuple[Cell, ...]:
        given = _listed("pins", proposal["value"], "(query, key)")
        if len(given) > MOST_PINS:
            raise ValueError(f"pins has {len(given)} cells; at most {MOST_PINS} can be pinned.")
        # A cell that was chosen twice stands where it was chosen last.
        latest = dict.fromkeys(reversed([self._pin("pins", cell) for cell in given]))
        cells = tuple(cell for cell in reversed(latest) if cell is not None)
        if len({cell.unit for cell in cells}) > 1:
            units = ", ".join(dict.fromkeys(cell.unit for cell in cells))
            raise ValueError(f"pins are counted in several units ({units}); give all of them in one.")
        return cells

    @observe("pinned")
    def _keep_one_pin(self, _: object) -> None:
        if self.pinned != (self.pins[-1] if self.pins else None):
            self.pins = () if self.pinned is None else (self.pinned,)

    @observe("pins")
    def _pin_the_last(self, _: object) -> None:
        last = self.pins[-1] if self.pins else None
        if self.pinned != last:
            self.pinned = last

    def _pin(self, name: str, value: Any) -> Cell | None:
        """Return a cell to pin, within the maps of its unit."""
        cell = cell_of(name, value, self.unit)
        if cell is None:
            return None
        if cell.layer is not None:
            self._layer(f"{name}: layer", cell.layer)
        for side, index, size in zip(("query", "key"), cell, self._sizes(name, cell.unit), strict=False):
            if not -1 <= index < size:
                raise IndexError(
                    f"{name} {side} {index} is out of range: there are {size} {cell.unit}s, "
                    f"0 to {size - 1} (-1: none)."
                )
        return cell

    def _sizes(self, name: str, unit: str) -> tuple[int, ...]:
        """Return the largest number of queries and of keys in a unit; empty if nothing is known of it."""
        shapes = [source.pinnable for source in self._sources() if source.unit == unit]
        if not shapes:
            self._among("unit", unit, f"{name} unit")
        return tuple(max(sizes) for sizes in zip(*shapes, strict=True))

    def _side(self, unit: str) -> str:
        """Return the side of a span that does not name it: that of the text, if rows are explanations."""
        rows = [source.rows_are_texts for source in self._sources() if source.unit == unit]
        return "query" if any(rows) or not rows else "key"

    @validate("span")
    def _check_span(self, proposal: dict[str, Any]) -> Span | None:
        given = proposal["value"]
        if given is None:
            return None
        if isinstance(given, dict) and given.keys() == set(Span._fields):
            given = tuple(given[field] for field in Span._fields)
        is_span = isinstance(given, (tuple, list)) and 2 <= len(given) <= 4 and all(map(_is_index, given[:2]))  # noqa: PLR2004
        if not is_span:
            raise ValueError(
                f"span={given!r} is neither None nor (start, stop), (start, stop, unit) nor "
                "(start, stop, unit, side)."
            )
        start, stop = given[:2]
        unit = given[2] if len(given) > 2 else self.unit  # noqa: PLR2004
        side = given[3] if len(given) > 3 else self._side(unit)  # noqa: PLR2004
        if side not in {"query", "key"}:
            raise ValueError(f"span side {side!r} is neither 'query' nor 'key'.")
        sizes = dict(zip(("query", "key"), self._sizes("span", unit), strict=False))
        size = sizes.get(side, stop)
        if start >= stop:
            raise ValueError(
                f"span ({start}, {stop}) is empty: stop, which is not included, must be above start."
            )
        if start < 0 or stop > size:
            raise IndexError(
                f"span ({start}, {stop}) is out of range: there are {size} {unit}s, 0 to {size}."
            )
        return Span(int(start), int(stop), unit, side)


def _is_index(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _listed(name: str, given: Any, of: str) -> list[Any]:
    if isinstance(given, (str, dict, Cell)) or not isinstance(given, Iterable):
        raise TypeError(f"{name}={given!r} is not a list of {of}.")
    return list(given)


def _ranges(known: tuple[int, ...]) -> str:
    return f"the heads are {span(known)}" if known else "no map has heads"
