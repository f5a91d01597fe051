"""Write docs/design-light.png and docs/design-dark.png: the parts of every view, as real views draw them."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from playwright.sync_api import sync_playwright

import attnwidgets as aw

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

FOLDER = Path(__file__).parent
WIDTH = 760
COLOURS = ("text", "quiet", "line", "wash", "back", "accent", "chosen", "amount", "for", "against", "apart")
TYPE = (("label", "labels, notes, values"), ("control-text", "controls, readout"), ("reading", "the text"))
METHODS = ("attention", "rollout", "alti", "lrp", "saliency", "value_zeroing")
SPACE = ("s1", "s2", "s3", "s4")
SHEET = """([parts, colours, sizes, spaces]) => {
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
  const [frame, ...others] = parts;
  named(sheet, ...frame);
  const rest = add('', 'display: flex; flex-wrap: wrap; gap: 0 24px; align-items: start');
  for (const part of others) named(rest, ...part);
  document.body.replaceChildren(sheet);
}"""


def picture(part: Locator) -> str:
    """Return what a part looks like, as the address of a picture."""
    return f"data:image/png;base64,{b64encode(part.screenshot()).decode()}"


def parts(page: Page) -> list[tuple[str, str]]:
    """Return the parts of an Explorer and a RelevanceMap, each with its name."""
    explorer, relevance = page.locator(".aw-root").nth(0), page.locator(".aw-root").nth(1)
    explorer.locator(".aw-menu-button").first.click()
    methods = picture(page.locator(".aw-menu:popover-open"))
    page.keyboard.press("Escape")
    explorer.locator(".aw-tools-button").first.click()
    tools = picture(page.locator(".aw-menu:popover-open"))
    page.keyboard.press("Escape")
    plot = explorer.locator(".aw-heatmap .aw-plot").first
    size = plot.bounding_box() or {"width": 0, "height": 0}
    plot.click(position={"x": 0.3 * size["width"], "y": 0.45 * size["height"]})
    page.mouse.move(0, 0)
    page.wait_for_timeout(800)
    frame = picture(explorer)
    explorer.locator("[role=tab]").last.click()
    words = picture(explorer.locator(".aw-side"))
    return [
        ("Frame: toolbar, lead (chips, text), body with caption and legend, footer", frame),
        ("Menu: groups, gists, badges", methods),
        ("Meters, in an answer", words),
        ("The menu ⋯", tools),
        ("Legend of amounts", picture(explorer.locator(".aw-scale:visible").first)),
        ("Legend of signed values", picture(relevance.locator(".aw-scale:visible").first)),
    ]


def shoot(address: str, theme: str, executable: str) -> bytes:
    """Return the sheet of all parts in one theme, as a PNG."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": WIDTH + 80, "height": 1200},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
        )
        page.goto(address)
        page.locator(".aw-root .aw-scale:visible, .aw-root .aw-ramp:visible").last.wait_for()
        page.wait_for_timeout(2000)
        page.evaluate(SHEET, [parts(page), list(COLOURS), list(TYPE), list(SPACE)])
        page.wait_for_timeout(300)
        sheet = page.locator(".aw-root").screenshot()
        browser.close()
    return sheet


def main() -> None:
    """Write both pictures."""
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    executable = next((found for name in names if name and (found := shutil.which(name))), None)
    if executable is None:
        raise FileNotFoundError("no chromium found; set CHROMIUM to its path.")
    review = aw.trace(*aw.demo_model("classifier"), "A wonderful film with a dull ending.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "parts.html"
        explorer = aw.Explorer(review, methods=METHODS, layer=2, head=6)
        aw.to_html([explorer, aw.RelevanceMap(aw.lrp(review))], path)
        for theme in ("light", "dark"):
            image = Image.open(io.BytesIO(shoot(path.as_uri(), theme, executable)))
            image.convert("RGB").save(FOLDER / f"design-{theme}.png", optimize=True)


if __name__ == "__main__":
    main()
