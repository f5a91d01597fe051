"""The extension: its settings, the runtime that all pages of a site share, and its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._version import __version__
from attnwidgets.sphinx import directive, notebooks
from attnwidgets.sphinx.directive import (
    ViewData,
    ViewPlace,
    depart_place,
    files_of,
    ignore,
    skip,
    visit_data,
    visit_place,
)
from attnwidgets.views.page.script import script_of_all

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

BUDGET = 850_000
"""Default size limit of the data of a page's views, in bytes."""

_SCRIPT, _STYLE = "attnwidgets.js", "attnwidgets.css"

# Colours and font of the page, as Furo and the PyData theme name them. Of another theme, views read the
# background that they stand on, and its color-scheme.
_CSS = """\
.aw-view {
  --jp-layout-color0: var(--color-background-primary, var(--pst-color-background));
  --jp-content-font-color1: var(--color-foreground-primary, var(--pst-color-text-base));
  --jp-ui-font-family: var(--font-stack, var(--pst-font-family-base));
  --jp-content-font-family: var(--jp-ui-font-family);
  margin: 1rem 0 1.5rem;
}
"""


def connect(app: Sphinx) -> dict[str, Any]:
    """Add the extension to Sphinx; see `attnwidgets.sphinx.setup`."""
    app.add_config_value("attnwidgets_budget", BUDGET, "env", [int])
    app.add_config_value("attnwidgets_live", "", "env", [str])
    app.add_config_value("attnwidgets_version", __version__, "env")  # pages are read again by another version
    others: dict[str, Any] = dict.fromkeys(("latex", "text", "man", "texinfo"), (ignore, ignore))
    app.add_node(ViewPlace, html=(visit_place, depart_place), **others)
    app.add_node(ViewData, html=(visit_data, None), **dict.fromkeys(others, (skip, None)))
    app.add_directive("attnwidgets", directive.ViewDirective)
    app.connect("builder-inited", _write_runtime)
    app.connect("source-read", notebooks.add_cell)
    app.connect("doctree-read", notebooks.place_views)
    app.connect("doctree-read", directive.add_data)
    app.connect("html-page-context", _add_runtime)
    return {"version": __version__, "parallel_read_safe": True, "parallel_write_safe": True}


def _write_runtime(app: Sphinx) -> None:
    """Write the runtime where Sphinx takes a site's static files from."""
    if app.builder.format != "html":
        return
    folder = files_of(app)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _SCRIPT).write_text(script_of_all(live=bool(app.config.attnwidgets_live)), encoding="utf-8")
    (folder / _STYLE).write_text(_CSS, encoding="utf-8")
    app.config.html_static_path.append(str(folder))


def _add_runtime(
    app: Sphinx, name: str, template: str, context: dict[str, Any], document: nodes.document | None
) -> None:
    """Add the runtime to a page that has views."""
    del name, template, context
    if document is not None and next(document.findall(ViewData), None) is not None:
        app.add_js_file(_SCRIPT, loading_method="defer")
        app.add_css_file(_STYLE)
