"""Write the pictures of docs/design.md, as real views draw them.

docs/design-light.png and docs/design-dark.png show the parts of every view, docs/design-states.png what
stands where a picture is missing.
"""

from __future__ import annotations

import io
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from playwright.sync_api import sync_playwright

import attnwidgets as aw

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))

from chromium import executable
from stage import play

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from attnwidgets.views.base.view import View

FOLDER = Path(__file__).parent
WIDTH = 760
THEMES = ("light", "dark")
COLOURS = ("text", "quiet", "line", "wash", "back", "accent", "chosen", "amount", "for", "against", "apart")
TYPE = (("label", "labels, notes, values"), ("control-text", "controls, readout"), ("reading", "the text"))
METHODS = ("attention", "rollout", "alti", "lrp", "saliency", "value_zeroing")
SPACE = ("s1", "s2", "s3", "s4")
SHEET = """([parts, colours, sizes, spaces, ramps]) => {
  const view = document.querySelector('.aw-root');
  const sheet = document.createElement('div');
  sheet.className = 'aw-root';
  sheet.dataset.awTheme = view.dataset.awTheme;
  sheet.style.cssText = 'padding: 16px; width: 808px; background: var(--aw-back)';
  const add = (words, style = '') => {
    const el = document.createElement('div');
    el.style.cssText = style;
    el.textContent = words;
    sheet.append(el);
    return el;
  };
  const name = (words) => add(words, 'font-weight: 600; margin: 16px 0 4px');
  const named = (place, words, source) => {
    const part = document.createElement('div');
    const above = document.createElement('div');
    above.textContent = words;
    above.style.cssText = 'font-weight: 600; margin: 16px 0 4px';
    const image = document.createElement('img');
    image.src = source;
    image.style.cssText = 'display: block; max-width: 100%';
    part.append(above, image);
    place.append(part);
  };
  const row = (items, draw) => {
    const line = add('', 'display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: end');
    for (const item of items) line.append(draw(item));
  };
  const box = (words, style, text) => {
    const el = document.createElement('div');
    const swatch = document.createElement('div');
    swatch.style.cssText = style;
    if (text) swatch.textContent = text;
    el.append(swatch, words);
    return el;
  };
  name('Colour: --aw-…');
  row(colours, (one) =>
    box(one, `width: 50px; height: 24px; background: var(--aw-${one}); border: 1px solid var(--aw-line)`));
  name('Type and space: --aw-…');
  row(sizes, ([one, words]) => box(one, `font-size: var(--aw-${one})`, words));
  row(spaces, (one) =>
    box(one, `width: var(--aw-${one}); height: var(--aw-${one}); background: var(--aw-amount)`));
  name('Ramps: zero is the page');
  row(ramps, (one) => box('', `width: 340px; height: 24px; background: ${one}`));
  const [frame, ...others] = parts;
  named(sheet, ...frame);
  const rest = add('', 'display: flex; flex-wrap: wrap; gap: 0 24px; align-items: start');
  for (const part of others) named(rest, ...part);
  document.body.replaceChildren(sheet);
}"""


STATE_WIDTH, STATE_HEIGHT = 640, 300
BLANK = "document.documentElement.style.colorScheme = 'light dark'"
SITE = "blocks.3.hook_resid_post"
# The view alone on the page, under its name.
STATE_NAME = """(root, words) => {
  const name = document.createElement('div');
  name.textContent = words;
  name.style.cssText = 'font: 600 13px system-ui; margin: 0 0 8px';
  const page = 'margin: 12px; padding: 0; max-width: none; background: Canvas; color: CanvasText';
  document.body.style.cssText = page;
  document.body.replaceChildren(name, root.parentElement.childElementCount === 1 ? root.parentElement : root);
}"""


def picture(part: Locator) -> str:
    """Return what a part looks like, as the address of a picture."""
    return f"data:image/png;base64,{b64encode(part.screenshot()).decode()}"


def menu(page: Page, button: Locator) -> str:
    """Return what a menu looks like that a button opens, without the view behind it."""
    button.click()
    panel = page.locator(".aw-menu:popover-open")
    page.evaluate("document.body.style.opacity = 0")  # not of what lies in the top layer
    shown = picture(panel)
    page.evaluate("document.body.style.opacity = ''")
    page.keyboard.press("Escape")
    return shown


