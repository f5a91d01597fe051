"""Make the pictures of the README and of docs/, as their code says (see pictured.py): `make pictures`.

Each is taken in Chromium, on a light and on a dark page, and its page gets the lines that show it.
"""

from __future__ import annotations

import argparse
import ast
import html
import io
import json
import os
import re
import sys
import tempfile
from inspect import getfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright
from scipy.spatial.distance import cdist

import attnwidgets as aw
from attnwidgets.views.base.view import View

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))

import pictured
from chromium import executable
from settling import WATCH, settle

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTH = 760
LIMIT = 60_000
"""Bytes of a picture."""

AREA, SHADES, PHOTOGRAPH = 1000, 24, 20_000
"""Pixels whose colour is exact, how many colours all others have, and the colours of a photograph."""

TABLE = """<!doctype html>
<meta name="color-scheme" content="light dark">
<body style="font: 13px system-ui; background: Canvas; color: CanvasText">
<div class="aw-root" style="display: inline-block; padding: 8px">{}</div>"""
PICTURE = """
<picture>
  <source media="(prefers-color-scheme: dark)" srcset="{folder}/{name}-dark.webp">
  <img alt="{words}" src="{folder}/{name}-light.webp" width="{width}">
</picture>"""
# The rectangle around all views.
AROUND = """() => {
  const parts = [...document.querySelectorAll('.aw-root, .aw-live')];
  const boxes = parts.map((el) => el.getBoundingClientRect()).filter((box) => box.width);
  const [x, y] = [Math.min(...boxes.map((b) => b.left)), Math.min(...boxes.map((b) => b.top))];
  const right = Math.max(...boxes.map((b) => b.right));
  const bottom = Math.max(...boxes.map((b) => b.bottom));
  return {x, y: y + scrollY, width: right - x, height: bottom - y};
}"""


def run(code: str, world: dict[str, Any]) -> Any:
    """Run code, and return the value of its last expression."""
    body = ast.parse(code).body
    values = [at for at, statement in enumerate(body) if isinstance(statement, ast.Expr)]
    value = None
    for at, statement in enumerate(body):
        if values and at == values[-1]:
            value = eval(compile(ast.Expression(statement.value), "page", "eval"), world)
        else:
            exec(compile(ast.Module([statement], []), "page", "exec"), world)
    return value


def written(value: Any, path: Path) -> tuple[Path, list[str], str]:
    """Write a value as a page; return the page, the files that draw the value, and its words."""
    if isinstance(value, Path):
        return value, ["js/src/parts/live.ts"], ""
    values = value if isinstance(value, list) else [value]
    if not isinstance(value, list | View) and not hasattr(value, "view"):
        path.write_text(TABLE.format(value._repr_html_()), encoding="utf-8")
        return path, [Path(getfile(type(value))).relative_to(pictured.ROOT).as_posix()], ""
    views = [each if isinstance(each, View) else each.view() for each in values]
    words = " ".join(" ".join(dict.fromkeys(view.describe() for view in views)).split())
    return aw.to_html(views, path), pictured.files_of(views), words


def taken(browser: Browser, page: Path, theme: Any, steps: list[str]) -> Image.Image:
    """Return a picture of a page with two dots per CSS pixel.

    Args:
        browser: A browser.
        page: The page.
        theme: "light" or "dark".
        steps: Buttons to press, by name; "type ..." shows a text in a live page, and
            "until ..." waits for words of the page.
    """
    context = browser.new_context(
        viewport={"width": WIDTH + 50, "height": 1200}, device_scale_factor=2, color_scheme=theme
    )
    context.add_init_script(WATCH)
    tab = context.new_page()
    tab.goto(page.absolute().as_uri())
    tab.locator(".aw-root").last.wait_for()
    for step in steps:
        if step.startswith("type "):
            field = tab.get_by_label("your own text")
            field.fill(step.removeprefix("type "))
            field.press("Enter")
        elif step.startswith("until "):
            tab.get_by_text(step.removeprefix("until ")).first.wait_for()
        else:
            tab.get_by_role("button", name=step).first.click()
        if step == "Compute here":
            tab.get_by_text("Computed in this page").wait_for(timeout=120_000)
        settle(tab)
    tab.mouse.move(0, 0)
    tab.wait_for_timeout(700)
    settle(tab)
    shot = tab.screenshot(clip=tab.evaluate(AROUND), full_page=True)
    context.close()
    return Image.open(io.BytesIO(shot)).convert("RGB")


