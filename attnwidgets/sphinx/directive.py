"""The directive `attnwidgets`: a view of a saved explanation; and the nodes of documents with views.

A view leaves a `ViewPlace` in the document, the element in which the browser draws it. When the document is
read, `add_data` packs its views into a `ViewData`, written as scripts at the end of the page.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri

import attnwidgets as aw
from attnwidgets._errors import suggest
from attnwidgets.views.base.view import View
from attnwidgets.views.page.contents import Choice
from attnwidgets.views.page.packing import Packed, pack
from attnwidgets.views.page.script import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from docutils.nodes import Element, Node
    from sphinx.application import Sphinx

    from attnwidgets.explanations.explanation import Explanation

LOGGER = logging.getLogger(__name__)
KEY = "attnwidgets"
"""Key of a document's views in Sphinx's `temp_data` while the document is read."""

PREFIX = "file-"
"""Prefix of the names of models that come from files."""


def files_of(app: Sphinx) -> Path:
    """Return the folder from which Sphinx takes the runtime and the models of a site."""
    return Path(app.doctreedir) / "attnwidgets"


def literal(text: str | None) -> Any:
    """Return the value of an option: a number, a list, ... as Python writes it, else the text itself.

    An option without a value is True.
    """
    if text is None or not text.strip():
        return True
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


class AnyOption(dict[str, "Callable[[str | None], Any]"]):
    """The options of a directive that takes every name: the view itself refuses unknown options."""

    def __missing__(self, name: str) -> Callable[[str | None], Any]:
        return literal


class ViewDirective(SphinxDirective):
    """A view of a saved explanation: its file, and as options `view` and those of the view itself."""

    required_arguments = 1
    final_argument_whitespace = True  # in the name of a file
    option_spec: ClassVar[AnyOption] = AnyOption(view=str)

    def run(self) -> list[Node]:
        """Return a `ViewPlace`; without a view, [] after a warning with file and line."""
        try:
            view = self._view()
        except (OSError, ValueError, TypeError, IndexError) as error:
            words = " ".join(str(error).split())
            LOGGER.warning("attnwidgets: %s", words, location=self.get_location(), type=KEY, subtype="view")
            return []
        views = self.env.temp_data.setdefault(KEY, [])
        views.append(view)
        view_node = ViewPlace(model=f"{PREFIX}view{len(views) - 1}", height=view.options.get("height"))
        view_node += nodes.paragraph("", view.describe())
        self.set_source_info(view_node)
        return [view_node]

    def _view(self) -> View:
        name = self.arguments[0]
        path, file = self.env.relfn2path(name)
        if not Path(file).exists():
            raise FileNotFoundError(f"file {name!r} does not exist; its path would be {path}")
        self.env.note_dependency(path)
        options = dict(self.options)
        kind = options.pop("view", None)
        explanation = aw.load(file)
        return explanation.view(**options) if kind is None else _view_of_kind(kind, explanation, options)


def _view_of_kind(kind: str, explanation: Explanation, options: dict[str, Any]) -> View:
    names = [(space, name) for space in (aw, aw.views) for name in dir(space)]
    kinds = {name: result for space, name in names if _is_view(result := getattr(space, name))}
    if kind not in kinds:
        raise ValueError(f"unknown view {kind!r}.{suggest(kind, kinds)} The views are {', '.join(kinds)}.")
    view: View = kinds[kind](explanation, **options)
    return view


def _is_view(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, View) and value is not View


def add_data(app: Sphinx, document: nodes.document) -> None:
    """Add the packed data of its directives' views to a document."""
    views = app.env.temp_data.pop(KEY, [])
    if not views:
        return
    try:
        packed = pack(views, Choice.of(views, "all", "all"), app.config.attnwidgets_budget, PREFIX)
    finally:
        for view in views:
            view.close()
    document += ViewData(packs=[packed.described()])


class ViewPlace(nodes.General, nodes.Element):
    """The element of a view: the name of its model, and its text for print and without JavaScript."""


class ViewData(nodes.Invisible, nodes.Element):
    """The data of a page's views: packs, as `Packed` describes them."""


def visit_place(translator: Any, node: Element) -> None:
    """Write the element of a view into a page, and open its text for readers without JavaScript."""
    height = f' style="min-height:{node["height"]:d}px"' if node.get("height") else ""
    live = " data-live" if node.get("live") else ""
    place = f'<div class="aw-view"{live} data-model="{node["model"]}"{height}></div>'
    translator.body.append(f"{place}\n<noscript>")


def depart_place(translator: Any, node: Element) -> None:
    """Close the text for readers without JavaScript."""
    del node
    translator.body.append("</noscript>\n")


def visit_data(translator: Any, node: Element) -> None:
    """Write the data of its views into a page, as JSON and text that no browser runs."""
    packed = joined(node["packs"])
    if "live" in packed.state:
        here = translator.builder.get_target_uri(translator.builder.current_docname)
        packed.state["live"] = [
            live | {"files": files | {"folder": relative_uri(here, f"_static/{files['folder']}")}}
            for live in packed.state["live"]
            for files in [live["files"]]
        ]
    state = f'<script type="application/json" id="aw-state">{json_text(packed.state)}</script>'
    translator.body.append(
        "\n".join([state, *packed.elements(first=True), *packed.elements(first=False), ""])
    )
    raise nodes.SkipNode


def ignore(translator: Any, node: Element) -> None:
    """Write nothing around a node: its children are written."""
    del translator, node


def skip(translator: Any, node: Element) -> None:
    """Write neither a node nor its children."""
    ignore(translator, node)
    raise nodes.SkipNode


def joined(packs: Iterable[dict[str, Any]]) -> Packed:
    """Return several packs as one; no two of them share a name."""
    state: dict[str, Any] = {}
    blobs: dict[str, str] = {}
    first: frozenset[str] = frozenset()
    for item in packs:
        for name, value in item["state"].items():
            # Integers are settings, the same in all packs; dicts and lists are merged.
            earlier = state.get(name, type(value)())
            state[name] = (
                value
                if isinstance(value, int)
                else {**earlier, **value}
                if isinstance(value, dict)
                else [*earlier, *value]
            )
        blobs |= item["blobs"]
        first |= frozenset(item["first"])
    return Packed(state, blobs, first, "")
