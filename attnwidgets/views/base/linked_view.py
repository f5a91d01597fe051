"""LinkedView: the store and the selection that views of a trace share, and how a view joins them.

A view resolves its argument (`accepts.content_of`), then joins the other views of the trace (`Link.of`): it
uses their store and selection, or makes both if it is the first. `_holder` counts it among their users, so
that they close with their last view.
"""

from __future__ import annotations

from contextlib import suppress
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar

from attnwidgets._errors import Suggesting
from attnwidgets._progress import progress
from attnwidgets.views.base.accepts import content_of
from attnwidgets.views.base.link import Link
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.wire.axes import base_of
from attnwidgets.views.wire.header import explained_key
from attnwidgets.views.wire.widget import AnyWidget, WidgetTrait

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets.views.base.accepts import Content
    from attnwidgets.views.base.needs import Panel
    from attnwidgets.views.base.opening import Opening
    from attnwidgets.views.base.texts import Texts
    from attnwidgets.views.presentation import Presentation
    from attnwidgets.views.wire.sources import Source


MOST_EXPLAINED = 512
"""Tokens of a text up to which predictions are explained before a reader chooses one."""
MOST_CHIPS = 5
"""Predictions that a reader can choose in the line above the text."""


class LinkedView(Suggesting, AnyWidget):
    """A widget on the store and the selection that all views of its trace share.

    Attributes:
        content: Its explanations, and the methods of its menu.
    """

    _VIEW: ClassVar[str] = ""  # its name, in Python and in the browser
    _MANY_METHODS: ClassVar[bool] = False  # whether it offers a choice of methods
    NEEDS: ClassVar[Needs] = Needs()

    content: Content
    panels: tuple[Panel, ...] = ()
    show_text: Callable[[Any], None]  # of `View`
    _texts: Texts | None = None  # the traces that it can show, if it was given a trace
    _holder: str  # its token among those that use the store and the selection
    _link: Link
    _options: dict[str, Any]
    _start: dict[str, Any]  # the layer, head and unit that it was given
    options: Any  # of `View`

    store = WidgetTrait().tag(sync=True)
    selection = WidgetTrait().tag(sync=True)

    @property
    def needs(self) -> Needs:
        """The needs of this view and of all its panels."""
        return reduce(or_, (panel.needs for panel in self.panels), self.NEEDS)

    def _content_of(self, shown: Any, methods: Sequence[str], units: Sequence[str]) -> Content:
        """Resolve the argument of this view into explanations and methods; see `content_of`."""
        layers = self.NEEDS.attribution_layers
        return content_of(
            self._VIEW, shown, methods, units, many_methods=self._MANY_METHODS, with_layers=layers
        )

    def _join(self, start: Mapping[str, Any]) -> Link:
        """Join the other views of the trace, and set the method, stack and unit that this view keeps.

        Args:
            start: Layer, head and unit that the selection is moved to; None: as it is.
        """
        content = self.content
        link = Link.of(
            content,
            self.needs,
            self._holder,
            start=start,
            units=self._options["units"],
            first_unit=self._first_unit(),
            special=self.shows_special,
            preferred=self._preferred,
        )
        if content.is_fixed and link.source is not None:
            self._options |= {"method": link.keys[0], "stack": link.source.stack}
            if content.main.unit != link.source.unit:
                self._options["unit"] = content.main.unit
        self._options["methods"] = list(dict.fromkeys(link.keys)) if self._MANY_METHODS else []
        return link

    def _leave(self) -> None:
        """Leave the stores and the selections of all its texts, which end with their last view."""
        models = [(self.store, self.selection), *(self._texts.let_go() if self._texts else ())]
        for store, selection in dict.fromkeys(models):
            selection.release(self._holder)
            store.release(self._holder)
            selection.forget(store)

    def _preferred(self, opening: Opening) -> Opening:
        """Return the opening that this view prefers to that of any view of its map."""
        return opening

    def _first_unit(self) -> str:
        """Return the unit that is shown at first, if nobody has chosen one."""
        units = self._options["units"]
        return str(units[0] if units else self.content.main.unit)

    @property
    def trace(self) -> Any:
        """The trace that this view shows: the trace that it was given, or that of another text.

        Raises:
            AttributeError: It was given an explanation, which does not hold its trace.
        """
        if self.content.trace is None:
            raise AttributeError(
                f"this {self._VIEW} was given no trace; view.explanation() is what it shows."
            )
        return self.content.trace

    def explanation(self, method: str | None = None, *, stack: str | None = None) -> Any:
        """Return an explanation that this view shows or offers: a MixingMap or Attributions, not by units.

        Args:
            method: Its key, as in `view.selection.method`, also with a target: "lrp@1", or "lrp:layers" for
                its layers. None: the shown method.
            stack: "encoder", "decoder" or "cross", where there are several; None: the shown stack.

        Raises:
            ValueError: The view lacks the explanation, or has not computed it yet.

        Example:
            >>> view = aw.Heatmap(aw.trace(*aw.demo_model("encoder"), "The cat sat."))
            >>> weight = view.explanation("attention").value(2, 1, layer=0, head=3)
            >>> weight == view.trace.attention_layer(0)[3, 2, 1].item()
            True
        """
        method_key = method or self._options["method"] or self.selection.method
        sources = {source.method: source for source in self.store.sources()}
        if method_key not in sources:
            computed = ", ".join(map(repr, sources))
            raise ValueError(f"method={method_key!r} is not computed here; there is {computed or 'none'}.")
        stacks = {item.stack: item.explanation for item in self.store.sources() if item.method == method_key}
        if stack is None:
            stack = self._options["stack"] or self.selection.stack
            stack = stack if stack in stacks else next(iter(stacks))
        if stack not in stacks:
            raise ValueError(f"stack={stack!r} is not one of {', '.join(map(repr, stacks))}.")
        return stacks[stack]

    def at(
        self,
        *,
        text: int | str | None = None,
        method: str | None = None,
        unit: str | None = None,
        stack: str | None = None,
        layer: int | None = None,
        head: int | str | None = None,
        heads: Sequence[tuple[int, int]] = (),
        pins: Sequence[Any] = (),
        span: Any = None,
        target: int | str | None = None,
        foil: int | str | None = None,
        inside: bool = False,
        feature: int | None = None,
        interventions: Sequence[Mapping[str, Any]] | None = None,
    ) -> Self:
        """Move the shared selection, all of it at once, and return this view, to be shown by the same line.

        `view.link()`, and **Copy link** in the menu, return a line of code with it. See `view.selection` for
        each value. Pins, heads, a span, a target and a foil that are not given are let go.

        Args:
            text: Text that is shown, as `show_text` takes it; None, here and below: as it is.
            method: Method that is shown.
            unit: Unit that is shown.
            stack: "encoder", "decoder" or "cross", where there are several.
            layer: Layer that is shown.
            head: Head that is shown: a number, "mean" or "max".
            heads: Heads chosen together, as `(layer, head)`.
            pins: Pinned cells: `(query, key)`, counted in `unit`, or `(query, key, unit)`.
            span: Chosen elements: `(start, stop)`, counted in `unit`, or `(start, stop, unit, side)`.
            target: Class or token that is explained, by name or number.
            foil: Class or token rather than which it is explained.
            inside: Whether attributions are shown inside the model, at the layer.
            feature: Feature of a sparse autoencoder.
            interventions: Active interventions, as dicts.

        Raises:
            IndexError, ValueError, TypeError: As those of the selection; nothing is moved then.

        Example:
            >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat.")
            >>> view = aw.Explorer(trace).at(method="rollout", layer=3, pins=[(3, 1)])
            >>> view.selection.method, view.selection.pinned
            ('rollout', Cell(query=3, key=1, unit='token'))
        """
        if text is not None:
            self.show_text(text)
        self.selection.move(
            {
                "method": method,
                "unit": unit,
                "stack": stack,
                "layer": layer,
                "head": head,
                "heads": heads,
                "pins": pins,
                "span": span,
                "target": target,
                "foil": foil,
                "inside": inside,
                "feature": feature,
                "interventions": interventions,
            }
        )
        return self

    def sources(self) -> list[Source]:
        """Return the sources that this view offers: its methods in its units."""
        units = self._options["units"]
        sources = [source for source in self.store.sources() if base_of(source.method) in self._link.keys]
        return [source for source in sources if source.unit in units] or sources

    @property
    def presentation(self) -> Presentation:
        """The map that this view shows now, resolved against its sources; views without sources have none."""
        from attnwidgets.views.presentation import Presentation

        return Presentation.of(
            self.sources(), self.selection, self.options, self.store.explains, self._forgotten
        )

    def _forgotten(self, source: Source, layer: int, head: int | str) -> Mapping[str, NDArray[np.float64]]:
        """Return the shares that a layer forgets, by name [element]; {} for views without their strip."""
        del source, layer, head
        return {}

    @property
    def shows_special(self) -> bool:
        """Whether special tokens are shown in the map, as any other, now."""
        options: dict[str, Any] = self.options or self._options
        return bool(options["filters"].get("special") == "show")

    def complete(self, layers: Collection[int] | None = None) -> None:
        """Compute the explanations that a page holds and that are missing, with a progress bar.

        These are the explanations of the predictions, and the layers of the map that the view was given, or
        of the methods that an Explorer was given by name; not of methods that its menu merely offers.

        Args:
            layers: Only these layers; None: all.
        """
        self.explain_predictions()
        if not self.content.is_named:
            return
        for key, entry in self.store.menu.items():
            if key in self._link.keys and not entry.refusal:
                self.store.make(key)
        missing = {
            (source.method, source.stack, layer): source
            for source in self.sources()
            for layer in source.layers
            if layer not in source.ready and (layers is None or layer in layers)
        }
        for (_, _, layer), source in progress(
            missing.items(), desc=f"{self._VIEW}: layers", total=len(missing)
        ):
            source.layer(layer)
        if missing:
            self.store.announce()

    def explain_predictions(self, most: int = MOST_CHIPS) -> None:
        """Explain the most probable predictions, unless the text is long.

        Args:
            most: Number of predictions.
        """
        header, explains = self.store.header, self.store.explains
        items = header["predictions"]["items"][:most] if explains in self._link.keys else []
        tokens = max((max(source.shape) for source in self.store.sources()), default=0)
        if not items or tokens > MOST_EXPLAINED:
            return
        computed = {source.method for source in self.store.sources()}
        keys = [explained_key(explains, items, index) for index in range(len(items))]
        missing = [key for key in keys if key not in computed]
        if not missing:
            return
        from attnwidgets.relevance.rules import shared_pass

        # A method that refuses the text leaves the page without a button for its predictions.
        try:
            with suppress(ValueError), shared_pass():
                for key in progress(missing, desc=f"{self._VIEW}: predictions", total=len(missing)):
                    self.store.make(key, announce=False)
        finally:
            self.store.announce()


def link(first: LinkedView, *others: LinkedView) -> None:
    """Let views of different traces share one selection, the first view's. For an address, see `view.link()`.

    Where a view lacks the selected layer, head or position, it shows the nearest that it has.

    Args:
        first: View whose selection is shared.
        others: Views that follow it.

    Raises:
        TypeError: An argument is not a view.

    Example:
        >>> cat, dog = (aw.trace(*aw.demo_model("encoder"), f"The {name} sat.") for name in ("cat", "dog"))
        >>> views = [aw.Heatmap(cat), aw.Heatmap(dog)]
        >>> aw.link(*views)
        >>> views[0].selection.layer = 3
        >>> views[1].selection.layer
        3
    """
    for view in (first, *others):
        if not isinstance(view, LinkedView):
            raise TypeError(f"link() takes views, not {type(view).__name__}.")
    for view in others:
        before = view.selection
        if before is first.selection:
            continue
        first.selection.covers(view.store)
        first.selection.acquire(view._holder)  # noqa: SLF001 - the same module
        view.selection = first.selection
        before.release(view._holder)  # noqa: SLF001