def packed(image: Image.Image) -> bytes:
    """Return a picture as WebP: with few colours, or of a photograph as the limit allows."""
    half = image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)
    ways = [(image, {"quality": 75}), (half, {"quality": 75})]
    if image.getcolors(PHOTOGRAPH):
        ways.insert(0, (flattened(image), {"lossless": True}))
    for picture, options in ways:
        file = io.BytesIO()
        picture.save(file, "WEBP", method=6, **options)
        if file.tell() < LIMIT:
            return file.getvalue()
    raise ValueError("no picture of this view is small enough: give it less height")


def flattened(image: Image.Image) -> Image.Image:
    """Return a picture whose areas have exact colours, and whose letters and lines have fewer shades."""
    pixels = np.asarray(image)
    colours, at, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    areas = colours[np.argsort(-counts)][: (counts > AREA).sum()][: 256 - SHADES]
    few = image.quantize(SHADES, Image.Quantize.MAXCOVERAGE, kmeans=2).getpalette()[: 3 * SHADES]
    palette = np.vstack([areas, np.reshape(few, (-1, 3))]).astype(np.uint8)
    return Image.fromarray(palette[cdist(colours, palette).argmin(axis=1)][at].reshape(pixels.shape))


def show(page: Path, name: str, words: str, width: int) -> None:
    """Write the lines that show a picture below its comment."""
    folder = os.path.relpath(pictured.FOLDER, page.parent)
    lines = PICTURE.format(folder=folder, name=name, words=html.escape(words), width=width)
    comment = re.compile(rf"(?ms)^(<!-- picture {name}\b.*?-->)(\n<picture>.*?</picture>)?")
    text = page.read_text(encoding="utf-8")
    page.write_text(comment.sub(lambda match: match[1] + lines, text), encoding="utf-8")


def make(browser: Browser, page: Path, due: set[str]) -> None:
    """Make those pictures of a page that are due, and write down their files and keys."""
    steps = pictured.steps_of(page)
    for last, step in enumerate(steps):
        if step.name not in due:
            continue
        # In a world without the other pictures: views of the same trace would move each other.
        world: dict[str, Any] = {"aw": aw, "np": np, "__name__": page.stem}
        value = [run(steps[at].code, world) for at in pictured.needed(steps, last)][-1]
        # A view and the steps before its picture is taken, or the view alone.
        value, *actions = value if isinstance(value, tuple) else (value,)
        source, files, words = written(value, Path("page.html").absolute())
        for theme in pictured.THEMES:
            image = taken(browser, source, theme, actions)
            (pictured.FOLDER / f"{step.name}-{theme}.webp").write_bytes(packed(image))
        show(page, step.name, step.words or words, image.width // 2)
        made = pictured.made_of() | {step.name: {"files": files, "key": pictured.key(steps, last, files)}}
        pictured.MADE_OF.write_text(json.dumps(dict(sorted(made.items())), indent=1) + "\n", encoding="utf-8")
        print(f"{page.name}: {step.name}", flush=True)


def main() -> None:
    """Make the pictures that are missing or older than their view, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which pictures, or all; by default those that are stale")
    chosen = set(parser.parse_args().names)
    pages = {page: pictured.steps_of(page) for page in pictured.pages()}
    if missing := chosen - {"all"} - {step.name for steps in pages.values() for step in steps}:
        parser.error(f"no page has a picture called {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.chdir(folder)  # examples write files
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        for page, steps in pages.items():
            due = {
                step.name
                for at, step in enumerate(steps)
                if step.name
                and ({"all", step.name} & chosen or (not chosen and pictured.is_stale(steps, at)))
            }
            if due:
                make(browser, page, due)
        browser.close()


if __name__ == "__main__":
    main()
