"""View: the base class of every view."""

from __future__ import annotations

import base64
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import uuid4

import anywidget
from traitlets import Bytes, Dict, Unicode

from attnwidgets._errors import refuse_unknown
from attnwidgets._notebook import session
from attnwidgets._progress import progress
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.accepts import RECORDED, accept, check_units
from attnwidgets.views.base.csv_export import part_of_csv
from attnwidgets.views.base.expressions import cell_paths, expression
from attnwidgets.views.base.filters import checked_filters
from attnwidgets.views.base.lifecycle import CELLS
from attnwidgets.views.base.marks import checked_marks
from attnwidgets.views.base.menu import entries_of, outdated
from attnwidgets.views.base.opening import opening_of
from attnwidgets.views.base.options import DEFAULTS, FILTERS, ViewOptions, write_out
from attnwidgets.views.base.selection import Selection
from attnwidgets.views.base.shared_models import SELECTIONS, STORES
from attnwidgets.views.wire.handlers import Handler, RequestHandlers
from attnwidgets.views.wire.keys import base_of
from attnwidgets.views.wire.runtime import Runtime
from attnwidgets.views.wire.store import TileStore
from attnwidgets.views.wire.stub import COMMON_PARTS, stub

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure
    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme, ThemeName
    from attnwidgets.views.base.expressions import Kinds
    from attnwidgets.views.base.opening import Opening
    from attnwidgets.views.base.options import FilterOptions, TitleOptions
    from attnwidgets.views.page.frame import Page
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

PLAIN_OPTIONS: dict[str, Any] = {
    "method": None,
    "unit": None,
    "stack": None,
    "indexBase": 0,
    "title": "",
    "marks": [],
    "methods": [],
    "units": [],
    "filters": {},
    "height": None,
}
"""The options of every view that the browser is told, with their defaults."""


OPENING_BYTES = 150_000
"""Size limit of the answers that travel with a view."""

_LOWEST, _TALLEST = 200, 4000  # CSS pixels


