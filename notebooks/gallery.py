"""Write all views of the gallery's notebooks as one page without a kernel or a network: `make gallery`."""

from __future__ import annotations

import argparse
import ast
import functools
import json
import sys
from pathlib import Path
from unittest import mock

from IPython.core.inputtransformer2 import TransformerManager

import attnwidgets as aw
from attnwidgets.views.base.view import View

NAMES = ("gallery", "gallery_media_circuits", "gallery_concepts")
NOTEBOOKS = tuple(Path(__file__).with_name(f"{name}.ipynb") for name in NAMES)


def shown(notebook: Path) -> dict[str, View]:
    """Run a notebook's code in this process; return the view each cell ends with, by the heading above it.

    Raises:
        TypeError: If a cell ends with something else.
    """
    names: dict[str, object] = {}
    views: dict[str, View] = {}
    heading = ""
    magics = TransformerManager()
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            heading = source.splitlines()[0].lstrip("# ")
            continue
        *before, last = ast.parse(magics.transform_cell(source)).body
        if not isinstance(last, ast.Expr):
            before.append(last)
        exec(compile(ast.Module(before, []), notebook.name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), names)
            if not isinstance(value, View):
                raise TypeError(f"the cell under {heading!r} ends with a {type(value).__name__}, not a view")
            views[heading] = value
    return views


def write(path: Path) -> dict[str, View]:
    """Write the page, with views under their headings; return the views."""
    with mock.patch.object(aw, "demo_model", functools.cache(aw.demo_model)):  # notebooks share some
        views = {heading: view for notebook in NOTEBOOKS for heading, view in shown(notebook).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    aw.to_html(list(views.values()), path, title="Every view of attnwidgets", headings=list(views))
    return views


def main() -> int:
    """Write the page and print its path; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("attnwidgets-gallery.html"), help="the page to write"
    )
    path = parser.parse_args().out
    views = write(path)
    size = path.stat().st_size / 1e6
    print(f"{len(views)} views ({size:.1f} MB, works offline):  {path.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
