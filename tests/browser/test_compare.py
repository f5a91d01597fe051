"""CompareView, LayerProfile and FlowView on a page: linked, read by pointer and keyboard, said in words."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw

WORDS = ["The", "keys", "to", "the", "cabinet", "are", "here"]


@pytest.fixture(scope="module")
def trace():
    numbers = np.exp(np.random.default_rng(3).normal(0, 2, (4, 2, 7, 7)))
    return aw.from_attentions(numbers / numbers.sum(-1, keepdims=True), WORDS)


def opened(open_page, path, *views):
    page = open_page(aw.to_html(list(views), path / "page.html").as_uri())
    page.locator(".aw-root > *").first.wait_for(state="attached")
    return page


@pytest.fixture
def compared(trace, open_page, tmp_path):
    rng = np.random.default_rng(0)
    axis = aw.attention(trace).key
    found = [
        aw.Attributions(rng.normal(size=7) * scale, axis=axis, trace_id=trace.id, method="made")
        for scale in (1, 100)
    ]
    items = {"attention": aw.attention(trace), "small": found[0], "large": found[1]}
    page = opened(open_page, tmp_path, aw.CompareView(items), aw.Heatmap(aw.attention(trace)))
    page.locator(".aw-agree tbody td").nth(8).wait_for()
    return page


def strip(page, number):
    return page.locator(".aw-compare .aw-strip").nth(number)


def test_a_hovered_token_is_marked_in_every_strip_with_its_values(compared, trace):
    strip(compared, 1).locator(".aw-tok", has_text="cabinet").hover()
    for number in range(3):
        assert strip(compared, number).locator(".aw-key").inner_text() == "cabinet"
    value = aw.attention(trace).mean().matrix(0)[0, 4]
    said = compared.locator(".aw-compare .aw-readout").inner_text()
    assert f"attention {float(f'{value:.4g}'):g}, small" in said
    rank = 1 + int((aw.attention(trace).mean().matrix(0)[0] > value).sum())
    assert strip(compared, 0).locator(".aw-compare-value").inner_text().split(" · ")[1].startswith(str(rank))
    assert "cabinet" in compared.locator(".aw-heatmap .aw-labs-top > .aw-lab-over:visible").inner_text()


def test_a_pinned_query_is_followed_and_scales_are_named(compared, trace, shots):
    compared.locator(".aw-heatmap .aw-plot").click(position={"x": 30, "y": 230})
    compared.get_by_text("maps read as the row of").wait_for()
    at = compared.locator(".aw-heatmap .aw-labs-left > .aw-lab-pin").inner_text()
    assert strip(compared, 0).locator(".aw-query").inner_text() == at
    assert strip(compared, 1).locator(".aw-query").count() == 0  # no row of a map
    tops = [strip(compared, i).locator(".aw-field > span").nth(2).inner_text() for i in range(3)]
    assert len(set(tops)) == 3
    compared.get_by_text("one scale for all").click()
    tops = {strip(compared, i).locator(".aw-field > span").nth(2).inner_text() for i in range(3)}
    assert len(tops) == 1
    compared.screenshot(path=shots / "compare.png", full_page=True)


def test_a_cell_of_the_matrix_brings_two_together(compared):
    cells = compared.locator(".aw-agree tbody td")
    matrix = np.array([float(t.replace("−", "-")) for t in cells.all_inner_texts()]).reshape(3, 3)
    np.testing.assert_array_equal(matrix, matrix.T)
    cells.nth(1).focus()
    compared.keyboard.press("ArrowDown")
    compared.keyboard.press("ArrowRight")
    compared.keyboard.press("Enter")  # small and large
    names = [s for s in compared.locator(".aw-compare-name").all_inner_texts() if s]
    assert names[-1] == "2 − 3"
    assert [strip(compared, i).is_visible() for i in range(4)] == [False, True, True, True]
    assert "small minus large, in shares" in compared.locator(".aw-compare .aw-readout").inner_text()
    compared.get_by_role("button", name="show all 3").click()
    assert [strip(compared, i).is_visible() for i in range(4)] == [True, True, True, False]
    warning = compared.locator(".aw-compare-side .aw-warning")
    assert "Agreement is not faithfulness" in warning.inner_text()


def painted(strip, index):
    """The pixel in the middle of a word's box, on the canvas under it."""
    return strip.evaluate(
        """(strip, i) => {
          const canvas = strip.querySelector("canvas"), word = strip.querySelectorAll(".aw-tok")[i];
          const [box, at] = [canvas.getBoundingClientRect(), word.getClientRects()[0]];
          const dots = canvas.width / box.width;
          const x = Math.round((at.x + at.width / 2 - box.x) * dots);
          const y = Math.round((at.y - box.y + 3) * dots);
          return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data];
        }""",
        index,
    )


