"""View: the base class of every view.

A view is an anywidget of options. Its matrices are in the tile store that it shares with the views of its
trace, which the browser reads by tiles. Requests for everything else are answered by `_all_handlers`; a page
contains some of their answers, since it has no kernel.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial, reduce
from importlib.util import find_spec
from inspect import signature
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from traitlets import Bytes, Dict, Unicode

from attnwidgets._errors import refuse_unknown
from attnwidgets._notebook import draws_no_views
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.tracing.retrace import refusal
from attnwidgets.views.base.accepts import RECORDED, entries_of, outdated
from attnwidgets.views.base.expressions import cell_paths, expression, part_of_csv
from attnwidgets.views.base.links import address, claim_paths, link_paths
from attnwidgets.views.base.options import (
    DEFAULTS,
    FILTERS,
    PLAIN_OPTIONS,
    ViewOptions,
    checked_filters,
    checked_height,
    checked_marks,
    checked_names,
    write_out,
)
from attnwidgets.views.base.shared_models import CELLS, send_stand_in
from attnwidgets.views.base.texts import Texts, follow, show
from attnwidgets.views.still.drawn_view import DrawnView
from attnwidgets.views.wire.handlers import Handler, RequestHandlers
from attnwidgets.views.wire.runtime import COMMON_PARTS, Runtime, stub
from attnwidgets.views.wire.widget import WidgetTrait

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from typing_extensions import Self, Unpack

    from attnwidgets.views.base.expressions import Kinds
    from attnwidgets.views.base.options import FilterOptions, TitleOptions
    from attnwidgets.views.page.frame import Page
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.store import TileStore

NO_VIEWS = """Widgets are turned off in this session of Colab, so only a picture is shown. For the view, run
    from google.colab import output; output.enable_custom_widget_manager()
