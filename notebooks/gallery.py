"""Write every view of gallery.ipynb as one page that needs neither kernel nor network: `make gallery`."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path

import attnwidgets as aw
from attnwidgets.views.base.view import View

NOTEBOOK = Path(__file__).with_suffix(".ipynb")


def shown(notebook: Path = NOTEBOOK) -> dict[str, View]:
    """Run the code of a notebook here; return the view that each cell ends with, by the heading above it.

    Raises:
        TypeError: A cell ends with something else.
    """
    names: dict[str, object] = {}
    found: dict[str, View] = {}
    heading = ""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            heading = source.splitlines()[0].lstrip("# ")
            continue
        *before, last = ast.parse(source).body
        if not isinstance(last, ast.Expr):
            before.append(last)
        exec(compile(ast.Module(before, []), notebook.name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), names)
            if not isinstance(value, View):
                raise TypeError(f"the cell under {heading!r} shows a {type(value).__name__} and not a view")
            found[heading] = value
    return found


def write(path: Path, notebook: Path = NOTEBOOK) -> dict[str, View]:
    """Write the page, its views under their headings, and return them."""
    found = shown(notebook)
    path.parent.mkdir(parents=True, exist_ok=True)
    aw.to_html(list(found.values()), path, title="Every view of attnwidgets", headings=list(found))
    return found


def main() -> int:
    """Write the page and say where it is; returns the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("attnwidgets-gallery.html"), help="the page to write"
    )
    path = parser.parse_args().out
    found = write(path)
    size = path.stat().st_size / 1e6
    print(f"{len(found)} views ({size:.1f} MB, works offline):  {path.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