def test_filters_act_on_every_strip_and_every_line(minilm, open_page, tmp_path, shots):
    read = aw.trace(*minilm, "The keys to the cabinet are here.")
    views = (
        aw.compare(read, hide_special="renormalise", layer=2),
        aw.LayerProfile(read, layer=2),
    )
    page = opened(open_page, tmp_path, *views)
    page.locator(".aw-agree tbody td").nth(3).wait_for()
    compared, profiled = page.locator(".aw-compare"), page.locator(".aw-profile")
    special = [i for i, flag in enumerate(aw.attention(read).key.units["token"].special) if flag]
    assert "the rest of a row divided by its sum" in compared.locator(".aw-filters .aw-note").inner_text()
    for number in range(2):
        assert painted(strip(page, number), special[0])[:3] == pytest.approx([128] * 3, abs=4)
    values = aw.attention(read).mean().matrix(2)[0].astype(float)
    values[special] = 0
    best = int(values.argmax())
    strip(page, 0).locator(".aw-tok").nth(best).hover()
    said = strip(page, 0).locator(".aw-compare-value").inner_text().replace("\u00a0", " ")
    number, rank = said.split(" · ")
    assert float(number) == pytest.approx(values[best] / values.sum(), rel=1e-3)
    assert rank == f"1st of {len(values) - len(special)}"
    strip(page, 0).locator(".aw-tok").nth(special[0]).hover()
    assert strip(page, 0).locator(".aw-compare-value").inner_text() == "left out"

    profiled.locator(".aw-tools > button").click()
    profiled.get_by_label("special tokens").select_option("hide")
    sources = profiled.locator(".aw-strip").nth(1)
    sources.locator(".aw-tok").nth(special[0]).click()
    page.mouse.move(0, 0)
    assert "attention left out" in profiled.locator(".aw-readout").inner_text()
    assert profiled.locator(".aw-profile-plot circle").count() == 0
    page.screenshot(path=shots / "filtered-rows.png", full_page=True)


@pytest.fixture
def profiled(trace, open_page, tmp_path):
    views = aw.LayerProfile(trace, cues=["keys", "are"]), aw.Heatmap(aw.attention(trace))
    page = opened(open_page, tmp_path, *views)
    page.locator(".aw-profile-plot path").nth(1).wait_for()
    return page


def test_lines_follow_the_pin_and_a_click_selects_the_layer(profiled, trace):
    readout = profiled.locator(".aw-profile .aw-readout")
    both = aw.attention(trace).mean().matrix(0)[0, [1, 5]].sum()
    assert f"(sum), layer 0: attention {float(f'{both:.4g}'):g}" in readout.inner_text()
    box = profiled.locator(".aw-profile-plot").bounding_box()
    lines = profiled.locator(".aw-profile-plot circle")
    x = float(lines.nth(3).get_attribute("cx"))
    profiled.locator(".aw-profile-plot").click(position={"x": x, "y": box["height"] / 2})
    profiled.locator(".aw-heatmap .aw-where", has_text="layer 3").wait_for()
    profiled.locator(".aw-heatmap .aw-plot").click(position={"x": 200, "y": 110})
    row, column = (
        WORDS.index(profiled.locator(f".aw-heatmap .aw-labs-{side} > .aw-lab-pin").inner_text())
        for side in ("left", "top")
    )
    profiled.mouse.move(0, 0)
    value = aw.attention(trace).mean().matrix(3)[row, column]
    profiled.wait_for_function(
        "text => document.querySelector('.aw-profile .aw-readout').textContent.includes(text)",
        arg=f"layer 3: attention {float(f'{value:.4g}'):g}",
    )


def test_shift_adds_sources(profiled, trace):
    sources = profiled.locator(".aw-profile .aw-strip").nth(1)
    sources.locator(".aw-tok").nth(2).click(modifiers=["Shift"])
    profiled.mouse.move(0, 0)
    three = aw.attention(trace).mean().matrix(0)[0, [1, 5, 2]].sum()
    assert sources.locator(".aw-tok[data-cue]").all_inner_texts() == ["keys", "to", "are"]
    said = profiled.locator(".aw-profile .aw-readout").inner_text()
    assert f"attention {float(f'{three:.4g}'):g}" in said
    sources.locator(".aw-tok").nth(4).click()
    assert sources.locator(".aw-tok[data-cue]").count() == 0


@pytest.fixture
def flowing(trace, open_page, tmp_path):
    page = opened(open_page, tmp_path, aw.FlowView(trace), aw.Heatmap(aw.attention(trace)))
    page.get_by_text("of the mass is shown").wait_for()
    return page


def numbers_of(text):
    return [float(part.split(" %")[0].split()[-1]) for part in text.split(",")]


def test_a_token_is_followed_to_the_input_as_rollout_does(flowing, trace):
    plot = flowing.locator(".aw-flow-plot")
    box = plot.bounding_box()
    flowing.mouse.move(box["x"] + 5.5 * box["width"] / 7, box["y"] + 10)
    flowing.get_by_text("after layer 3 is made of").wait_for()
    row = aw.rollout(trace).matrix(3)[5]
    said = numbers_of(flowing.locator(".aw-flow .aw-readout").inner_text().split("made of")[1])
    np.testing.assert_allclose(said, 100 * np.sort(row)[::-1][:5], rtol=0.04)
    assert "are" in flowing.locator(".aw-heatmap .aw-labs-left > .aw-lab-over:visible").inner_text()


def test_the_slider_says_how_much_is_shown(flowing):
    counts = flowing.locator(".aw-flow > .aw-note")
    before = counts.inner_text()
    slider = flowing.get_by_role("slider", name="smallest share")
    slider.focus()
    slider.press("End")
    flowing.wait_for_function(
        "old => document.querySelector('.aw-flow > .aw-note').textContent !== old", arg=before
    )
    assert "of at least 50 %" in counts.inner_text()
    share = [float(text.split("≈ ")[1].split(" %")[0]) for text in (before, counts.inner_text())]
    assert share[1] < share[0] <= 100


def test_the_keyboard_moves_pins_and_lets_go(flowing):
    plot = flowing.locator(".aw-flow-plot")
    plot.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        flowing.keyboard.press(key)
    flowing.locator(".aw-heatmap .aw-where", has_text="layer 2").wait_for()
    assert flowing.locator(".aw-heatmap .aw-labs-left > .aw-lab-pin").inner_text() == "keys"
    assert "“keys”" in plot.get_attribute("aria-label").replace("\u2068", "").replace("\u2069", "")
    flowing.keyboard.press("Escape")
    flowing.locator(".aw-heatmap .aw-labs-left > .aw-lab-pin").wait_for(state="hidden")
