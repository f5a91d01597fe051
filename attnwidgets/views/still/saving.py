"""Writing a figure to a file: `view.save(path)`, drawn by matplotlib without a browser."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from matplotlib import rc_context, rcParams, rcParamsDefault

from attnwidgets._errors import suggest
from attnwidgets._files import write_bytes
from attnwidgets.figures.drawing import Quiet
from attnwidgets.figures.theme import printable
from attnwidgets.tracing.text.display import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

FORMATS = (".svg", ".pdf", ".png")
_LONGEST = 4000  # characters of the alternative text
# In an SVG and a PDF text stays text. Without a salt, two files of the same picture would differ.
_SETTINGS: dict[Any, Any] = {
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "attnwidgets",
}


def save_figure(
    draw: Callable[[], Figure], names: Callable[[], tuple[str, str]], path: str | Path, *, dpi: int = 300
) -> Path:
    """Write a figure, its title and its alternative text.

    Args:
        draw: Returns the figure.
        names: Returns its title and its alternative text: names of an SVG, metadata of other files.
        path: The file; its suffix gives the format: ".svg", ".pdf" or ".png".
        dpi: Dots per inch of a PNG.

    Raises:
        ValueError: Another suffix.
    """
    target = Path(path)
    write_bytes(
        target, figure_bytes(draw, names, target.suffix.lower(), name=f"save({str(path)!r})", dpi=dpi)
    )
    return target


def figure_bytes(
    draw: Callable[[], Figure],
    names: Callable[[], tuple[str, str]],
    suffix: str,
    *,
    name: str = "figure",
    dpi: int = 300,
) -> bytes:
    """Return a figure as a file; see `save_figure`.

    Args:
        draw: Returns the figure.
        names: Returns its title and its alternative text.
        suffix: One of `FORMATS`.
        name: Beginning of an error message.
        dpi: Dots per inch of a PNG.

    Raises:
        ValueError: Another suffix.
    """
    if suffix not in FORMATS:
        near = suggest(suffix, FORMATS)
        raise ValueError(f"{name}: the name must end in {', '.join(FORMATS)}.{near}")
    buffer = io.BytesIO()
    # Figures do not depend on the reader's settings of matplotlib, which stay as they are.
    plain: dict[Any, Any] = {
        key: value for key, value in rcParamsDefault.items() if key in rcParams and key != "backend"
    }
    with Quiet(), rc_context({**plain, **_SETTINGS}):
        figure = draw()
        title, text = names()
        title, text = _plain(title), "\n".join(map(_plain, text[:_LONGEST].splitlines()))
        # Without a date, two files of the same picture are the same.
        metadata = {
            ".svg": {"Date": None, "Title": title},
            ".pdf": {"CreationDate": None, "Title": title, "Subject": text},
            ".png": {"Title": title, "Description": text},
        }[suffix]
        figure.savefig(
            buffer, format=suffix[1:], dpi=dpi, facecolor=figure.get_facecolor(), metadata=metadata
        )
    picture = buffer.getvalue()
    return _described(picture, title, text) if suffix == ".svg" else picture


def _plain(words: str) -> str:
    """Return words that every format can hold."""
    return printable(well_formed(words), _LONGEST)


def _described(picture: bytes, title: str, text: str) -> bytes:
    """Return an SVG with its title and its alternative text, where assistive software looks for them."""
    before, rest = picture.decode().split("<svg", 1)
    attributes, content = rest.split(">", 1)
    names = (
        f' role="img" aria-labelledby="aw-title aw-desc">\n <title id="aw-title">{escape(title)}</title>\n'
        f' <desc id="aw-desc">{escape(text)}</desc>'
    )
    return f"{before}<svg{attributes}{names}{content}".encode()
