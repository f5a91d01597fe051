"""The grid of heads on the page: ordered by their patterns, filtered, enlarged, chosen; 3,072 of them."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import expect

import attnwidgets as aw

LIGHT = """(c, [x, y]) => {
  const at = [Math.floor(x * c.width), Math.floor(y * c.height)];
  const [r, g, b] = c.getContext('2d').getImageData(...at, 1, 1).data;
  return r + g + b;
}"""
COLOURS = "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"


def patterns(layers, heads, count, seed=0):
    """Attention [layer, head, query, key] of heads that look back by some distance, more or less sharply."""
    draw = np.random.default_rng(seed)
    apart = np.arange(count)[:, None] - np.arange(count)
    back, sharp = draw.integers(0, 6, (2, layers, heads, 1, 1))
    scores = -np.abs(apart - back) * (0.1 + sharp) + draw.normal(0, 0.3, (layers, heads, count, count))
    powers = np.where(apart >= 0, np.exp(scores), 0.0)
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def trace():
    return aw.from_attentions(patterns(3, 4, 12), [f"t{i}" for i in range(12)])


@pytest.fixture
def grid(trace, open_page, tmp_path):
    path = aw.to_html(aw.HeadGrid(trace, layer=1, head=2, units=["token"]), tmp_path / "page.html")

    def make(**options):
        page = open_page(path.as_uri(), **options)
        page.locator(".aw-grid-plot[aria-busy=false]").wait_for()
        return page, page.locator(".aw-headgrid")

    return make


def choose(page, root, statistic, order):
    root.get_by_role("combobox", name="sort by").click()
    page.get_by_role("option", name=statistic, exact=True).click()
    filters(root)
    root.get_by_label("order of heads").select_option(order)
    root.get_by_role("button", name="Filter", exact=True).click()


def filters(root):
    """Open the form of filters."""
    button = root.get_by_role("button", name="Filter", exact=True)
    if button.get_attribute("aria-expanded") == "false":
        button.click()


def read(page, root, line, col, lines, cols):
    """The readout for a head of the grid."""
    box = root.locator(".aw-grid-plot").bounding_box()
    page.mouse.move(
        box["x"] + (col + 0.5) * box["width"] / cols, box["y"] + (line + 0.5) * box["height"] / lines
    )
    return root.locator(".aw-readout").inner_text()


def named(head):
    return f"({head.layer}.{head.head})"


def test_heads_are_ranked_by_what_they_do(grid, trace):
    page, root = grid()
    assert named(aw.results.RankedHead(2, 3, 0)) in read(page, root, 2, 3, 3, 4)
    choose(page, root, "mean distance", "within")
    stats = aw.statistics.head_statistics(trace)
    best = max(
        (head for head in stats.top("mean_distance", None) if head.layer == 2), key=lambda head: head.value
    )
    said = read(page, root, 2, 0, 3, 4)
    assert named(best) in said
    assert f"mean distance {best.value:.4g}" in said
    filters(root)
    root.get_by_role("button", name="highest first").click()
    root.get_by_label("order of heads").select_option("all")
    root.get_by_role("button", name="Filter", exact=True).click()
    box = root.locator(".aw-grid-plot").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    assert named(stats.top("mean_distance", 1, lowest=True)[0]) in root.locator(".aw-readout").inner_text()


def test_a_threshold_and_names_leave_heads_out(grid, trace):
    page, root = grid()
    choose(page, root, "mean distance", "all")
    filters(root)
    root.get_by_label("threshold").fill("60")
    values = aw.statistics.head_statistics(trace)["mean_distance"]
    left = int((values >= values.min() + 0.6 * np.ptp(values) - 1e-6).sum())
    assert 0 < left < 12
    root.get_by_text(f"{left} of 12", exact=True).wait_for()
    root.get_by_label("threshold").fill("0")
    root.get_by_label("heads by name").fill("1, *.0")
    root.get_by_text("6 of 12", exact=True).wait_for()
    root.get_by_label("heads by name").fill("first")
    root.get_by_text("3: layer 3").wait_for()
    assert root.get_by_label("heads by name").get_attribute("aria-invalid") == "true"


def test_keys_move_and_enter_selects(grid):
    page, root = grid()
    plot = root.locator(".aw-grid-plot")
    plot.focus()
    said = root.locator(".aw-readout")
    assert "(1.2)" in said.inner_text()
    for key, head in (
        ("ArrowRight", "1.3"),
        ("ArrowUp", "0.3"),
        ("Home", "0.0"),
        ("ArrowUp", "0.0"),
        ("End", "2.3"),
    ):
        page.keyboard.press(key)
        assert f"({head})" in said.inner_text(), key
    assert "(2.3)" in root.locator(".aw-grid-preview").inner_text()
    page.keyboard.press("Escape")
    assert said.inner_text().startswith("selected: layer 1, head 2")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.mouse.move(2, 2)
    page.keyboard.press("Escape")
    assert said.inner_text().startswith("selected: layer 2, head 2")


def test_the_cursor_stays_on_its_head_while_the_grid_is_laid_out_anew(grid):
    page, root = grid()
    plot, spot = root.locator(".aw-grid-plot"), root.locator(".aw-spot:not(.aw-spot-selected)")
    plot.focus()
    page.keyboard.press("ArrowUp")
    before = spot.bounding_box()["width"]
    page.set_viewport_size({"width": 420, "height": 900})
    expect(spot).not_to_have_css("width", f"{before:g}px")
    assert "(0.2)" in root.locator(".aw-readout").inner_text()
    page.keyboard.press("ArrowRight")
    assert "(0.3)" in root.locator(".aw-readout").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(340, "dark"), (1100, "light")])
def test_three_thousand_heads_are_one_picture(open_page, tmp_path, screenshot, width, scheme):
    numbers = patterns(48, 64, 16)
    trace = aw.from_attentions(numbers, [f"t{i}" for i in range(16)])
    path = aw.HeadGrid(trace, units=["token"]).to_html(tmp_path / "page.html")
    page = open_page(path.as_uri(), color_scheme=scheme, viewport={"width": width, "height": 900})
    page.locator(".aw-grid-plot[aria-busy=false]").wait_for()
    root = page.locator(".aw-headgrid")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelectorAll('.aw-headgrid *').length") < 250
    assert root.locator(".aw-grid-plot > canvas").evaluate(COLOURS) > 20
    # Layers across, heads down, by a pattern; the six highest have names, and the first is selected.
    result = aw.statistics.head_patterns(trace).top("previous", 6)
    rows = root.locator(".aw-pattern")
    assert [row.locator("b").inner_text() for row in rows.all()] == [f"{h.layer}.{h.head}" for h in result]
    assert rows.first.get_attribute("aria-selected") == "true"
    box = root.locator(".aw-grid-plot").bounding_box()
    page.mouse.move(
        box["x"] + (result[2].layer + 0.5) * box["width"] / 48,
        box["y"] + (result[2].head + 0.5) * box["height"] / 64,
    )
    assert named(result[2]) in root.locator(".aw-readout").inner_text()
    # Labels stand beside the picture, never on it.
    filters(root)
    plot, names = box, root.locator(".aw-grid-rows > span").all()
    assert names
    assert all(name.bounding_box()["x"] + name.bounding_box()["width"] <= plot["x"] for name in names)
    screenshot(page, f"grid-{scheme}-{width}.png", full_page=True)
    # Painting all of it anew, as a filter does, and a move of the pointer.
    spent = page.evaluate(
        """() => {
          const range = document.querySelector('.aw-grid-controls .aw-range');
          const plot = document.querySelector('.aw-grid-plot');
          const timed = (act) => {
            const begun = performance.now();
            act();
            return performance.now() - begun;
          };
          const paints = [5, 10, 15].map((value) => timed(() => {
            range.value = value; range.dispatchEvent(new Event('input', {bubbles: true}));
          }));
          const box = plot.getBoundingClientRect();
          const moves = [20, 60, 100].map((x) => timed(() => plot.dispatchEvent(
            new PointerEvent('pointermove', {clientX: box.left + x, clientY: box.top + 50}))));
          return [Math.min(...paints), Math.min(...moves)];
        }"""
    )
    assert spent[0] < 200
    assert spent[1] < 30


def test_a_grid_opens_in_the_order_given_and_pruned_heads_are_no_dark_ones(open_page, tmp_path, screenshot):
    rng = np.random.default_rng(5)
    layers = [np.exp(rng.normal(0, 2, (1, heads, 9, 9))) for heads in (4, 2, 4)]
    trace = aw.from_attentions([layer / layer.sum(-1, keepdims=True) for layer in layers], list("abcdefghi"))
    sorted_ = aw.HeadGrid(trace, sort="entropy", order="within", lowest_first=True, palette="cividis")
    plain = aw.HeadGrid(trace)
    page = open_page(aw.to_html([sorted_, plain], tmp_path / "page.html").as_uri())
    grid = page.locator(".aw-headgrid").first
    filters(grid)
    grid.get_by_text("lowest first").wait_for()
    grid.get_by_role("button", name="Filter", exact=True).click()
    assert grid.get_by_label("order of heads").input_value() == "within"
    plot = page.locator(".aw-grid-plot").nth(1)
    side = plot.bounding_box()["width"] / 4
    plot.hover(position={"x": 2.5 * side, "y": 1.5 * side})
    readout = page.locator(".aw-readout").nth(1)
    assert "pruned from this layer" in readout.inner_text()
    plot.hover(position={"x": 1.5 * side, "y": 1.5 * side})
    assert "largest value" in readout.inner_text()
    clear = """(plot, [x, y]) => {
      const canvas = plot.querySelector("canvas"), dots = canvas.width / plot.clientWidth;
      const { data } = canvas.getContext("2d").getImageData(x * dots, y * dots, 30, 30);
      return data.filter((_, i) => i % 4 === 3 && data[i] === 0).length / 900;
    }"""
    assert plot.evaluate(clear, [2.2 * side, 1.2 * side]) > 0.3
    assert plot.evaluate(clear, [1.2 * side, 1.2 * side]) == 0
    screenshot(page, "grid-pruned.png", full_page=True)


def test_a_pattern_selects_its_first_head_and_nothing_changes_height(grid, trace):
    page, root = grid(viewport={"width": 760, "height": 700})
    root.locator(".aw-pattern").first.wait_for()
    tall = root.bounding_box()["height"]
    assert tall <= 560
    patterns = aw.statistics.head_patterns(trace)
    for title, name in (("same token", "self"), ("first token", "first")):
        root.get_by_role("combobox", name="pattern").click()
        page.get_by_role("option", name=title, exact=True).click()
        top = patterns.top(name, 3)
        rows = root.locator(".aw-pattern")
        assert [row.locator("b").inner_text() for row in rows.all()[:3]] == [
            f"{h.layer}.{h.head}" for h in top
        ]
        assert rows.first.get_attribute("aria-selected") == "true"
        page.mouse.move(2, 2)
        said = root.locator(".aw-readout").inner_text()
        assert said.startswith(f"selected: layer {top[0].layer}, head {top[0].head}")
        assert root.bounding_box()["height"] == tall
    choose(page, root, "entropy", "all")
    best = aw.statistics.head_statistics(trace).top("entropy", 1)[0]
    assert root.locator(".aw-pattern b").first.inner_text() == f"{best.layer}.{best.head}"
    assert root.bounding_box()["height"] == tall
    # By keys: a single stop, then arrows.
    assert root.locator(".aw-pattern[tabindex='0']").count() == 1
    root.locator(".aw-pattern").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert root.locator(".aw-pattern").nth(1).get_attribute("aria-selected") == "true"
    assert root.bounding_box()["height"] == tall


def test_a_right_click_reaches_no_menu_of_the_page(grid):
    page, root = grid()
    page.evaluate(
        "window.opened = 0; document.addEventListener('contextmenu', () => { window.opened += 1; })"
    )
    root.locator(".aw-grid-plot").click(button="right", position={"x": 5, "y": 5})
    assert page.evaluate("window.opened") == 0


def sunk(count):
    """Attention of two heads in which everything reads [CLS], and the rest the token before."""
    rows = 0.05 * np.eye(count, k=-1, dtype=np.float32)
    rows[:, 0] += 1 - rows.sum(axis=1)
    return np.stack([[rows, rows]])


def treat_special(page, how):
    """Choose the treatment of special tokens in the menu."""
    page.locator(".aw-tools-button").click()
    page.locator("label", has_text="special tokens").locator("select").select_option(how)


FIRST_CELL = """c => {
  const [r, g, b] = c.getContext('2d').getImageData(1, Math.round(c.height / 2), 1, 1).data;
  return r + g + b;
}"""
"""Lightness of the left edge of the first thumbnail, half-way down."""


def test_thumbnails_show_special_tokens_where_the_map_does(open_page, tmp_path):
    labels = ["[CLS]", *(f"t{i}" for i in range(11))]
    for how, is_dark in (("apart", False), (False, True)):
        view = aw.HeadGrid(aw.from_attentions(sunk(12), labels), hide_special=how)
        page = open_page(view.to_html(tmp_path / f"{how}.html").as_uri())
        canvas = page.locator(".aw-grid-plot[aria-busy=false] > canvas")
        assert (canvas.evaluate(FIRST_CELL) < 300) is is_dark
        treat_special(page, "apart" if is_dark else "show")
        assert (canvas.evaluate(FIRST_CELL) < 300) is not is_dark, "both are in the page"


def test_a_page_says_which_thumbnails_of_a_long_text_it_holds(open_page, tmp_path):
    labels = ["[CLS]", *(f"t{i}" for i in range(79))]
    page = open_page(aw.HeadGrid(aw.from_attentions(sunk(80), labels)).to_html(tmp_path / "x.html").as_uri())
    page.locator(".aw-grid-plot[aria-busy=false]").wait_for()
    assert page.locator(".aw-grid-axes").inner_text() == "heads across, layers down"
    treat_special(page, "show")
    page.get_by_text("shown without special tokens").wait_for()


def test_a_table_of_heads_without_a_ranking_shows_their_largest_values(open_page, tmp_path, screenshot):
    numbers = patterns(30, 9, 6)
    numbers[:, ::2] *= -0.5  # signed, and so without patterns
    trace = aw.from_attentions(patterns(1, 1, 6), [f"t{i}" for i in range(6)])
    query, key = trace.axes()
    shown = aw.results.MixingMap(
        numbers, query=query, key=key, layers=range(30), heads=range(9), method="mine", signed=True
    )
    page = open_page(aw.HeadGrid(shown).to_html(tmp_path / "page.html").as_uri())
    page.get_by_text("by largest value", exact=True).wait_for()
    root = page.locator(".aw-headgrid")
    box = root.locator(".aw-grid-plot").bounding_box()

    def light(layer, head):
        x, y = (layer + 0.5) * box["width"] / 30, (head + 0.5) * box["height"] / 9
        return root.locator(".aw-grid-plot > canvas").evaluate(LIGHT, [x / box["width"], y / box["height"]])

    largest = np.abs(numbers).max((2, 3))
    most, least = (np.unravel_index(at, largest.shape) for at in (largest.argmax(), largest.argmin()))
    assert light(*most) + 100 < light(*least)
    assert not root.get_by_text("needs a running kernel").is_visible(), "such maps have no patterns"
    screenshot(page, "grid-signed-table.png", full_page=True)
