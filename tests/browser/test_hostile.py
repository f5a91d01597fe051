"""Styles of the page end at the frame of a view, whatever they select and however heavy they are."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from tests.sae import made
from tests.views.every import every_view, make

from .settling import settle

NAMES = (
    "div, span, button, table, tr, th, td, thead, tbody, dl, dt, dd, ul, ol, li, input, select, option,"
    " p, b, i, h1, h2, canvas, label, fieldset, legend, output, section, details, summary, progress,"
    " textarea, a, code, kbd, pre, img, svg, path, rect, line, g, text"
)
RULES = """float: right; margin: 7px; padding: 9px; font: italic 700 40px/3 serif; text-transform: uppercase;
  letter-spacing: 4px; text-indent: 20px; white-space: pre; background: red; color: lime; border: 3px
  solid blue; box-sizing: content-box; min-width: 90px; max-width: 91px; width: 90px; height: 77px;
  direction: rtl; unicode-bidi: bidi-override; zoom: 1.2; overflow: visible; display: inline-block;
  position: relative; top: 5px; opacity: 0.5; transform: rotate(3deg); transition: all 2s; fill: red;
  stroke-width: 9px; text-align: center; visibility: visible; writing-mode: vertical-rl; aspect-ratio:
  3; filter: blur(1px)"""
INSIDE = ":where(article)"  # surroundings of a view may be moved and scaled
SHEETS = {
    "elements": f"{INSIDE} :is({NAMES}) {{ {RULES} }} {INSIDE} details {{ display: none }}",
    "everything": f"{INSIDE} * {{ {RULES} }} :root {{ font-size: 30px; line-height: 3; direction: rtl }}",
    "classes": f".jp-OutputArea .jp-RenderedHTMLCommon :is({NAMES}) {{ {RULES} }}",
    "an id": f"#host.jp-RenderedHTMLCommon :is({NAMES}) {{ {RULES} }}",
    "pseudo-elements": "*::before, *::after { content: 'host'; padding: 20px; font-size: 40px }"
    " ::marker { content: 'host'; font-size: 40px } ::placeholder { font-size: 40px }",
}

# The sheet stands around the views, not in the page's layout: their widths stay as they are.
WRAP = """() => {
  for (const el of document.querySelectorAll('.aw-root')) {
    const [outer, host] = [document.createElement('article'), document.createElement('article')];
    outer.className = 'jp-OutputArea';
    host.className = 'jp-RenderedHTMLCommon';
    host.id = 'host';
    el.parentElement.style.all = 'initial';
    el.parentElement.style.display = 'block';
    outer.style.cssText = host.style.cssText = 'all: initial; display: block; width: 760px';
    el.before(outer);
    outer.append(host);
    host.append(el);
  }
}"""
LOAD = """(css) => {
  document.getElementById('hostile')?.remove();
  const sheet = document.createElement('style');
  sheet.id = 'hostile';
  sheet.textContent = css;
  document.head.append(sheet);
}"""

# Position in the root, size, and the colours and letters that a reader sees.
BOXES = """() => [...document.querySelectorAll('.aw-root')].flatMap((root) => {
  const { x, y } = root.getBoundingClientRect();
  return [root, ...root.querySelectorAll('*')].filter((el) => el.checkVisibility()).map((el) => {
    const box = el.getBoundingClientRect();
    const seen = getComputedStyle(el);
    const path = [el, el.parentElement, el.parentElement.parentElement]
      .map((e) => `${e.localName}.${e.getAttribute('class')}`).reverse().join(' > ');
    return {
      path,
      numbers: [box.x - x, box.y - y, box.width, box.height],
      words: ['color', 'background-color', 'font-size', 'font-weight', 'text-transform', 'fill', 'opacity']
        .map((name) => seen.getPropertyValue(name)).join('; '),
    };
  });
})"""


@pytest.fixture
def given():
    def draw():
        numbers = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3, 6)).astype("float32")
        return aw.from_attentions(numbers, [f"t{i}" for i in range(6)])

    return draw


def differences(before, after):
    if len(before) != len(after):
        return [f"{len(before)} elements are {len(after)}"]
    result = []
    for item, two in zip(before, after, strict=True):
        if any(abs(a - b) > 1 for a, b in zip(item["numbers"], two["numbers"], strict=True)):
            result.append(f"{item['path']}: {item['numbers']} became {two['numbers']}")
        elif item["words"] != two["words"]:
            result.append(f"{item['path']}: {item['words']} became {two['words']}")
    return result


@pytest.mark.parametrize("name", every_view())
def test_no_sheet_of_the_page_reaches_into_a_view(page_of, given, minilm, name):
    view = (
        aw.SteerView(
            aw.trace(*minilm, "the cat sat"), made.sae(d_in=384, site="blocks.3.hook_resid_post"), maximum=3
        )
        if name == "SteerView"
        else make(name, given)
    )
    page = page_of(view, viewport={"width": 800, "height": 900})
    page.evaluate(WRAP)
    settle(page)
    before = page.evaluate(BOXES)
    assert len(before) > 5
    told = {}
    for sheet, css in SHEETS.items():
        page.evaluate(LOAD, css)
        settle(page)
        told[sheet] = differences(before, page.evaluate(BOXES))[:4]
    assert "\n".join(f"{sheet}: {line}" for sheet, result in told.items() for line in result) == ""