def parts(page: Page) -> list[tuple[str, str]]:
    """Return the parts of an Explorer, each with its name."""
    explorer = page.locator(".aw-root").first
    methods = menu(page, explorer.locator(".aw-menu-button").first)
    tools = menu(page, explorer.locator(".aw-tools-button").first)
    plot = explorer.locator(".aw-heatmap .aw-plot").first
    size = plot.bounding_box() or {"width": 0, "height": 0}
    plot.click(position={"x": 0.3 * size["width"], "y": 0.45 * size["height"]})
    page.mouse.move(0, 0)
    page.wait_for_timeout(800)
    frame = picture(explorer)
    explorer.locator("[role=tab]").last.click()
    return [
        ("Frame: toolbar, lead (chips, text), body with caption and legend, footer", frame),
        ("Menu: groups, gists, badges", methods),
        ("Meters", picture(explorer.locator(".aw-meters:visible").first)),
        ("The menu ⋯", tools),
        ("Legend", picture(explorer.locator(".aw-scale:visible").first)),
    ]


def sheet(page: Page) -> bytes:
    """Return the sheet of all parts, with the ramps of an Explorer and a RelevanceMap, as a PNG."""
    ramps = [
        view.locator(".aw-ramp:visible").first.evaluate("(el) => getComputedStyle(el).backgroundImage")
        for view in page.locator(".aw-root").all()
    ]
    page.evaluate(SHEET, [parts(page), list(COLOURS), list(TYPE), list(SPACE), ramps])
    page.wait_for_timeout(300)
    return page.locator(".aw-root").screenshot()


def shoot(views: list[View], path: Path, theme: str) -> None:
    """Write the sheet of all parts, of a page of these views."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": WIDTH + 80, "height": 1200},
            color_scheme="dark" if theme == "dark" else "light",
        )
        page.goto(aw.to_html(views, Path(folder) / "page.html").as_uri())
        page.locator(".aw-root").last.wait_for()
        page.wait_for_timeout(2000)
        image = Image.open(io.BytesIO(sheet(page))).convert("RGB")
        browser.close()
    image.quantize(256, kmeans=2, dither=Image.Dither.NONE).save(path, optimize=True)


def states(trace: Any) -> list[tuple[str, View, str, int]]:
    """Return a view for each state, with what its kernel does, and the milliseconds until it is seen."""
    drawn = torch.randn(384, 64, generator=torch.Generator().manual_seed(0))
    sae = aw.SAE(drawn, drawn.T.contiguous(), torch.zeros(384), b_enc=torch.full((64,), -1e3), site=SITE)
    other = aw.trace(trace.model, trace.tokenizer, trace.text)  # its views are linked with no other
    compared = aw.compare(trace, methods=("attention", "rollout"), height=STATE_HEIGHT)
    silent = aw.FeatureTable(aw.sae_features(trace, sae), height=STATE_HEIGHT)
    return [
        ("Awaited, with a total", compared, "works", 600),
        ("Nothing to show", silent, "", 0),
        ("Failed, with Retry", compared, "refuses", 600),
        ("No kernel answers: the picture stays", aw.HeadView(other, height=STATE_HEIGHT), "silent", 9000),
    ]


def draw_states(trace: Any, path: Path) -> None:
    """Write each state on a light and on a dark page, beside each other."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        columns = []
        for theme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": STATE_WIDTH, "height": 2 * STATE_HEIGHT},
                color_scheme="dark" if theme == "dark" else "light",
            )
            page.clock.install()
            pictures = []
            for name, view, kernel, later in states(trace):
                if kernel:
                    page.evaluate(BLANK)
                    root = play(page, view, kernel, cold=kernel != "silent")
                else:
                    page.goto(view.to_html(Path(folder) / "page.html").as_uri())
                    root = page.locator(".aw-root").first
                    root.wait_for()
                page.clock.run_for(600)
                if kernel == "silent":
                    root.locator(".aw-hv-name").nth(3).click()  # asks for the row
                    page.mouse.move(0, 0)
                page.clock.run_for(later)
                page.wait_for_timeout(200)
                root.evaluate(STATE_NAME, name)
                pictures.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
                page.goto("about:blank")
            columns.append(pictures)
        browser.close()
    size = (STATE_WIDTH, STATE_HEIGHT + 48)
    sheet = Image.new("RGB", (2 * size[0], len(columns[0]) * size[1]))
    for column, pictures in enumerate(columns):
        for row, image in enumerate(pictures):
            sheet.paste(image.crop((0, 0, *size)), (column * size[0], row * size[1]))
    sheet.quantize(256, kmeans=2, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Write the sheet of parts, and that of the states."""
    model, tokenizer = aw.demo_model("classifier")
    review = aw.trace(model, tokenizer, "A wonderful film with a dull ending.")
    views = [aw.Explorer(review, methods=METHODS, layer=2, head=6), aw.views.RelevanceMap(aw.lrp(review))]
    for theme in THEMES:
        shoot(views, FOLDER / f"design-{theme}.png", theme)
    draw_states(review, FOLDER / "design-states.png")


if __name__ == "__main__":
    main()
