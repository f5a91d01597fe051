"""Writing a figure to a file: `view.save(path)`, drawn by matplotlib without a browser."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from matplotlib import rc_context

from attnwidgets._errors import suggest
from attnwidgets._files import write_bytes
from attnwidgets.figures.drawing import Quiet
from attnwidgets.tracing.text.display import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

FORMATS = (".svg", ".pdf", ".png")
# Labels are text, never formulas, whatever the reader's own settings. A PDF keeps its fonts editable.
_SETTINGS: dict[Any, Any] = {"text.usetex": False, "pdf.fonttype": 42, "svg.hashsalt": "attnwidgets"}


def save_figure(
    draw: Callable[[], Figure], describe: Callable[[], str], path: str | Path, *, dpi: int = 200
) -> Path:
    """Write a figure and its alternative text.

    Args:
        draw: Returns the figure.
        describe: Returns its alternative text: the accessible name of an SVG, metadata of other files.
        path: The file; its suffix gives the format: ".svg", ".pdf" or ".png".
        dpi: Dots per inch of a PNG.

    Raises:
        ValueError: Another suffix.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in FORMATS:
        near = suggest(suffix, FORMATS)
        raise ValueError(f"save({str(path)!r}): the name must end in {', '.join(FORMATS)}.{near}")
    buffer = io.BytesIO()
    with rc_context(_SETTINGS), Quiet():
        figure = draw()
        text = well_formed(describe())
        # Without a date, two files of the same picture are the same.
        metadata = {
            ".svg": {"Date": None},
            ".pdf": {"CreationDate": None, "Subject": text},
            ".png": {"Description": text},
        }[suffix]
        figure.savefig(buffer, format=suffix[1:], dpi=dpi, facecolor="white", metadata=metadata)
    picture = buffer.getvalue()
    if suffix == ".svg" and text:
        before, rest = picture.decode().split("<svg", 1)
        attributes, content = rest.split(">", 1)
        labelled = f' role="img" aria-label={quoteattr(text)}>\n <title>{escape(text)}</title>'
        picture = f"{before}<svg{attributes}{labelled}{content}".encode()
    write_bytes(target, picture)
    return target
