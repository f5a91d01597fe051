"""Standalone pages: an HTML file of views that needs neither kernel nor network."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attnwidgets._errors import require_choice
from attnwidgets._files import write_bytes
from attnwidgets.tracing.text.display import well_formed
from attnwidgets.views.page.contents import Choice
from attnwidgets.views.page.live.files import FOLDER, references, remove_stale, write_script
from attnwidgets.views.page.packing import Live, pack
from attnwidgets.views.page.script import json_text, safe_text, script_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.views.base.view import View
    from attnwidgets.views.page.packing import Packed

BUDGET = 10_000_000
"""Default size limit of a page, in bytes."""

_STYLE = """
:root{color-scheme:light dark}
body{margin:0;background:Canvas;color:CanvasText;font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1200px;margin:0 auto;padding:16px clamp(12px,3vw,32px)}
h1{font-size:1.25rem;font-weight:600;margin:0 0 12px;overflow-wrap:anywhere}
h2{font-size:1.05rem;font-weight:600;margin:32px 0 8px;overflow-wrap:anywhere}
nav ul{display:flex;flex-wrap:wrap;gap:4px 16px;margin:0;padding:0;list-style:none}
a{color:inherit}
.aw-view{margin:0 0 24px}
.aw-link-note{font-size:.8rem;margin:0 0 8px;overflow-wrap:anywhere}
.aw-unable{animation:aw-late 0s 5s both}
@keyframes aw-late{from{height:0;margin:0;overflow:hidden}}
footer{font-size:.8rem;opacity:.75}
@media print{:root{color-scheme:light}h2{break-after:avoid}}
"""

_UNABLE = (
    "The views of this page are drawn by a script, which did not run: {}scripts are switched off, or the "
    "site that serves the page refuses them (its Content-Security-Policy). Save the page and open the file."
)
"""Shown if the page's script does not run; the script removes it."""

_ALONE = f"the folder {FOLDER}, which holds it, is not next to the page, or "


def to_html(
    views: View | Sequence[View],
    path: str | Path,
    *,
    title: str | None = None,
    headings: Sequence[str] = (),
    budget: int = BUDGET,
    heads: Sequence[int | str] | str = "all",
    layers: Sequence[int] | str = "all",
    live: bool = False,
    weights: Literal["auto", "exact", "float16", "int8"] = "auto",
) -> Path:
    """Write views as an HTML file that opens anywhere: no kernel, no network; linked views stay linked.

    Small maps are included whole. Matrices that would make the page larger than `budget` are left out,
    largest maps first, with a note in the page; thumbnails and the selected matrices are always included. The
    map that a view was given, and the methods that an Explorer was given by name, are computed first; of
    methods chosen from an Explorer's menu, the layers computed so far are included. Of an Explorer of several
    texts, the page holds all of them, each unpacked when it is chosen.

    Args:
        views: A view, or several from top to bottom.
        path: The file to write; it is replaced once the page is complete. A path that ends in "/", or an
            existing folder, stands for its `index.html`, and models are then in files next to it.
        title: Title of the page, as text; by default the first view's title, or its model and text.
        headings: A heading for each view, as text, with a list of links to them at the top; empty: none.
        budget: Size limit of the page, in bytes.
        heads: Heads of large maps to include: numbers, "mean", "max"; "all": every head within the budget.
        layers: Layers of large maps to include, by number, or "all".
        live: Let the models of the views run in the page, so that the reader types other texts, knocks heads
            out and edits rows of attention without a kernel: BERT, GPT-2, Llama, Mistral, Qwen2 and Qwen3,
            with a tokenizer of word pieces, byte pairs or characters; see `docs/live_pages.md`. A model of up
            to 400,000 parameters is in the page itself. A larger one, of up to 200 MB, is in the folder
            `attnwidgets-files` next to it, once for all pages of a folder, and is loaded when the reader
            wants it.
        weights: How the numbers of these models are stored. "auto": exactly if 4 bits, 8 bits or float16 hold
            them (models that were loaded from 4-bit files), else in float16. "exact": as they are, in
            float32 where nothing smaller holds them. "float16"; "int8": 8 bits with a scale for every 32
            numbers. The page says by how much rounding changes the attention of its own texts.

    Returns:
        The path of the page, with its size printed at its foot.

    Raises:
        IndexError: No view has such a layer or head; the message names the range.
        ValueError: `heads` or `layers` is a string other than "all", views are empty, the number of
            `headings` differs from that of the views, or with `live` a model or tokenizer cannot run in a
            page (the message names the unsupported part), or takes more than 200 MB.
        FileNotFoundError: The folder to write into does not exist.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.to_html([aw.Heatmap(trace), aw.TokenStrip(trace)], "cat.html", title="A cat").name
        'cat.html'
    """
    from attnwidgets.views.base.view import View as BaseView

    listed = list(views) if isinstance(views, Iterable) else [views]
    if not listed or not all(isinstance(view, BaseView) for view in listed):
        raise ValueError("to_html() takes one view or a list of views, such as aw.Explorer(trace).")
    headings = [headings] if isinstance(headings, str) else list(headings)
    if headings and len(headings) != len(listed):
        raise ValueError(
            f"headings has {len(headings)} for {len(listed)} views: give one for each view, or none."
        )
    choice = Choice.of(listed, heads, layers)
    require_choice("weights", weights, ("auto", "exact", "float16", "int8"))
    if weights != "auto" and not live:
        raise ValueError(f"weights={weights!r} is about models that run in the page, which takes live=True.")
    given = Path(path)
    is_folder = given.is_dir() or str(path).endswith(("/", os.sep))
    if not given.parent.is_dir():
        raise FileNotFoundError(
            f"path {str(path)!r} is in a folder that does not exist; make {str(given.parent)!r} first."
        )
    target = given / "index.html" if is_folder else given
    script = script_of(listed, live=live)
    room = budget - len(script.encode())
    packed = pack(listed, choice, room, live=Live(weights, is_folder) if live else None)
    if is_folder:
        given.mkdir(exist_ok=True)
    earlier, address = references(target), ""
    for model in packed.files:
        model.write(target.parent)
    if packed.files:
        address = write_script(target.parent, script_of(listed, live=True, engine=True))
    write_bytes(target, _page(listed, packed, title, headings, script, address).encode())
    remove_stale(target.parent, earlier)
    return target


