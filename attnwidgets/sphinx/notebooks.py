"""Notebooks: an added cell packs the views that a notebook shows, and its outputs become `ViewPlace` nodes.

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
from attnwidgets.sphinx.directive import ViewData, ViewPlace, files_of

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.application import Sphinx

LOGGER = logging.getLogger(__name__)
_TAG = "attnwidgets-views"
_IMPORT = "from attnwidgets.sphinx.cell import shown_views"
_WIDGET = "application/vnd.jupyter.widget-view+json"
_SCRIPT = re.compile(r'\s*<script type="(?P<mime>[^"]+)">(?P<json>.*)</script>\s*', re.DOTALL)
_PICTURES = ("image/svg+xml", "image/png", "text/plain")  # of an output, the best first
_CELLS = {"cell", "nbinput", "nboutput"}


def add_cell(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the cell to a notebook that is about to be read and uses this package."""
    live = app.config.attnwidgets_live
    given = [app.config.attnwidgets_budget, *([live, str(files_of(app))] if live else [])]
    code = f"{_IMPORT}\n\nshown_views({', '.join(map(repr, given))})  # attnwidgets {__version__}"
    text = source[0]
    if "attnwidgets" not in text:
        return
    if str(app.env.doc2path(name)).endswith(".ipynb"):
        source[0] = _with_cell(text, code)
    elif re.match(r"---\n(?:.+\n)*? *(?:file_format: mystnb|format_name: myst)\b", text):
        source[0] = f"{text.rstrip()}\n\n```{{code-cell}}\n:tags: [{_TAG}]\n{code}\n```\n"


def _with_cell(text: str, code: str) -> str:
    """Return the text of a notebook with a cell added. Any other text is returned unchanged."""
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
    """Replace the outputs of widgets by `ViewPlace` nodes, and add the data of their views."""
    packed = [result for _, result in _scripts(document, MIME)]
    added = [node for node in document.findall(nodes.literal_block) if node.astext().startswith(_IMPORT)]
    for cell in {_cell_of(node) for node in [*added, *(node for node, _ in _scripts(document, MIME))]}:
        cell.parent.remove(cell)
    packs = [item for item in packed if item["places"]]
    names_of = {model: names for pack in packs for model, names in pack["places"].items()}
    models = {name: model["state"] for pack in packs for name, model in pack["state"]["models"].items()}
    others = 0
    for output, result in _scripts(document, _WIDGET):
        shown = _bundle_of(output)
        names = names_of.get(result.get("model_id"), ())
        ours: list[nodes.Node] = [
            ViewPlace(model=name, height=models[name]["options"]["height"]) for name in names
        ]
        if len(ours) == 1:
            ours[0].extend(_picture_in(shown))
        elif added and not packed:
            ours = _picture_in(shown)
        if ours:
            shown.parent.replace(shown, ours)
        others += not ours
    if added and not packed:
        words = "attnwidgets: this notebook was not executed: its views are the pictures that are saved in it"
        LOGGER.warning(words, location=app.env.docname, type="attnwidgets", subtype="notebook")
    for pack in packs:
        document += ViewData(packs=[pack])
        _say_what_does_not_compute(app, pack)
    bars = [live["bar"] for pack in packs for live in pack["state"].get("live", ())]
    first = next(document.findall(ViewPlace), None)
    if first is not None:
        at = first.parent.index(first)
        first.parent[at:at] = [ViewPlace(model=bar, live=True) for bar in bars]
    if packs and not others:
        # myst-nb and nbsphinx add ipywidgets' scripts to a page with widgets; views do not need them.
        getattr(app.env, "nb_metadata", {}).get(app.env.docname, {}).pop("js_files", None)
        getattr(app.env, "nbsphinx_widgets", set()).discard(app.env.docname)


def _say_what_does_not_compute(app: Sphinx, pack: dict[str, Any]) -> None:
    """Warn of a model that does not run in the page, or whose files are not there."""
    folders = [live["files"]["folder"] for live in pack["state"].get("live", ())]
    words = pack.get("refused", "").removeprefix("live=True: ")
    if any(not (files_of(app) / folder).is_dir() for folder in folders):
        words = "its model is not among the files of this site: execute the notebook again"
    if words:
        told = "attnwidgets: this notebook's views do not compute in the page: %s"
        LOGGER.warning(told, words, location=app.env.docname, type="attnwidgets", subtype="live")


def _scripts(document: nodes.document, mime: str) -> list[tuple[Element, Any]]:
    """Return the raw nodes that are a script element of a MIME type, with its JSON."""
    raw = [node for node in document.findall(nodes.raw) if "html" in node.get("format", "")]
    result = [(node, _SCRIPT.fullmatch(node.astext())) for node in raw]
    return [(node, json.loads(item["json"])) for node, item in result if item and item["mime"] == mime]


def _cell_of(node: Element) -> Element:
    """Return the cell around a node: the outermost node that is a part of a cell."""
    around, at = node, node
    while not isinstance(at, (nodes.document, nodes.section)):
        if _CELLS & set(at.get("classes", ())):
            around = at
        at = at.parent
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
