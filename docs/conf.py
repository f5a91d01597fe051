"""The documentation site: `make docs`. Its pages are the Markdown and the notebooks of the repository."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from latex2mathml.converter import convert

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # a dependency of Sphinx there

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

_about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_code = hashlib.sha256()
for _file in sorted(ROOT.glob("attnwidgets/**/*.py")):
    if _file.parent.name != "sphinx" or _file.name == "cell.py":  # what notebooks run
        _code.update(_file.read_bytes())

project = _about["name"]
author = _about["authors"][0]["name"]
version = release = _about["version"]
html_baseurl = _about.get("urls", {}).get("Documentation", "")

# The repository is the source, so that links between pages are the same here and on its web page.
root_doc = "docs/README"
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
include_patterns = [
    "*.md", "docs/*.md", "docs/decisions/*.md", "benchmarks/*.md", "notebooks/*.ipynb",
    "notebooks/course/*.ipynb",
]  # fmt: skip
exclude_patterns = [".*", "attnwidgets", "build", "dist", "js", "out", "tests", "**/.ipynb_checkpoints"]

extensions = ["myst_nb", "attnwidgets.sphinx"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # a page may begin where its parent ends

# What a notebook prints is what this checkout computes: it runs again when a cell or the package has changed.
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "out" / "notebooks" / _code.hexdigest()[:16])
nb_execution_timeout = 1800
nb_execution_in_temp = True  # some write files
nb_ipywidgets_js: dict[str, Any] = {}  # nothing from elsewhere
nb_merge_streams = True
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

html_theme = "furo"
html_title = f"{project} {version}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_math_renderer = "mathml"
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {"color-brand-primary": "#0969c7", "color-brand-content": "#0969c7"},
    "dark_css_variables": {"color-brand-primary": "#6cb2ff", "color-brand-content": "#6cb2ff"},
}
if repository := _about.get("urls", {}).get("Repository"):
    html_theme_options["source_repository"] = repository
pygments_style = "friendly"
pygments_dark_style = "github-dark"


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Add contents.txt to the first page, before its first heading: a view, and the order of all pages."""
    if name == app.config.root_doc:
        contents = HERE / "contents.txt"
        app.env.note_dependency(str(contents), docname=name)
        before, heading, after = source[0].partition("\n## ")
        source[0] = before + contents.read_text(encoding="utf-8") + heading + after


def without_remote_images(app: Sphinx, document: nodes.document) -> None:
    """Let the words of badges stand for them: a page loads nothing from elsewhere."""
    del app
    for image in list(document.findall(nodes.image)):
        if "://" in image["uri"]:
            image.parent.replace(image, nodes.inline("", image.get("alt", "")))


def copy_pictures(app: Sphinx, error: Exception | None) -> None:
    """Copy pictures to where HTML inside Markdown names them, and let the site open at its first page."""
    if error or app.builder.format != "html":
        return
    out = Path(app.outdir)
    for name in app.env.found_docs:
        text = Path(app.env.doc2path(name)).read_text(encoding="utf-8")
        for path in re.findall(r'(?:src|srcset)=\\?"([\w./-]+\.(?:png|svg|webp))', text):
            picture = (Path(app.env.doc2path(name)).parent / path).resolve()
            target = out / picture.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, target)
    first = app.builder.get_target_uri(app.config.root_doc)
    (out / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>{project}</title>'
        f'<meta http-equiv="refresh" content="0; url={first}"><a href="{first}">{project}</a>\n',
        encoding="utf-8",
    )


def visit_math(translator: Any, node: nodes.math) -> None:
    """Write an equation inside a line as MathML, which browsers draw themselves."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_math_block(translator: Any, node: nodes.math_block) -> None:
    """Write an equation on lines of its own."""
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Connect what is above; Sphinx calls this."""
    from make_gallery import write_gallery

    app.connect("builder-inited", lambda _: write_gallery(_code.hexdigest()))
    app.connect("source-read", add_contents)
    app.connect("doctree-read", without_remote_images)
    app.connect("build-finished", copy_pictures)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
