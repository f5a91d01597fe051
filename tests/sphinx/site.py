"""Small sites of pages given as text, built in this process; and the links of a built page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from io import StringIO
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest

import attnwidgets as aw

TOKENS = ["[CLS]", "the", "keys", "to", "the", "cabinet", "are", "lost", "[SEP]"]
NASTY = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror='window.hacked=2'>",
    "\u202eabc",
    "a",
]


def attention(tokens=TOKENS, layers=2, heads=3):
    """Return the attention of a trace with given weights."""
    size = len(tokens)
    given = np.random.default_rng(3).dirichlet(np.ones(size) * 0.3, (layers, 1, heads, size))
    return aw.attention(aw.from_attentions(given.astype(np.float32), list(tokens)))


def build(folder, pages, builder="html", **settings):
    """Build a site of pages by file name; return the folder it is in and the warnings.

    Keywords are settings of Sphinx.
    """
    application = pytest.importorskip("sphinx.application", reason="pip install sphinx (make test does it)")
    from sphinx.util.docutils import docutils_namespace

    source = folder / "source"
    for name, text in pages.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    settings = {"extensions": ["attnwidgets.sphinx"], "html_theme": "basic", "project": "course"} | settings
    out, said = folder / builder, StringIO()
    folders = (str(source), None, str(out), str(folder / "doctrees"))
    with docutils_namespace():
        application.Sphinx(
            *folders, builder, confoverrides=settings, status=None, warning=said, keep_going=True
        ).build()
    return out, re.sub(r"\x1b\[[\d;]*m", "", said.getvalue())


class _Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])


def broken_links(folder):
    """Return the links of a built site that lead nowhere in it, with their pages."""
    read = {}
    for page in folder.rglob("*.html"):
        read[page.resolve()] = parser = _Links()
        parser.feed(page.read_text(encoding="utf-8"))
    broken = []
    for page, parser in read.items():
        for link in parser.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchors = read[target].ids if target in read else None
            if not target.exists() or (
                parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors
            ):
                broken.append(f"{page.relative_to(folder.resolve())}: {link}")
    return broken
