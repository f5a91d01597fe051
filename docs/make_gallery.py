"""Write docs/gallery.md: a picture of every view by `view.save`, in light and dark; for the site."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from PIL import Image

import attnwidgets as aw
from attnwidgets.figures.theme import ThemeName

if TYPE_CHECKING:
    from attnwidgets.views.base.view import View

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parent / "notebooks"
THEMES = get_args(ThemeName)
PAGE, FOLDER = HERE / "gallery.md", HERE / "gallery"
HEAD = """# Gallery

Every view, as `view.save("figure.pdf")` draws it for a paper. Click one to use it.

"""


def write_gallery(code: str) -> None:
    """Write the page and its pictures, if the notebook or the package has changed.

    Args:
        code: What stands for the package as it is.
    """
    sys.path.insert(0, str(NOTEBOOKS))
    import gallery

    stamp = FOLDER / "made_of"
    written = b"".join(path.read_bytes() for path in (*gallery.NOTEBOOKS, Path(__file__)))
    made_of = hashlib.sha256(written).hexdigest() + code
    if PAGE.exists() and stamp.exists() and stamp.read_text() == made_of:
        return
    FOLDER.mkdir(exist_ok=True)
    cards = [
        card(heading, view, notebook.stem)
        for notebook in gallery.NOTEBOOKS
        for heading, view in gallery.shown(notebook).items()
    ]
    PAGE.write_text(f"{HEAD}::::{{container}} gallery\n" + "\n".join(cards) + "::::\n", encoding="utf-8")
    trace = aw.trace(*aw.demo_model("encoder"), "The keys to the cabinet are on the table.")
    aw.attention(trace).save(FOLDER / "attention.safetensors")
    aw.rollout(trace).save(FOLDER / "rollout.safetensors")
    stamp.write_text(made_of)


def card(heading: str, view: View, notebook: str) -> str:
    """Write the pictures of a view; return its card: a link, what the heading says, and the pictures."""
    title, _, rest = heading.partition(": ")
    link = f"../notebooks/{notebook}.ipynb#{slug(heading)}"
    shown = pictures(view, f"{notebook}.html#{slug(heading)}")
    return f":::{{container}}\n**[{title}]({link})** {rest}\n\n{shown}:::\n"


def pictures(view: View, target: str) -> str:
    """Return the Markdown of a view's pictures after writing them; "" if it draws nothing of its own."""
    try:
        for theme in THEMES:
            picture = FOLDER / f"{view.name}-{theme}.png"
            view.save(picture, columns=1, theme=theme, dpi=120)
            # Less than half the bytes, for the same pixels.
            Image.open(picture).save(picture.with_suffix(".webp"), lossless=True)
            picture.unlink()
    except TypeError:
        return ""
    return "".join(
        f"```{{image}} gallery/{view.name}-{theme}.webp\n:class: only-{theme}\n:loading: lazy\n"
        f":alt: {' '.join(view.describe().split())}\n:target: ../notebooks/{target}\n```\n"
        for theme in THEMES
    )


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
