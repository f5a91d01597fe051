"""Notebooks: one more cell packs the views that a notebook shows, and the outputs become their places.

It serves myst-nb and nbsphinx: both write a widget as the same script element.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util import logging

from attnwidgets._version import __version__
from attnwidgets.sphinx.cell import MIME
from attnwidgets.sphinx.nodes import ViewData, ViewPlace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docutils.nodes import Element
    from sphinx.application import Sphinx

LOGGER = logging.getLogger(__name__)
_TAG = "attnwidgets-views"
_WIDGET = "application/vnd.jupyter.widget-view+json"
_SCRIPT = re.compile(r'\s*<script type="(?P<mime>[^"]+)">(?P<json>.*)</script>\s*', re.DOTALL)
_PICTURES = ("image/svg+xml", "image/png", "text/plain")  # of an output, the best first
_CELLS = {"cell", "nbinput", "nboutput"}


def add_cell(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the cell to a notebook that is about to be read and uses this package."""
    code = (
        "from attnwidgets.sphinx.cell import shown_views\n\n"
        f"shown_views({app.config.attnwidgets_budget})  # attnwidgets {__version__}"
    )
    text = source[0]
    if "attnwidgets" not in text:
        return
    if str(app.env.doc2path(name)).endswith(".ipynb"):
        source[0] = _with_cell(text, code)
    elif re.match(r"---\n(?:.+\n)*? *(?:file_format: mystnb|format_name: myst)\b", text):
        source[0] = f"{text.rstrip()}\n\n```{{code-cell}}\n:tags: [{_TAG}]\n{code}\n```\n"


def _with_cell(text: str, code: str) -> str:
    """Return the text of a notebook with one more cell; what is no notebook as it is."""
    try:
        notebook = json.loads(text)
        cells = notebook["cells"]
    except (ValueError, KeyError, TypeError):
        return text
    if any("attnwidgets" in "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
        cell: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": [], "source": code}
        identity = {"id": _TAG} if (notebook["nbformat"], notebook.get("nbformat_minor", 0)) >= (4, 5) else {}
        cells.append(cell | identity | {"metadata": {"tags": [_TAG]}})
    return json.dumps(notebook)


def place_views(app: Sphinx, document: nodes.document) -> None:
    """Put the places of views where a document has the outputs of widgets, and keep what they need."""
    packs = []
    for cell, found in list(_scripts(document, MIME)):
        packs.append(found)
        _cell_of(cell).parent.remove(_cell_of(cell))
    places = {model: names for held in packs for model, names in held["places"].items()}
    heights = {
        name: model["state"].get("options", {}).get("height")
        for held in packs
        for name, model in held["state"]["models"].items()
    }
    widgets = list(_scripts(document, _WIDGET))
    others = 0
    for output, found in widgets:
        ours = [ViewPlace(model=name, height=heights[name]) for name in places.get(found.get("model_id"), ())]
        shown = _bundle_of(output)
        for place in ours:
            place.extend(_picture_in(shown) if len(ours) == 1 else ())
        if ours:
            shown.parent.replace(shown, ours)
        others += not ours
    for held in packs:
        document += ViewData(packs=[held])
    if packs and not others:
        # myst-nb writes what ipywidgets needs, which is then of no use.
        getattr(app.env, "nb_metadata", {}).get(app.env.docname, {}).pop("js_files", None)


def _scripts(document: nodes.document, mime: str) -> Iterator[tuple[Element, Any]]:
    """Yield the raw nodes that are one script element of a type, with what is in it."""
    for node in document.findall(nodes.raw):
        found = (
            _SCRIPT.fullmatch(node.rawsource or node.astext()) if "html" in node.get("format", "") else None
        )
        if found and found["mime"] == mime:
            yield node, json.loads(found["json"])


def _cell_of(node: Element) -> Element:
    """Return the cell around an output: the outermost node that is a part of it."""
    around = node
    while not isinstance(node, (nodes.document, nodes.section)):
        if _CELLS & set(node.get("classes", ())):
            around = node
        node = node.parent
    return around


def _bundle_of(output: Element) -> Element:
    """Return the node that holds all forms of an output, or the output itself."""
    at = output
    while not isinstance(at, (nodes.document, nodes.section)):
        if at.get("nb_element") == "mime_bundle":
            return at
        at = at.parent
    return output


def _picture_in(output: Element) -> list[nodes.Node]:
    """Return the best of the other forms of an output, for readers without JavaScript and for print."""
    forms = {form.get("mime_type"): form for form in output.children if isinstance(form, nodes.container)}
    chosen = next((forms[mime] for mime in _PICTURES if mime in forms), None)
    return [] if chosen is None else [child.deepcopy() for child in chosen.children]