class View(anywidget.AnyWidget):
    """A linked picture of a trace or an explanation.

    Views of one trace share a `Selection` (`view.selection`) and a tile store, also across cells; `aw.link`
    joins views of different traces. A subclass sets `_VIEW`, `PARTS` and `_OPTIONS`, and overrides what it
    needs of `_own_options`, `_handlers` and `_still`.

    Args:
        shown: A MixingMap, Attributions or a trace (whose attention is shown). A list of Attributions over
            the same elements is shown as rows on one scale, each named by its target.
        marks: Outlined cells `(query, key)`, or outlined elements, counted in the displayed unit.
        methods: Methods the reader can choose from, by name, the one it opens with first; empty: every
            method.
        **options: The options in `_OPTIONS`.

    Raises:
        TypeError: A keyword is unknown (the nearest valid one is named), or `shown` cannot be shown.
        ValueError, IndexError: An option is out of its range; the message names the range.
    """

    _VIEW: ClassVar[str] = ""  # its name, in Python and in the browser
    _OPTIONS: ClassVar[type[TitleOptions]] = ViewOptions  # the options that it takes, of `views.base.options`
    _HEIGHT: ClassVar[int | None] = None  # CSS pixels that it always has; None: what its content needs
    _MANY_METHODS: ClassVar[bool] = False  # whether it offers a choice of methods
    _WITH_LAYERS: ClassVar[bool] = False  # whether it shows the layers of attributions as well
    _MARKS: ClassVar[str] = ""  # "cells", "elements" or "both", if it outlines any
    _ALL_HEADS: ClassVar[bool] = False  # whether it opens with all heads of its layer
    SHOWS_ALL_HEADS: ClassVar[bool] = False  # whether it has thumbnails of all heads
    PARTS: tuple[str, ...] = ()  # scripts in `attnwidgets/static` that it needs beside the core

    _trace: Any = None  # that it was given, if it was
    _registered: tuple[tuple[str, Any], ...] = ()  # what it opened with, by method key

    _esm = Unicode().tag(sync=True)
    runtime = anywidget.WidgetTrait().tag(sync=True)
    store = anywidget.WidgetTrait().tag(sync=True)
    selection = anywidget.WidgetTrait().tag(sync=True)
    options = Dict().tag(sync=True, echo_update=False)
    opening: Any = Bytes(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        shown: Any,
        *,
        marks: Sequence[Any] = (),
        methods: Sequence[str] = (),
        **options: Unpack[FilterOptions],
    ) -> None:
        given = self._with_defaults(options)
        if given["index_base"] not in {0, 1}:
            raise ValueError(f"index_base={given['index_base']!r} is not 0 or 1.")
        methods, units = _names("methods", methods), _names("units", given["units"])
        accepted = accept(
            self._VIEW, shown, methods, many_methods=self._MANY_METHODS, with_layers=self._WITH_LAYERS
        )
        main = accepted.main
        self._explanations, self._menu = accepted.explanations, accepted.menu
        self._targetable = accepted.targetable
        self._trace = shown if is_trace(shown) else None
        check_units(self._VIEW, self._explanations, units)
        # A page holds what was named, and not what the menu merely offers.
        self._is_named = bool(methods) or not is_trace(shown)
        self._holder = uuid4().hex
        self._trace_id = str(main.trace_id)
        self._options: dict[str, Any] = PLAIN_OPTIONS | {
            "indexBase": given["index_base"],
            "title": str(given["title"]),
            "marks": checked_marks(self._VIEW, self._MARKS, marks, (1, *main.shape)[-2:]),
            "methods": [],
            "units": list(units),
            "height": checked_height(self._VIEW, given["height"]) or self._HEIGHT,
            "filters": checked_filters(self._VIEW, **{name: given[name] for name in FILTERS}),
        }
        self._options |= self._own_options()
        self._wanted: dict[str, Any] = {name: given[name] for name in ("layer", "head", "unit")}
        self._begin(given["layout"], self._connect(fixed=not self._MANY_METHODS and main is accepted.shown))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        bases = [base for base in cls.__mro__[1:] if issubclass(base, View)]
        inherited = not any("__init__" in vars(base) for base in (cls, *bases[:-1]))
        offered = {"marks": cls._MARKS, "methods": cls._MANY_METHODS} if inherited else {}
        write_out(cls, cls._OPTIONS, bases, [name for name, is_offered in offered.items() if not is_offered])

    @classmethod
    def _with_defaults(cls, options: FilterOptions | TitleOptions) -> dict[str, Any]:
        """Return the options with the defaults of those not given; a TypeError for what this view lacks."""
        unknown = [name for name in options if name not in cls._OPTIONS.__annotations__]
        refuse_unknown(cls._VIEW, unknown, signature(cls).parameters)
        return {**DEFAULTS, **options}

    def _begin(self, layout: Any, traits: Mapping[str, Any]) -> None:
        """Open the widget, with the store and the selection of `_connect`."""
        super().__init__(
            _esm=stub(self._VIEW, (*self.PARTS, *COMMON_PARTS), self._likely_height(traits["store"])),
            runtime=Runtime.get((*self.PARTS, *COMMON_PARTS)),
            options=dict(self._options),
            **traits,
            **({} if layout is None else {"layout": layout}),
        )
        self._own_layout = layout is None
        common = {
            "csv": Handler(self._csv),
            "figure": Handler(self._figure_file, runs_model=True),
            "page": Handler(self._copy, runs_model=True),
            "expression": Handler(
                partial(expression, self._numbers), for_page=self._expressions, prefetched=tuple
            ),
        }
        self._requests = RequestHandlers(common | dict(self._handlers()), self._send_reply)
        self.on_msg(lambda _, content, __: self._requests.receive(content))
        CELLS.mark(self)

    def _likely_height(self, store: TileStore) -> int:
        """Return about how many CSS pixels the content of a view without a height of its own needs."""
        del store
        return 40

    def _csv(self, **place: Any) -> Answer:
        """Return the selected matrix, or a part of it; see `part_of_csv`."""
        return part_of_csv(self.store, **place), []

    def _copy(self, why: str = "") -> tuple[str, list[bytes]]:
        """Return the static fallback if the front-end code fails to load."""
        from attnwidgets.views.page.frame import copy_of

        return copy_of(self, str(why)), []

    def _own_options(self) -> dict[str, Any]:
        """Return the options that only this view has, checked against `self._explanations`."""
        return {}

    def _current_options(self) -> dict[str, Any]:
        """Return the options that the reader can change, as they are now."""
        return {name: self.options[name] for name in ("filters", *self._own_options())}

    def _handlers(self) -> Mapping[str, Handler]:
        """Return the handlers of this view's own requests, by topic; called once, by `__init__`."""
        return {}

    def _numbers(self) -> Kinds:
        """Return what gives the paths to each kind of number that this view shows, see `expressions`."""
        return {"cell": partial(cell_paths, self, self._trace, self._registered)}

    def _expressions(self) -> Iterator[dict[str, Any]]:
        """Yield the arguments for the pinned cell, whose expression a page contains."""
        pinned = self.selection.pinned
        for source in self.sources() if pinned is not None and min(pinned) >= 0 else ():
            state = self.selection
            head = "-" if source.heads is None else state.head
            fits = source.unit == pinned.unit and source.method == (self._options["method"] or state.method)
            if fits and state.layer in source.ready and pinned.query < source.shape[0]:
                cell = {"query": pinned.query, "key": pinned.key}
                yield {"of": "cell", "source": source.id, "layer": state.layer, "head": head, **cell}

    @property
    def trace(self) -> Any:
        """The trace that this view was given.

        Raises:
            AttributeError: It was given an explanation, which does not hold its trace.
        """
        if self._trace is None:
            raise AttributeError(
                f"this {self._VIEW} was given no trace; view.explanation() is what it shows."
            )
        return self._trace

    def explanation(self, method: str | None = None, *, stack: str | None = None) -> Any:
        """Return an explanation that this view shows or offers: a MixingMap or Attributions, not by units.

        Args:
            method: Its key, as in `view.selection.method`, also with a target: "lrp@1", or "lrp:layers" for
                its layers. None: the one that is shown.
            stack: "encoder", "decoder" or "cross", where there are several; None: the one that is shown.

        Raises:
            ValueError: The view has no such explanation, or has not computed it yet.

        Example:
            >>> view = aw.Heatmap(aw.trace(*aw.demo_model("encoder"), "The cat sat."))
            >>> weight = view.explanation("attention").value(2, 1, layer=0, head=3)
            >>> weight == view.trace.attention_layer(0)[3, 2, 1].item()
            True
        """
        wanted = method or self._options["method"] or self.selection.method
        sources = {source.method: source for source in self.store.sources()}
        if wanted not in sources:
            computed = ", ".join(map(repr, sources))
            raise ValueError(f"method={wanted!r} is not computed here; there is {computed or 'none'}.")
        stacks = {one.stack: one.explanation for one in self.store.sources() if one.method == wanted}
        if stack is None:
            stack = self._options["stack"] or self.selection.stack
            stack = stack if stack in stacks else next(iter(stacks))
        if stack not in stacks:
            raise ValueError(f"stack={stack!r} is not one of {', '.join(map(repr, stacks))}.")
        return stacks[stack]

    def answers_for_page(self) -> Iterable[tuple[str, dict[str, Any], Callable[[], Answer]]]:
        """Yield topic, arguments and a function for the answer, for every answer that a page contains."""
        return self._requests.for_page()

    def add_options(self, **options: Any) -> None:
        """Tell the browser side more options."""
        self._options |= options
        self.options = self._options | self._current_options() | options

    def _send_reply(self, reply: dict[str, Any], buffers: Sequence[bytes]) -> None:
        if self.comm is not None:  # the view may have been closed in the meantime
            self.send(reply, list(buffers))

    def _connect(self, *, fixed: bool) -> dict[str, Any]:
        """Return the store and the selection of this view's trace, moved to the layer, head and unit given.

        Args:
            fixed: Whether the view keeps showing its map, whatever method the selection moves to.
        """
        main = self._explanations[0]
        key = session(), self._trace_id
        store = STORES.get(key) or STORES.keep(key, TileStore())
        store.acquire(self._holder)
        selection = SELECTIONS.get(key)
        opening = self._opens(selection)
        keys = self._register(store, selection, opening)
        stack = main.stack or "self"
        base = next(s for s in store.sources() if (s.method, s.stack) == (keys[0], stack))
        if fixed:
            self._options |= {"method": keys[0], "stack": base.stack}
            if main.unit != base.unit:
                self._options["unit"] = main.unit
        self._options["methods"] = list(dict.fromkeys(keys)) if self._MANY_METHODS else []

        if selection is None:
            selection = Selection(
                store,
                opening=opening,
                layer=opening.layer,
                head="-" if opening.head is None else opening.head,
                unit=self._first_unit(),
                method=keys[0],
                stack=base.stack,
            )
            SELECTIONS.keep(key, selection)
        selection.acquire(self._holder)
        try:
            for name, value in self._wanted.items():
                if value is not None:
                    setattr(selection, name, value)
        except (IndexError, ValueError):
            selection.release(self._holder)
            store.release(self._holder)
            raise
        if selection.head == "-" and base.heads is not None:
            selection.head = base.heads[0]
        return {"store": store, "selection": selection}

    def _first_unit(self) -> str:
        """Return the unit that is shown at first, if nobody has chosen one."""
        units = self._options["units"]
        return str(units[0] if units else self._explanations[0].unit)

    def _opens(self, selection: Selection | None) -> Opening:
        """Return where this view opens: where its linked views did, or by its own map and what was given."""
        if selection is not None and selection.opening is not None:
            return selection.opening
        unit = self._wanted["unit"] or self._first_unit()
        return opening_of(self._explanations[0], unit, self._wanted["layer"], self._wanted["head"])

    def _register(self, store: TileStore, selection: Selection | None, opening: Opening) -> list[str]:
        """Register what this view shows and offers with the store; return its method keys."""
        layer, head = self._wanted["layer"], self._wanted["head"]
        if selection is not None:
            layer = selection.layer if layer is None else layer
        elif layer is None and head is None:
            layer, head = opening.layer, opening.head
        try:
            keys = store.register(
                self._explanations,
                self._holder,
                units=self._options["units"],
                first=(layer, head),
                all_heads=self._ALL_HEADS,
                menu=self._menu,
                targetable=self._targetable,
                overview=self.SHOWS_ALL_HEADS,
                opens=self._wanted["unit"] or (self._first_unit() if selection is None else selection.unit),
            )
        except BaseException:  # the method's error, or an interrupt while it computes
            store.release(self._holder)
            raise
        self._keys = frozenset(keys)
        self._registered = tuple(zip(keys, self._explanations, strict=False))
        return keys

    def follow_registry(self) -> None:
        """Offer methods registered since, if this view offers every method; called after every cell."""
        if self.comm is None or self._is_named or not self._menu or not outdated(self._menu, RECORDED):
            return
        self._menu = tuple(entries_of(self._menu[0].trace, (), RECORDED))
        self._options["methods"] = list(
            dict.fromkeys(self._register(self.store, self.selection, self._opens(self.selection)))
        )
        self.options = self._options | self._current_options()

    @property
    def name(self) -> str:
        """Name of the view, in Python and in the browser."""
        return self._VIEW

    def sources(self) -> list[Source]:
        """Return what this view offers: its methods in its units."""
        units = self._options["units"]
        sources = [source for source in self.store.sources() if base_of(source.method) in self._keys]
        return [source for source in sources if source.unit in units] or sources

    def complete(self, layers: Collection[int] | None = None) -> None:
        """Compute the layers that are missing, with a progress bar.

        These are layers of the map that the view was given, or of the methods that an Explorer was given by
        name; not of methods that its menu merely offers.

        Args:
            layers: Only these layers; None: all.
        """
        if not self._is_named:
            return
        for key, entry in self.store.menu.items():
            if key in self._keys and not entry.refusal:
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

    # -- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Remove this view, and whatever only it used, from the browser and the kernel's memory."""
        if self.comm is None:
            return
        CELLS.forget(self)
        self._requests.close()
        super().close()
        # ipywidgets disables the display of a closed widget, but a view in a variable may be shown again.
        self.__dict__.pop("_repr_mimebundle_", None)
        if self._own_layout:
            self.layout.close()
        self.selection.release(self._holder)
        self.store.release(self._holder)
        self.selection.forget(self.store)

    def _reopen(self) -> None:
        head = None if self.selection.head == "-" else self.selection.head
        self._wanted |= {"layer": self.selection.layer, "head": head}
        traits = self._connect(fixed=self._options["method"] is not None)
        if self._own_layout:
            self.layout.open()
        with self.hold_trait_notifications():
            self.runtime = Runtime.get((*self.PARTS, *COMMON_PARTS))
            self.store, self.selection = traits["store"], traits["selection"]
            self.options = self._options | self._current_options()
        self.open()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> Any:
        """Return the widget, a PNG for viewers without widgets (GitHub, nbviewer), and text."""
        if self.comm is None:
            self._reopen()
        CELLS.mark(self)
        self.opening = self._requests.opening(OPENING_BYTES)
        bundle = super()._repr_mimebundle_(include=include, exclude=exclude, **kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        if "image/png" not in (exclude or ()):
            data["image/png"] = base64.b64encode(self._png()).decode("ascii")
            metadata = {**metadata, "image/png": {"alt": self.describe()}}
        return data, metadata

    def describe(self) -> str:
        """Return one or two sentences on what this view shows, from its numbers: layer, head and filters.

        They are those of `Explanation.describe`, and the alternative text of the static picture, of figures
        and for screen readers. No layer is computed for them.
        """
        from attnwidgets.views.still.alt_text import words_of

        return words_of(self)

    def _png(self) -> bytes:
        from attnwidgets.explanations.results.pictures import png
        from attnwidgets.views.still.matrices import overview_png
        from attnwidgets.views.still.view_state import ViewState

        if ViewState.of(self).source.long:  # the selected matrix instead of a layer
            return overview_png(self)
        shown = self._explanations[0]
        # A static picture is not worth running the model for.
        ready = getattr(shown, "computed_layers", None)
        return png(shown if ready is None else shown.select(layer=ready))

    def __repr__(self) -> str:
        return f"{self._VIEW}({self._explanations[0]!r})"

    # -- leaving -----------------------------------------------------------------------------------

    def save(
        self,
        path: str | Path,
        *,
        columns: Literal[1, 2] = 2,
        theme: ThemeName = "light",
        dpi: int = 300,
    ) -> Path:
        """Write what this view shows now as a figure: selected layer, head and pinned cell, with the filters.

        The figure is the picture with its title and legend, without controls; it needs no browser. Its
        alternative text, `describe()`, is in the file. In an SVG and a PDF text stays text, and no label is
        ever read as a formula; settings of matplotlib do not matter. The view's menu saves the same figure.

        Args:
            path: The file; its suffix gives the format: ".svg", ".pdf" or ".png".
            columns: How many columns of a page it is wide: 1 (3.3 inches) or 2 (6.9 inches).
            theme: The page's colours: "light" or "dark".
            dpi: Dots per inch of a PNG.

        Raises:
            TypeError: This kind of view draws nothing.
            ValueError: Another suffix, number of columns or theme.
        """
        from attnwidgets.views.still.saving import save_figure

        return save_figure(partial(self._figure, columns, theme), self._names, path, dpi=dpi)

    def _figure(self, columns: int = 2, theme: str = "light") -> Figure:
        """Return what this view shows now as a matplotlib figure; see `save`."""
        from attnwidgets.figures.theme import theme_of

        colours = theme_of(theme)
        return self._still(colours).figure(columns, colours)

    def _still(self, theme: Theme) -> Sheet:
        """Return what a figure of this view consists of; a view that draws something overrides this."""
        del theme
        raise TypeError(
            f"{self._VIEW} draws nothing of its own that could be saved. Save a view of the numbers, such as "
            "aw.Heatmap, aw.TokenStrip or aw.Explorer."
        )

    def _names(self) -> tuple[str, str]:
        """Return the title and the alternative text of a figure."""
        return str(self.options["title"]) or self._VIEW, self.describe()

    def _figure_file(self, format: str, columns: int = 2, theme: str = "light") -> Answer:  # noqa: A002
        """Answer with a figure as a file, in the format "svg", "pdf" or "png"; see `save`."""
        from attnwidgets.views.still.saving import figure_bytes

        draw = partial(self._figure, columns, theme)
        return {"format": format}, [figure_bytes(draw, self._names, f".{format}")]

    def to_html(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        budget: int | None = None,
        heads: Sequence[int | str] | str = "all",
        layers: Sequence[int] | str = "all",
    ) -> Path:
        """Write this view as one page that needs neither kernel nor network; see `aw.to_html`."""
        from attnwidgets.views.page.html import BUDGET, to_html

        return to_html(
            [self], path, title=title, budget=BUDGET if budget is None else budget, heads=heads, layers=layers
        )

    def frame(self, height: int = 640) -> Page:
        """Return a copy as a page in a frame, for the last line of a cell: it needs no widget manager.

        For front ends that cannot display widgets, or do not link them between cells. Where the page would
        need a kernel, it says so.

        Args:
            height: Height of the frame in pixels; a longer page scrolls.
        """
        from attnwidgets.views.page.frame import page_of

        return page_of(self, height)


def link(first: View, *others: View) -> None:
    """Let views of different traces share one selection, the first view's.

    Where a view lacks the selected layer, head or position, it shows the nearest one it has.

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
        if not isinstance(view, View):
            raise TypeError(f"link() takes views, not {type(view).__name__}.")
    for view in others:
        before = view.selection
        if before is first.selection:
            continue
        first.selection.covers(view.store)
        first.selection.acquire(view._holder)  # noqa: SLF001 - the same module
        view.selection = first.selection
        before.release(view._holder)  # noqa: SLF001


def checked_height(view: str, height: Any) -> int | None:
    """Return the height of a view in CSS pixels; None: the view's own.

    Raises:
        TypeError: It is not a whole number.
        ValueError: It is out of range.
    """
    if height is None:
        return None
    if isinstance(height, bool) or not isinstance(height, int):
        raise TypeError(f"{view}(height={height!r}) is not a whole number of CSS pixels.")
    if not _LOWEST <= height <= _TALLEST:
        raise ValueError(f"{view}(height={height}): give {_LOWEST} to {_TALLEST} CSS pixels, or None.")
    return height


def _names(argument: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TypeError(f"{argument}={given!r} is one name; give a list: {argument}=[{given!r}].")
    return tuple(given)
