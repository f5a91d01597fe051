"""The documentation site: its contents name every page."""

from __future__ import annotations

import fnmatch
import re

FOLDERS = ("", "docs/", "docs/decisions/", "notebooks/", "notebooks/course/", "benchmarks/")


def test_every_page_stands_in_the_contents(root):
    """A page that nothing leads to: add it to docs/contents.txt."""
    listed = re.findall(
        r"^(?:.+ <(.+)>|([\w./*-]+))$", (root / "docs" / "contents.txt").read_text(), re.MULTILINE
    )
    names = [first or second for first, second in listed]
    paths = [name.removeprefix("../") if name.startswith("../") else f"docs/{name}" for name in names]
    pages = {
        f"{folder}{file.stem}"
        for folder in FOLDERS
        for file in (root / folder).iterdir()
        if file.suffix in {".md", ".ipynb"} and not file.name.startswith(".")
    }
    pages -= {"docs/README"}  # the first page, which has the contents
    assert not [page for page in pages if not any(fnmatch.fnmatch(page, path) for path in paths)]
    assert not [path for path in paths if path != "docs/gallery" and not fnmatch.filter(pages, path)]
