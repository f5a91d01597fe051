"""How a weight of a kernel comes about, on the page: steps as Python has them, by pointer and keyboard."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations.mixing.kernel_row import kernel_row

TOKENS = ["the", "cat", "sat", "\u202eon", "the", "mat"]


@pytest.fixture(scope="module")
def trace():
    draw = np.random.default_rng(3).normal
    states = [draw(size=shape) for shape in ((6, 8), (8, 6), (8, 6), (8, 6))]
    states[2] /= 4  # keys of about length 1
    return aw.from_qkv(*states, heads=2, rule=("delta", {"beta": 0.6, "decay": 0.8}), tokens=TOKENS)


@pytest.fixture
def neuron(trace, open_page, tmp_path):
    """A page of NeuronView; returns the page and the view."""
    view = aw.NeuronView(trace, head=1)
    view.selection.pinned = (5, 1)
    path = view.to_html(tmp_path / "page.html")

    def make(**options):
        page = open_page(path.as_uri(), **options)
        page.locator(".aw-neuron-key").first.wait_for()
        return page, page.locator(".aw-neuron"), view

    return make


def number(text):
    return float(text.replace("−", "-").replace(" ", "").lstrip("×+/").removeprefix("<"))


def table(root):
    return [row.locator("th, td").all_inner_texts() for row in root.locator("tbody tr").all()]


def test_the_steps_are_those_of_python(neuron, trace):
    page, root, view = neuron()
    chain = kernel_row(trace, 0, 1, 5).chain(1)
    lines = table(root)
    assert len(lines) == 5
    assert lines[0][0].endswith("writes")
    assert lines[0][2] == "q · β k"
    assert [number(line[-1]) for line in lines] == pytest.approx(
        [chain.start, *(step.value for step in chain.steps)], rel=6e-3
    )
    assert [number(line[2]) for line in lines[1:]] == pytest.approx([0.8] * 4)
    said = root.locator(".aw-neuron-formula").inner_text()
    assert said in view.describe()
    assert "keeps" in said or "reads" in said
    assert not root.locator(".aw-neuron-walk, .aw-neuron-pair").locator("visible=true").count()
    assert said in page.locator(".aw-neuron-chain").get_attribute("aria-label")


def test_keys_are_walked_and_pinned(neuron, trace):
    page, root, _ = neuron()
    root.locator(".aw-neuron-chain").focus()
    page.keyboard.press("ArrowDown")
    assert len(table(root)) == 4
    page.keyboard.press("Shift+ArrowUp")
    assert len(table(root)) == 3
    chain = kernel_row(trace, 0, 1, 4).chain(2)
    assert number(table(root)[-1][-1]) == pytest.approx(chain.weight, rel=6e-3)
    root.locator(".aw-neuron-key:visible").first.click()
    assert len(table(root)) == 5
    shown = [
        number(text) for text in root.locator(".aw-neuron-key:visible .aw-neuron-value").all_inner_texts()
    ]
    assert shown == pytest.approx(kernel_row(trace, 0, 1, 4).weights.tolist(), abs=1e-3)
    assert "of what stands at" in root.locator(".aw-readout").inner_text()
    root.get_by_role("combobox", name="head").select_option("0")
    other = kernel_row(trace, 0, 0, 4).chain(0)
    page.wait_for_function(
        "want => Math.abs(document.querySelector('.aw-neuron-chain tbody tr td:last-child').textContent"
        ".replace('−', '-') - want) < 0.01",
        arg=other.start,
    )


@pytest.mark.parametrize(("width", "scheme"), [(340, "dark"), (480, "light"), (1200, "light")])
def test_a_long_chain_fits(open_page, tmp_path, screenshot, width, scheme):
    draw = np.random.default_rng(0).normal
    states = [draw(size=shape) for shape in ((60, 8), (8, 4), (8, 4), (8, 4))]
    trace = aw.from_qkv(*states, rule=("linear", {"decay": np.linspace(0.7, 1.0, 60)}))
    view = aw.NeuronView(trace)
    view.selection.pinned = (59, 20)
    page = open_page(
        view.to_html(tmp_path / "page.html").as_uri(),
        color_scheme=scheme,
        viewport={"width": width, "height": 900},
    )
    page.locator(".aw-neuron-chain tbody tr").first.wait_for()
    root = page.locator(".aw-neuron")
    lines = table(root)
    assert len(lines) <= 12
    assert any("tokens" in line[0] for line in lines)
    assert number(lines[-1][-1]) == pytest.approx(kernel_row(trace, 0, 0, 59).chain(20).weight, rel=6e-3)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    inside = "e => e.scrollWidth <= e.clientWidth + 1"
    assert root.locator(".aw-neuron-chain").evaluate(inside)
    screenshot(page, f"chain-{scheme}-{width}.png", full_page=True)


def test_a_block_without_heads_shows_one_channel(open_page, tmp_path):
    from tests.models.build import Kind, build

    trace = aw.trace(build(Kind("mamba", "causal")), None, input_ids=list(range(20, 28)))
    view = aw.NeuronView(trace)
    page = open_page(view.to_html(tmp_path / "page.html").as_uri(), viewport={"width": 1200, "height": 800})
    page.locator(".aw-neuron-chain tbody tr").first.wait_for()
    row = kernel_row(trace, 0, 0, 7)
    group = page.get_by_role("group", name="channel")
    assert group.inner_text().split() == ["‹", "channel", str(row.group), "/", str(row.channels - 1), "›"]
    assert page.locator(".aw-neuron-note").is_visible()
