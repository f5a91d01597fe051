"""The Selection: layer, head, method, pins and target of linked views, readable and writable from Python.

Traits are checked by `Choices` (selectable.py) when they are set. Pages of the browser set them through
`set_state`, which sends every page the values after the check, so that a page undoes a refused value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traitlets import All, Bool, Int, Unicode, observe, validate
from traitlets import Any as AnyTrait

from attnwidgets.views.base.selectable import (
    Choices,
    cell_of,
    cell_to_json,
    cells_to_json,
    outcome_from_json,
    outcome_to_json,
    span_to_json,
)
from attnwidgets.views.interventions.specs import checked_specs
from attnwidgets.views.wire.axes import base_of, key_for_target
from attnwidgets.views.wire.runtime import SharedModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attnwidgets.views.base.opening import Opening
    from attnwidgets.views.base.selectable import Cell, Outcome, Span
    from attnwidgets.views.interventions.specs import Reach, Spec
    from attnwidgets.views.wire.store import TileStore


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

    It is the `view.selection` of every view; setting a trait moves all linked views. `layer` is a number,
    `head` a number, `"mean"`, `"max"` or `"-"` (no head axis); both are numbered as in the model, from 0.
    `pinned` is None or `(query, key)`, counted in `unit`, or `(query, key, unit)`. `hover` lives in the
    browser and is never sent to Python.

    A cell may also name the layer in which it is pinned: `(query, key, unit, layer)`.

    `pins` are all pinned cells in the order in which they were chosen, in one unit, at most 400; `pinned` is
    the last of them, and setting it unpins the others. `heads` are heads chosen together, as `(layer,
    head)`; empty: only the shown head. They belong to `stack` and end with it. `span` is None or a range of
    elements, `(start, stop)` without `stop`, counted in `unit`, or `(start, stop, unit, side)`; see `Span`.
    Its side is "query", or "key" where rows are explanations, as in a comparison. Shift + click adds or
    removes a cell, head or token, dragging chooses several cells or heads, or a span. `clear()` unpins all
    of these.

    `target` and `foil` are the reader's choice among the predictions: None or an `Outcome(id, label)`; set
    them by name or number. A method that explains a target explains `target` rather than `foil` when it is
    chosen; if it is already shown, it is computed again.

    `inside` says whether attributions are shown inside the model, at the selected layer, instead of at the
    input. A click on a row of the layers sets it; choosing another method resets it.

    `opening` is where its first view opened: for a text with a prediction the head that attends to content
    words most, else the head with the strongest pattern; and the query that views show while nothing is
    pinned. `opening.sentence` describes its map: "“is” attends to “France” (0.90)."

    `feature` is the feature of a sparse autoencoder that views of features show, or None.

    `interventions` are the active interventions, in the order in which they apply: a tuple of dicts, each
    `{"kind": "ablate", "layer": 3, "head": 1}` (with `"how": "zero"` or `"mean"`, over the text) or
    `{"kind": "row", "layer": 3, "head": 1, "query": 5, "to": "uniform"}` (or `"one_hot"` with the `"key"`
    that is read, or `"free"` with the `"amount"`, 0 to 1, of the weights that can move; tokens by position),
    with `"stack"` where there are several. Maps show the model as recorded; `view.interventions()` returns
    them as `trace.rerun` takes them. Assign a new tuple to change them; `undo()` removes the last.

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
            message lists those that exist. Or `pins` are in several units or more than 400, or a span is
            empty.
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
    has_given_layer = False  # whether a view was given the layer, so that no later view searches for a head
    opening = AnyTrait(None, allow_none=True).tag(**_MOVED, to_json=_opening_to_json)
    hover = AnyTrait(None, allow_none=True).tag(**_MOVED, to_json=cell_to_json)
    writer = AnyTrait(None, allow_none=True).tag(**_MOVED)  # set by pages, see wire.ts

    moves = 0
    """How often Python has set something, rather than a reader."""
    _is_told = False  # by a page of the browser, now

    d_sae = 0
    """Number of features of the SAE that is shown; 0 without an SAE."""

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
        self._choices = Choices(store)
        super().__init__(layer=layer, head=head, unit=unit, method=method, stack=stack, opening=opening)
        self.on_msg(self._answer)

    @observe(All)
    def _count(self, _: object) -> None:
        self.moves += not self._is_told

    def covers(self, store: TileStore) -> None:
        """Include the sources of another store (after `link`)."""
        self._choices.include(store)

    def forget(self, store: TileStore) -> None:
        """Exclude a store that no view of this selection shows any more."""
        self._choices.exclude(store)

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
            place: Traits by name. Without pins, heads, a span, a target or a foil there are none; the other
                traits stay as they are. A method is named without its target.
        """
        before = {name: getattr(self, name) for name in self._chosen_names()}
        traits = {"heads": (), "pins": (), "span": None, "target": None, "foil": None, "inside": False}
        traits |= {name: value for name, value in place.items() if value is not None}
        with self.hold_sync():
            try:
                self._move(traits)
            except BaseException:
                for name in ("foil", "target"):  # while there is a target, a method is of it
                    setattr(self, name, None)
                for name, value in before.items():
                    setattr(self, name, value)
                raise

    def _move(self, traits: dict[str, Any]) -> None:
        target, foil = (self._choices.outcome(name, traits.pop(name)) for name in ("target", "foil"))
        method = traits.pop("method", base_of(self.method))
        for name, outcome in (("foil", foil), ("target", target)):
            if outcome is None and getattr(self, name) is not None:
                setattr(self, name, None)
        if "layer" in traits:
            self.layer = traits.pop("layer")
        # With its target at once: the method's explanation of another target would be computed for nothing.
        self.method = self._choices.method_about(method, target, foil) if target or foil else method
        for name, outcome in (("target", target), ("foil", foil)):
            if outcome is not None:
                setattr(self, name, outcome)
        # The heads belong to a stack, and pins are counted in the unit, if they do not say so.
        for name in ("stack", "unit", "head", "heads", "pins", "span", "inside", "feature", "interventions"):
            if name in traits:
                setattr(self, name, traits[name])

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Apply the traits that a page of the browser sent, except for hover, and send the result to all."""
        # A front end may send more than the reader moved: traits that other pages moved, and hover, which
        # would move the pointers of other pages. So a page names the traits that it saves.
        writer = sync_data.get("writer")
        names = set(sync_data if writer is None else writer["names"]) & set(self._chosen_names())
        before = {name: getattr(self, name) for name in names}
        self._is_told = True
        try:
            super().set_state({name: value for name, value in sync_data.items() if name in names})
        except BaseException:
            for name, value in before.items():  # traitlets would leave a refused value in the trait
                setattr(self, name, value)
            raise
        finally:
            self._is_told = False
            self._tell(names, writer)

    def _tell(self, names: Iterable[str], writer: Any = None) -> None:
        """Send the values of traits to every page of the browser: `Moved` of wire.ts."""
        self.send({"kind": "moved", "writer": writer, "values": self.get_state(names)})

    def _answer(self, _: object, content: Any, __: object) -> None:
        """Answer a page that opens, to which its front end may have given the state of long ago."""
        if isinstance(content, dict) and content.get("kind") == "where":
            self._tell(self._chosen_names())

    def __repr__(self) -> str:
        state = (f"{name}={getattr(self, name)!r}" for name in self._chosen_names() if name != "feature")
        return f"Selection({', '.join(state)})"

    def _chosen_names(self) -> list[str]:
        """Return the names of the traits that a reader can choose, in the order of their declaration."""
        return [name for name in vars(Selection) if name in self.keys and name not in _NOT_CHOSEN]

    # -- validation --------------------------------------------------------------------------------

    @validate("layer")
    def _check_layer(self, proposal: dict[str, Any]) -> int:
        return self._choices.layer("layer", int(proposal["value"]))

    @validate("head")
    def _check_head(self, proposal: dict[str, Any]) -> int | str:
        return self._choices.head(proposal["value"])

    @validate("heads")
    def _check_heads(self, proposal: dict[str, Any]) -> tuple[tuple[int, int], ...]:
        return self._choices.heads(proposal["value"])

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
        return self._choices.among("unit", proposal["value"])

    @validate("method")
    def _check_method(self, proposal: dict[str, Any]) -> str:
        method = proposal["value"]
        if method == key_for_target(method, None, None):  # without a target yet, and not by layers
            method = self._choices.method_about(method, self.target, self.foil)
        self._choices.make(method, self.layer)
        return self._choices.among("method", method)

    @validate("stack")
    def _check_stack(self, proposal: dict[str, Any]) -> str:
        return self._choices.among("stack", proposal["value"])

    @validate("target")
    def _check_target(self, proposal: dict[str, Any]) -> Outcome | None:
        target = self._choices.outcome("target", proposal["value"])
        if target is not None and target == self.foil:
            raise ValueError(
                f"target={target.label!r} is the foil; name another one, or set foil=None first."
            )
        self._make_about(target, self.foil)
        return target

    @validate("foil")
    def _check_foil(self, proposal: dict[str, Any]) -> Outcome | None:
        foil = self._choices.outcome("foil", proposal["value"])
        # Without a target, the prediction is contrasted with the foil.
        target = self.target if foil is None or self.target is not None else self._choices.predicted()
        if foil is not None and foil == target:
            raise ValueError(
                f"foil={foil.label!r} is the target itself; name another one, or another target."
            )
        self._make_about(target, foil)
        return foil

    def _make_about(self, target: Outcome | None, foil: Outcome | None) -> None:
        self._choices.make(self._choices.method_about(self.method, target, foil), self.layer)

    @observe("method")
    def _begin_at_the_input(self, _: object) -> None:
        self.inside = False

    @observe("target", "foil")
    def _ask_again(self, _: object) -> None:
        """Show the method's explanation of the new target."""
        if self.foil is not None and self.target is None:
            self.target = self._choices.predicted()
        self.method = self._choices.method_about(self.method, self.target, self.foil)

    @validate("hover")
    def _check_hover(self, proposal: dict[str, Any]) -> Cell | None:
        return cell_of("hover", proposal["value"], self.unit)

    @validate("pinned")
    def _check_pinned(self, proposal: dict[str, Any]) -> Cell | None:
        cell = self._choices.pin("pinned", proposal["value"], self.unit)
        if not self._cross_validation_lock and cell is not None and cell == self.pinned:
            self.pins = (cell,)  # pinned again, without the others: nothing would be observed
        return cell

    @validate("pins")
    def _check_pins(self, proposal: dict[str, Any]) -> tuple[Cell, ...]:
        return self._choices.pins(proposal["value"], self.unit)

    @observe("pinned")
    def _keep_one_pin(self, _: object) -> None:
        if self.pinned != (self.pins[-1] if self.pins else None):
            self.pins = () if self.pinned is None else (self.pinned,)

    @observe("pins")
    def _pin_the_last(self, _: object) -> None:
        last = self.pins[-1] if self.pins else None
        if self.pinned != last:
            self.pinned = last

    @validate("span")
    def _check_span(self, proposal: dict[str, Any]) -> Span | None:
        return self._choices.span(proposal["value"], self.unit)
