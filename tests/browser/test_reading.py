"""Every view for readers with a keyboard, large text, or their colours."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import attnwidgets as aw
from tests.browser.test_gallery import CLIPPED
from tests.sae import made
from tests.views.every import every_view, make

from .settling import settle

# Where the focus is: view, box, and whether it is seen; null outside all views.
FOCUS = """() => {
  const el = document.activeElement;
  const root = el.closest(".aw-root");
  if (!root) return null;
  const box = el.getBoundingClientRect();
  const { left, right } = box;
  const [top, bottom] = [box.top + scrollY, box.bottom + scrollY];
  let list = el.parentElement;
  while (list !== root && list.scrollHeight <= list.clientHeight + 1) list = list.parentElement;
  const [inside, down] = [[...root.querySelectorAll("*")].indexOf(list), list.scrollTop];
  const seen = [el, el.closest("label")].some((node) => node && getComputedStyle(node).outlineStyle !== "none"
    && parseFloat(getComputedStyle(node).outlineWidth) > 0);
  const name = `${el.localName}.${el.className} ${el.ariaLabel ?? el.textContent.slice(0, 20)}`;
  const view = [...document.querySelectorAll(".aw-root")].indexOf(root);
  return { view, name, left, right, top, bottom, inside, down, seen };
}"""

# Text whose colour is too near to its background. A token's fill lies beside it.
INVISIBLE = """() => {
  const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
    .getContext("2d", { willReadFrequently: true });
  const read = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data].map((x) => x / 255);
  };
  const light = (colour) => {
    const [r, g, b] = read(colour).map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (el) => {
    for (let at = el; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (read(colour)[3] > 0.5) return colour;
    }
    return getComputedStyle(document.body).backgroundColor;
  };
  return [...document.querySelectorAll(".aw-root *")]
    .filter((el) => [...el.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .filter((el) => !el.closest(".aw-tok, .aw-sr, svg, :disabled"))
    .filter((el) => el.checkVisibility({ visibilityProperty: true }))
    .flatMap((el) => {
      const [ink, ground] = [getComputedStyle(el).color, behind(el)].map(light);
      const contrast = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
      return contrast < 3 ? [`${el.className}: ${el.textContent.slice(0, 20)}: ${contrast.toFixed(1)}`] : [];
    });
}"""

# The classes of bars, whose lengths say numbers, that stand out from their background.
BARS = """() => [...new Set([...document.querySelectorAll(".aw-root [style]")]
  .filter((el) => /%/.test(el.style.width + el.style.height) && el.getBoundingClientRect().width >= 1
    && el.getBoundingClientRect().height >= 1 && el.childElementCount === 0 && el.localName !== "canvas")
  .filter((el) => {
    const [fill, under] = [el, el.parentElement].map((node) => getComputedStyle(node).backgroundColor);
    return fill !== under && !/, 0\\)$|transparent/.test(fill);
  })
  .map((el) => `${el.parentElement.className} > ${el.className}`))].sort()"""

# Chosen elements that look like others of their kind.
ALIKE = """() => {
  const look = (el) => {
    const { outlineStyle, outlineColor, borderColor, backgroundColor, color } = getComputedStyle(el);
    return [outlineStyle, outlineColor, borderColor, backgroundColor, color].join("; ");
  };
  const alike = [];
  for (const state of ["aria-pressed", "aria-selected"])
    for (const el of document.querySelectorAll(`.aw-root [${state}="true"]:not(.aw-tok)`)) {
      const others = [...document.querySelectorAll(`.aw-root [${state}="false"]`)]
        .filter((other) => other.className === el.className && other.checkVisibility());
      if (el.checkVisibility() && others.some((other) => look(other) === look(el))) alike.push(el.className);
    }
  return alike;
}"""

# Controls of toolbar and footer that stand outside their view.
OUTSIDE = """() => [...document.querySelectorAll(
    ".aw-root > :is(.aw-toolbar, .aw-footer) :is(button, input, select)")]
  .filter((el) => el.checkVisibility() && !el.closest(".aw-menu, [popover]"))
  .filter((el) => {
    const [box, root] = [el, el.closest(".aw-root")].map((node) => node.getBoundingClientRect());
    return box.left < root.left - 1 || box.right > root.right + 1;
  }).map((el) => `${el.closest(".aw-root").className}: ${el.className}`)"""


# Every view is drawn, as far as it can be without a kernel.
DRAWN = """() => {
  const views = [...document.querySelectorAll(".aw-view")];
  return views.every((view) => view.querySelector(".aw-root > *"))
    && !document.querySelector(".aw-view [aria-busy=true]");
}"""


@pytest.fixture(scope="module")
def views(minilm):
    def given():
        numbers = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3, 6)).astype("float32")
        return aw.from_attentions(numbers, ["nobody", "understood", "the", "music", "wonderful", "today"])

    sae = made.sae(d_in=384, site="blocks.3.hook_resid_post")
    steered = aw.SteerView(aw.trace(*minilm, "the cat sat"), sae, maximum=3)
    return [steered if name == "SteerView" else make(name, given) for name in every_view()]


@pytest.fixture(scope="module")
def path(views, tmp_path_factory):
    """The page of all views."""
    return aw.to_html(views, tmp_path_factory.mktemp("reading") / "page.html")


@pytest.fixture
def all_of(open_page, path):
    """Open the page of all views, and wait until it is at rest."""

    def make(**options):
        page = open_page(path.as_uri(), **options)
        page.wait_for_function(DRAWN)
        settle(page)
        return page

    return make


def tabbed(page):
    """Return where the focus is after every press of Tab, until it comes back to the first element."""
    stops = []
    for _ in range(600):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUS)
        if stops and stop == stops[0]:
            return stops
        if stop is not None:
            stops.append(stop)
    raise AssertionError("the focus does not come back")


def goes_back(first, second):
    """Whether the second element stands before the first one, read in rows, or in columns of rows.

    A list that scrolls moves the focus into sight: positions in it are those in the whole list.
    """
    if first["inside"] == second["inside"]:
        first, second = (
            {**stop, "top": stop["top"] + stop["down"], "bottom": stop["bottom"] + stop["down"]}
            for stop in (first, second)
        )
    shared = min(first["bottom"], second["bottom"]) - max(first["top"], second["top"])
    height = min(first["bottom"] - first["top"], second["bottom"] - second["top"])
    if shared > height / 2:
        return second["right"] <= first["left"] + 1
    return second["bottom"] <= first["top"] + 1 and second["left"] < first["right"] - 1


@pytest.mark.parametrize("width", [1200, 480])
def test_tab_goes_through_every_view_as_it_is_read_and_is_seen(all_of, views, width):
    page = all_of(viewport={"width": width, "height": 900}, forced_colors="active")
    stops = tabbed(page)
    assert {stop["view"] for stop in stops} == set(range(len(views)))
    assert [stop["name"] for stop in stops if not stop["seen"]] == []
    pairs = [(item, two) for item, two in pairwise(stops) if item["view"] == two["view"]]
    assert [(item["name"], two["name"]) for item, two in pairs if goes_back(item, two)] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_of_the_reader_hide_no_text_no_bar_and_no_choice(all_of, scheme):
    page = all_of(color_scheme=scheme)
    bars = page.evaluate(BARS)
    page.emulate_media(forced_colors="active")
    settle(page)
    assert len(bars) > 5
    assert set(bars) - set(page.evaluate(BARS)) == set()
    assert page.evaluate(INVISIBLE) == []
    assert page.evaluate(ALIKE) == []


def test_at_200_percent_nothing_is_cut_off(all_of):
    page = all_of(viewport={"width": 600, "height": 450}, device_scale_factor=2)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the page"
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(OUTSIDE) == []