def _page(
    views: Sequence[View],
    packed: Packed,
    title: str | None,
    headings: Sequence[str],
    script: str,
    address: str,
) -> str:
    """Return the page of views and their packed contents, with its script or the address of its script."""
    from attnwidgets._version import __version__

    titles = (view.options["title"] for view in views)
    title = title or next(filter(None, titles), "") or _default_title(views)
    # The elements of the opening stand before the script, which draws them while the rest is being read.
    opening, rest = ("\n".join(packed.elements(first=first)) for first in (True, False))
    # Only this script may run, and nothing but it and its models be loaded: whatever a text contains, it
    # stays text.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    runs = f"'sha256-{digest}'; "
    element, models = f'<script type="text/javascript">{script}</script>', ""
    if address:
        runs = "'self' 'wasm-unsafe-eval' blob:; worker-src blob:; "
        element = f'<script src="{address}"></script>'
        size = sum(len(model.weights) for model in packed.files)
        models = f" and {size / 1e6:.1f} MB of models in the folder {FOLDER} next to it"
    policy = f"default-src 'none'; script-src {runs}style-src 'unsafe-inline'; img-src data: blob:"
    bars = (live["bar"] for live in packed.state.get("live", ()))
    lines = [f'<div class="aw-view" data-live data-model="{bar}"></div>' for bar in bars]
    frames = "\n".join([*lines, _places(packed.state["views"], headings)])
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{safe_text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{safe_text(title)}</h1>
<p class="aw-unable">{_UNABLE.format(_ALONE if address else "")}</p>
{frames}
<footer>Standalone page of attnwidgets {__version__}, \0SIZE\0{models}, works offline. {packed.note}</footer>
</main>
<script type="application/json" id="aw-state">{json_text(packed.state)}</script>
{opening}
{element}
{rest}
</body>
</html>
"""
    page = well_formed(page)
    return page.replace("\0SIZE\0", f"{len(page.encode()) / 1e6:.2f} MB")


def _places(order: Sequence[str], headings: Sequence[str]) -> str:
    """Return the elements that views are drawn into, under their headings, with links to these."""
    frames = [f'<div class="aw-view" data-model="{name}"></div>' for name in order]
    if not headings:
        return "\n".join(frames)
    headed = list(zip(order, map(safe_text, headings), frames, strict=True))
    links = "\n".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in headed)
    sections = "\n".join(f'<h2 id="{name}">{heading}</h2>\n{frame}' for name, heading, frame in headed)
    return f'<nav aria-label="views"><ul>\n{links}\n</ul></nav>\n{sections}'


def _default_title(views: Sequence[View]) -> str:
    """Return the model and the text of the first view, in words."""
    header = views[0].store.header
    model, text = header.get("model", ""), header.get("text", "").strip()
    if len(views[0].traces) > 1 and "texts" in views[0].options:
        text = f"{len(views[0].traces)} texts"
    short = text if len(text) <= 80 else text[:79] + "…"  # noqa: PLR2004 - a line
    return " · ".join(filter(None, (model.rsplit("/", 1)[-1], short))) or views[0].name
