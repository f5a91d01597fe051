"""Write docs/gallery.md for the site: every view of the gallery's notebooks, as its picture shows it."""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path

import pictured

import attnwidgets as aw

HERE = Path(__file__).parent
PAGE, FOLDER = HERE / "gallery.md", HERE / "gallery"
HEAD = """# Gallery

Every view. Click a picture to use it.

"""


def write_gallery(code: str) -> None:
    """Write the page, and the saved explanations of the site if the package has changed.

    Args:
        code: A hash of the package.
    """
    sys.path.insert(0, str(HERE.parent / "notebooks"))
    import gallery

    words = described()
    cards = [
        card(heading, notebook.stem, words)
        for notebook in gallery.NOTEBOOKS
        for heading in headings(notebook)
    ]
    text = f"{HEAD}::::{{container}} gallery\n" + "\n".join(cards) + "::::\n"
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        PAGE.write_text(text, encoding="utf-8")
    stamp = FOLDER / "made_of"
    if stamp.exists() and stamp.read_text() == code:
        return
    FOLDER.mkdir(exist_ok=True)
    trace = aw.trace(*aw.demo_model("encoder"), "The keys to the cabinet are on the table.")
    aw.attention(trace).save(FOLDER / "attention.safetensors")
    aw.rollout(trace).save(FOLDER / "rollout.safetensors")
    stamp.write_text(code)


def headings(notebook: Path) -> list[str]:
    """Return the headings of a notebook's views."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    lines = ["".join(cell["source"]).splitlines()[0] for cell in cells if cell["cell_type"] == "markdown"]
    return [line.removeprefix("## ") for line in lines if line.startswith("## ")]


def described() -> dict[str, str]:
    """Return the alternative text of every picture, by its name."""
    shown = re.compile(r'<img alt="([^"]+)" src="[^"]*?(\w+)-light\.webp"')
    return {
        name: html.unescape(words)
        for page in pictured.pages()
        for words, name in shown.findall(page.read_text(encoding="utf-8"))
    }


def card(heading: str, notebook: str, words: dict[str, str]) -> str:
    """Return the card of a view: a link, the heading, and the pictures that have the view's name."""
    title, _, rest = heading.partition(": ")
    name = re.sub(r"\B(?=[A-Z])", "_", title).lower()
    target = f"../notebooks/{notebook}"
    shown = "".join(
        f"```{{image}} pictures/{name}-{theme}.webp\n:class: only-{theme}\n:loading: lazy\n"
        f":alt: {words[name]}\n:target: {target}.html#{slug(heading)}\n```\n"
        for theme in pictured.THEMES
    )
    return f":::{{container}}\n**[{title}]({target}.ipynb#{slug(heading)})** {rest}\n\n{shown}:::\n"


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