and then this cell again; or end the cell with view.frame()."""
"""Shown instead of a view."""


class View(DrawnView):
    """A linked picture of a trace or an explanation.

    Views of one trace share a `Selection` (`view.selection`) and a tile store, also across cells; `aw.link`
    joins views of different traces. A subclass sets `_VIEW`, `NEEDS` and `_OPTIONS`, and overrides
    `_own_options`, `_handlers` and `_still` as it needs.

    Args:
        shown: A MixingMap, Attributions or a trace (whose attention is shown). A list of Attributions over
            the same elements is shown as rows on one scale, each named by its target.
        marks: Outlined cells `(query, key)`, or outlined elements, counted in the displayed unit.
        methods: Methods the reader can choose from, by name; the view opens with the first. Empty: every
            method.
        **options: The options in `_OPTIONS`.

    Raises:
        TypeError: A keyword is unknown (the message names the nearest), or `shown` cannot be shown.
        ValueError, IndexError: An option is out of its range; the message names the range.
    """

    _OPTIONS: ClassVar[type[TitleOptions]] = ViewOptions  # the options that it takes, of `views.base.options`
    _HEIGHT: ClassVar[int | None] = None  # CSS pixels that it always has; None: by its content
    _MARKS: ClassVar[str] = ""  # "cells", "elements" or "both", if it outlines any
    CLAIMS: ClassVar[bool] = False  # whether it makes claims about heads from pinned cells

    inner: tuple[View, ...] = ()  # views that it shows inside, each in a frame
    was_shown = False  # by a cell
    _moves = 0  # `selection.moves` when the expressions were last sent

    requests: RequestHandlers
    _made_by: tuple[type, Any]  # its class, and its first argument

    _esm = Unicode().tag(sync=True)
    runtime = WidgetTrait().tag(sync=True)
    options = Dict().tag(sync=True, echo_update=False)
    opening: Any = Bytes(None, allow_none=True).tag(sync=True)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make a view that remembers its options: those of the same view of another text."""
        parameters = signature(cls).parameters.values()
        names = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        if len(args) > 1 and any(each.kind is each.VAR_POSITIONAL for each in parameters):
            args = ([*args],)
        if len(args) > len(names):
            raise TypeError(
                f"{cls.__name__}() takes {', '.join(names)} without a name, and got {len(args)} arguments; "
                f"several go into a list: {cls.__name__}([first, second])."
            )
        self = super().__new__(cls, *args, **kwargs)
        self._holder = uuid4().hex
        first = names[0] if names else ""
        shown = args[0] if args else kwargs.get(first)
        self._made_with = args[1:], {name: value for name, value in kwargs.items() if name != first}
        self._made_by = cls, shown
        if is_trace(shown):
            self._texts = Texts([shown])
        return self

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
        methods, units = checked_names("methods", methods), checked_names("units", given["units"])
        self.content = self._content_of(shown, methods, units)
        self._options = PLAIN_OPTIONS | {
            "indexBase": given["index_base"],
            "title": str(given["title"]),
            "marks": checked_marks(self._VIEW, self._MARKS, marks, (1, *self.content.main.shape)[-2:]),
            "methods": [],
            "units": list(units),
            "height": checked_height(self._VIEW, given["height"]) or self._HEIGHT,
            "filters": checked_filters(self._VIEW, **{name: given[name] for name in FILTERS}),
        }
        self._options |= self._own_options()
        self._options["makesClaims"] = self.CLAIMS and not refusal(self.content.trace)
        self._start = {name: given[name] for name in ("layer", "head", "unit")}
        self._begin(given["layout"])

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.NEEDS = reduce(or_, (vars(base)["NEEDS"] for base in cls.__mro__ if "NEEDS" in vars(base)))
        bases = [base for base in cls.__mro__[1:] if issubclass(base, View)]
        inherited = not any("__init__" in vars(base) for base in (cls, *bases[:-1]))
        offered = {"marks": cls._MARKS, "methods": cls._MANY_METHODS} if inherited else {}
        write_out(cls, cls._OPTIONS, bases, [name for name, is_offered in offered.items() if not is_offered])

    @classmethod
    def _with_defaults(cls, options: FilterOptions | TitleOptions) -> dict[str, Any]:
        """Return the options with the defaults of those not given; a TypeError for unknown options."""
        unknown = [name for name in options if name not in cls._OPTIONS.__annotations__]
        refuse_unknown(cls._VIEW, unknown, signature(cls).parameters)
        return {**DEFAULTS, **options}

    def _begin(self, layout: Any) -> None:
        """Open the widget, or show another text in it, with the store and the selection of its link."""
        scripts = (*self.needs.scripts, *COMMON_PARTS)
        runtime = Runtime.get(scripts)  # first: the browser imports it meanwhile
        self._link = self._join(self._start)
        store, selection = self._link.store, self._link.selection
        if "requests" in vars(self):
            self.store, self.selection = store, selection
            self.options = dict(self._options)
            self.requests.replace(self._all_handlers())
            return
        super().__init__(
            _esm=stub(self._VIEW, scripts, self._likely_height(store)),
            options=dict(self._options),
            runtime=runtime,
            store=store,
            selection=selection,
            **({} if layout is None else {"layout": layout}),
        )
        self._own_layout = layout is None
        if self._texts is not None:
            follow(self)
        self.requests = RequestHandlers(self._all_handlers(), self._send_if_open)
        self.on_msg(lambda _, content, __: self.requests.receive(content))
        CELLS.mark(self)

    def _all_handlers(self) -> dict[str, Handler]:
        """Return the handlers of every view, and those of this view."""
        common = {
            "csv": Handler(self._csv),
            "figure": Handler(self._figure_file, runs_model=True),
            "page": Handler(self._copy, runs_model=True),
            "stand_in": Handler(lambda: send_stand_in(self.store, self.content.trace), runs_model=True),
            "expression": Handler(
                partial(expression, self._expressible), for_page=self._expressions, prefetched=tuple
            ),
        }
        return common | dict(self._handlers())

    def _likely_height(self, store: TileStore) -> int:
        """Return about how many CSS pixels the content of a view without a `height` needs."""
        del store
        return 28

    def _csv(self, **arguments: Any) -> Answer:
        """Return the selected matrix, or a part of it; see `part_of_csv`."""
        return part_of_csv(self.store, **arguments), []

    def _copy(self, why: str = "") -> Answer:
        """Return the static fallback if the front-end code fails to load."""
        from attnwidgets.views.page.frame import copy_of

        return copy_of(self, str(why)), []

    def _own_options(self) -> dict[str, Any]:
        """Return the options that only this view has, checked against `self.content`."""
        return {name: value for panel in self.panels for name, value in panel.options().items()}

    def _current_options(self) -> dict[str, Any]:
        """Return the options that the reader can change, as they are now."""
        names = ("filters", *self._own_options())
        return {name: self.options[name] for name in names if name in self.options}

    def _handlers(self) -> Mapping[str, Handler]:
        """Return the handlers of the requests that only this view has, by topic; called by `__init__`."""
        return {topic: handler for panel in self.panels for topic, handler in panel.handlers().items()}

    def _numbers(self) -> Kinds:
        """Return the functions that give the paths to each kind of number here; see `expressions`."""
        shown = tuple(zip(self._link.keys, self.content.explanations, strict=False))
        kinds: Kinds = {"cell": partial(cell_paths, self, self.content.trace, shown)}
        return kinds | ({"claim": partial(claim_paths, self)} if self.CLAIMS else {})

    def _expressible(self) -> Kinds:
        """Return the functions for all code that can be copied: of the numbers, and of the view itself."""
        return {**self._numbers(), "place": partial(link_paths, self)}

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
    def traces(self) -> tuple[Any, ...]:
        """The traces of the texts that this view can show: those it was given, then those typed since."""
        return () if self._texts is None else tuple(self._texts.traces)

    def show_text(self, text: Any) -> None:
        """Show another text, in this view and in those linked with it, as the reader does by typing it.

        Layer, head, method and filters stay; pins stay where the same token is still there. Your objects are
        unchanged: `view.trace` is the trace of the text that is shown. A view of a map made from a trace
        keeps its map.

        Args:
            text: A text, which is traced as the view's first trace was; an index of `traces`; or a trace.

        Raises:
            TypeError: This view was given no trace, or `text` is something else.
            IndexError: The index is out of range.
            ValueError: No other text can be traced (the message says why), or the text is empty or too long.

        Example:
            >>> view = aw.Heatmap(aw.trace(*aw.demo_model("encoder"), "He sat down."))
            >>> view.show_text("She sat down.")
            >>> view.trace.tokens
            ('[CLS]', 'she', 'sat', 'down', '.', '[SEP]')
            >>> view.show_text(0)
            >>> view.trace.text
            'He sat down.'
        """
        show(self, text)

    def add_options(self, **options: Any) -> None:
        """Tell the browser side more options."""
        self._options |= options
        self.options = self._options | self._current_options() | options

    def _send_if_open(self, reply: dict[str, Any], buffers: Sequence[bytes]) -> None:
        if self.comm is not None:
            self.send(reply, list(buffers))

    @property
    def name(self) -> str:
        """Name of the view, in Python and in the browser."""
        return self._VIEW

    def follow_cell(self) -> None:
        """Follow the methods registered and the selection made in a cell; called after every cell."""
        if self.comm is None:
            return
        self._follow_registry()
        if self.was_shown and self._moves != self.selection.moves:
            self._send_along()

    def stand_ready(self) -> None:
        """Become a view that is shown, alone or inside another, and open again if it was closed."""
        if self.comm is None:
            self._reopen()
        CELLS.mark(self)
        self.was_shown = True
        self._send_along()

    def nested(self) -> Iterator[View]:
        """Yield this view, and all that are shown inside it."""
        yield self
        for view in self.inner:
            yield from view.nested()

    def inside(self) -> dict[str, Any]:
        """Return how a view that shows this view names it to the browser: `Inside` of inside.ts."""
        return {"name": self.name, "model": f"anywidget:{self.model_id}", "parts": list(self.needs.scripts)}

    def _send_along(self) -> None:
        """Send all that the selection needs, for a page without a kernel that is made of this notebook."""
        self._moves = self.selection.moves
        if self.needs.matrices and self.sources():  # views of tables and of features have none
            state = self.presentation
            self.store.send_along(self._holder, (state.source.id, state.layer, state.head))
        self.opening = self.requests.opening()

    def _follow_registry(self) -> None:
        """Offer methods registered since, if this view offers every method."""
        content = self.content
        if content.is_named or not content.menu or not outdated(content.menu, RECORDED):
            return
        self.content = replace(content, menu=tuple(entries_of(content.trace, (), RECORDED)))
        self._link = self._join(dict.fromkeys(self._start))  # nothing moves
        self.add_options(methods=self._options["methods"])

    # -- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Remove this view, and whatever only it used, from the browser and the kernel's memory."""
        if self.comm is None:
            return
        CELLS.forget(self)
        self.requests.close()
        super().close()
        # ipywidgets disables the display of a closed widget, but a view in a variable may be shown again.
        self.__dict__.pop("_repr_mimebundle_", None)
        if self._own_layout:
            self.layout.close()
        self._leave()

    def _reopen(self) -> None:
        head = None if self.selection.head == "-" else self.selection.head
        self._start |= {"layer": self.selection.layer, "head": head}
        self._link = self._join(self._start)
        if self._own_layout:
            self.layout.open()
        with self.hold_trait_notifications():
            self.runtime = Runtime.get((*self.needs.scripts, *COMMON_PARTS))
            self.store, self.selection = self._link.store, self._link.selection
            self.options = self._options | self._current_options()
        self.open()

    _ipython_display_ = None  # ipywidgets 7 would display the bare widget by it

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> Any:
        """Return the widget, a PNG for viewers without widgets (GitHub, nbviewer), and text.

        The PNG is left out where it would run the model, and where matplotlib is missing, as on a page in the
        browser that did not wait for it.
        """
        self.stand_ready()
        bundle = super()._repr_mimebundle_(include=include, exclude=exclude, **kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        if "image/png" not in (exclude or ()) and find_spec("matplotlib"):
            picture = self._png()
            if picture is not None:
                data["image/png"] = base64.b64encode(picture).decode("ascii")
                metadata = {**metadata, "image/png": {"alt": self.describe()}}
        return (_in_place_of_views(data), {}) if draws_no_views() else (data, metadata)

    def __repr__(self) -> str:
        return f"{self._VIEW}({self.content.main!r})"

    # -- leaving -----------------------------------------------------------------------------------

    def link(self, page: str | PathLike[str] | None = None, *, number: int = 1) -> str:
        """Return the address or code of this view at its method, unit, layer, head, pins, span and target.

        The menu's **Copy link** copies the same. To let views follow each other instead, see `aw.link`.
        Filters, colours and the order of heads are not in a link, and interventions only in a line of code.

        Args:
            page: A page with this view, written by `to_html`: its file or its address. None: a line of code.
            number: Which view of the page it is, counted from 1, from top to bottom.

        Returns:
            The address, such as `"trace.html#method=rollout&unit=word&layer=3&head=5&pin=3,1"`, counted from
            0. A page with another text or other methods names the parts that it lacks, and shows the rest. Or
            a line of code in the names of the notebook, such as `aw.Explorer(trace).at(layer=3, head=5)`;
            outside of a notebook the view is called `view`.

        Raises:
            ValueError: `number` is below 1.

        Example:
            >>> view = aw.Heatmap(aw.trace(*aw.demo_model("encoder"), "The cat sat."))
            >>> view.at(layer=3, head=5, pins=[(3, 1)]).link("cat.html")
            'cat.html#method=attention&unit=token&layer=3&head=5&pin=3,1&of=a6e92b68'
        """
        if page is None:
            return str(expression(self._expressible, "place")[0]["code"])
        if number < 1:
            raise ValueError(f"number={number}: views of a page are counted from 1.")
        return address(self, page, number)

    def to_html(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        budget: int | None = None,
        heads: Sequence[int | str] | str = "all",
        layers: Sequence[int] | str = "all",
        live: bool = False,
        weights: str = "auto",
    ) -> Path:
        """Write this view as a page that needs neither kernel nor network; see `aw.to_html`."""
        from attnwidgets.views.page.html import BUDGET, to_html

        budget = BUDGET if budget is None else budget
        given: dict[str, Any] = {"heads": heads, "layers": layers, "live": live, "weights": weights}
        return to_html([self], path, title=title, budget=budget, **given)

    def frame(self, height: int = 640) -> Page:
        """Return a copy as a page in a frame, for the last line of a cell: it needs no widget manager.

        For front ends that cannot display widgets, or do not link them between cells. Where the page would
        need a kernel, it says so.

        Args:
            height: Height of the frame in pixels; a longer page scrolls.
        """
        from attnwidgets.views.page.frame import page_of

        return page_of(self, height)


def _in_place_of_views(data: Mapping[str, str]) -> dict[str, str]:
    """Return the text that says how to see a view, with its picture, if there is one."""
    picture = data.get("image/png", "")
    image = picture and f'<img alt="" src="data:image/png;base64,{picture}">'
    return {"text/plain": NO_VIEWS, "text/html": f"<pre>{NO_VIEWS}</pre>{image}"}
