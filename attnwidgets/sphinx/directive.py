"""The directive `attnwidgets`: a view of a saved explanation; and the nodes of documents with views."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

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
"""Under which a document keeps its views while it is read."""

PREFIX = "file-"
"""What the names of models that come from files begin with."""


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
    """The options of a directive that takes every name: the view that is made says which it knows."""

    def __missing__(self, name: str) -> Callable[[str | None], Any]:
        return literal


class ViewDirective(SphinxDirective):
    """A view of a saved explanation: its file, and as options `view` and those of the view itself."""

    required_arguments = 1
    final_argument_whitespace = True  # in the name of a file
    option_spec: ClassVar[AnyOption] = AnyOption(view=str)

    def run(self) -> list[Node]:
        """Return the place of the view; nothing, and a warning with file and line, if there is none."""
        try:
            view = self._view()
        except (OSError, ValueError, TypeError, IndexError) as error:
            words = " ".join(str(error).split())
            LOGGER.warning("attnwidgets: %s", words, location=self.get_location(), type=KEY, subtype="view")
            return []
        views = self.env.temp_data.setdefault(KEY, [])
        views.append(view)
        place = ViewPlace(model=f"{PREFIX}view{len(views) - 1}", height=view.options.get("height"))
        place += nodes.paragraph("", view.describe())
        self.set_source_info(place)
        return [place]

    def _view(self) -> View:
        given = self.arguments[0]
        written, file = self.env.relfn2path(given)
        if not Path(file).exists():
            raise FileNotFoundError(f"file {given!r} does not exist; its path would be {written}")
        self.env.note_dependency(written)
        options = dict(self.options)
        kind = options.pop("view", None)
        explanation = aw.load(file)
        return explanation.view(**options) if kind is None else _made(kind, explanation, options)


def _made(kind: str, explanation: Explanation, options: dict[str, Any]) -> View:
    listed = [(space, name) for space in (aw, aw.views) for name in dir(space)]
    known = {name: result for space, name in listed if _is_view(result := getattr(space, name))}
    if kind not in known:
        raise ValueError(f"unknown view {kind!r}.{suggest(kind, known)} The views are {', '.join(known)}.")
    view: View = known[kind](explanation, **options)
    return view


def _is_view(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, View) and found is not View


def keep(app: Sphinx, document: nodes.document) -> None:
    """Add to a document what its page holds for the views of its directives."""
    views = app.env.temp_data.pop(KEY, [])
    if not views:
        return
    try:
        held = pack(views, Choice.of(views, "all", "all"), app.config.attnwidgets_budget, PREFIX)
    finally:
        for view in views:
            view.close()
    document += ViewData(packs=[held.described()])


class ViewPlace(nodes.General, nodes.Element):
    """The place of a view: the name of its model, and what stands there without JavaScript and in print."""


class ViewData(nodes.Invisible, nodes.Element):
    """What a page holds for its views: packs, as `Packed` describes them."""


def visit_place(translator: Any, node: Element) -> None:
    """Write a place into a page, with what readers without JavaScript see."""
    height = f' style="min-height:{node["height"]:d}px"' if node.get("height") else ""
    translator.body.append(f'<div class="aw-view" data-model="{node["model"]}"{height}></div>\n<noscript>')


def depart_place(translator: Any, node: Element) -> None:
    """End what readers without JavaScript see."""
    del node
    translator.body.append("</noscript>\n")


def visit_data(translator: Any, node: Element) -> None:
    """Write into a page what it holds for its views; all of it is text that no browser runs."""
    held = joined(node["packs"])
    state = f'<script type="application/json" id="aw-state">{json_text(held.state)}</script>'
    translator.body.append("\n".join([state, *held.elements(first=True), *held.elements(first=False), ""]))
    raise nodes.SkipNode


def ignore(translator: Any, node: Element) -> None:
    """Write nothing: what a view's place contains stands for it."""
    del translator, node


def skip(translator: Any, node: Element) -> None:
    """Write nothing of a node."""
    ignore(translator, node)
    raise nodes.SkipNode


def joined(packs: Iterable[dict[str, Any]]) -> Packed:
    """Return several packs as one; no two of them share a name."""
    state: dict[str, Any] = {}
    blobs: dict[str, str] = {}
    first: frozenset[str] = frozenset()
    for item in packs:
        for name, value in item["state"].items():
            known = state.get(name, type(value)())
            state[name] = (
                value
                if isinstance(value, int)
                else {**known, **value}
                if isinstance(value, dict)
                else [*known, *value]
            )
        blobs |= item["blobs"]
        first |= frozenset(item["first"])
    return Packed(state, blobs, first, "")
