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
    result = [
        aw.results.Attributions(rng.normal(size=7) * scale, axis=axis, trace_id=trace.id, method="made")
        for scale in (1, 100)
    ]
    items = {"attention": aw.attention(trace), "small": result[0], "large": result[1]}
    page = opened(open_page, tmp_path, aw.views.CompareView(items), aw.Heatmap(aw.attention(trace)))
    page.locator(".aw-agree tbody td").nth(8).wait_for()
    return page


def plain(text):
    """Text without the marks that isolate its direction."""
    return text.replace("\u2068", "").replace("\u2069", "").replace("\u00a0", " ")


def token(page, word):
    return page.locator(".aw-compare-text .aw-tok", has_text=word)


def values(page):
    return page.locator(".aw-compare-ends .aw-compare-value").all_inner_texts()


def at_cell(page, index, row=0, count=7):
    """Where a cell of the rows lies on the page."""
    box = page.locator(".aw-compare-scroll .aw-compare-plot").bounding_box()
    return box["x"] + (index + 0.5) * box["width"] / count, box["y"] + 15 + 30 * row


def test_it_opens_with_the_row_of_the_last_token(compared, trace):
    assert compared.get_by_text("maps read as the row of").inner_text().endswith("“here”\u2069")
    assert token(compared, "here").get_attribute("aria-selected") == "true"
    largest = aw.attention(trace).mean().matrix(0)[6].max()
    assert values(compared)[0] == f"{float(f'{largest:.2g}'):g}"


def test_a_hovered_token_is_marked_in_every_row_with_its_values(compared, trace):
    token(compared, "cabinet").hover()
    row = aw.attention(trace).mean().matrix(0)[6]
    said = plain(compared.locator(".aw-compare .aw-readout").inner_text())
    assert f"“cabinet”: attention {float(f'{row[4]:.4g}'):g}, small" in said
    number, rank = values(compared)[0].split(" · ")
    assert float(number) == pytest.approx(row[4], rel=1e-3)
    assert rank.startswith(str(1 + int((row > row[4]).sum())))
    x, _ = at_cell(compared, 4)
    mark = compared.locator(".aw-compare-mark").bounding_box()
    assert mark["x"] <= x <= mark["x"] + mark["width"]
    assert "cabinet" in compared.locator(".aw-heatmap .aw-labs-top > .aw-lab-over:visible").inner_text()


def test_a_pinned_query_is_followed_and_scales_are_named(compared, trace, screenshot):
    token(compared, "keys").click()
    compared.get_by_text("maps read as the row of").get_by_text("keys").or_(
        compared.locator(".aw-compare .aw-where", has_text="keys")
    ).first.wait_for()
    compared.mouse.move(0, 0)
    largest = aw.attention(trace).mean().matrix(0)[1].max()
    assert float(values(compared)[0]) == pytest.approx(largest, rel=0.06)
    legend = compared.locator(".aw-compare .aw-scale")
    assert "largest of the row" in legend.inner_text()
    compared.get_by_text("one scale").first.click()
    assert legend.inner_text().split()[-1].startswith("+2") or float(legend.inner_text().split()[-1]) > 50
    screenshot(compared, "compare.png", full_page=True)


def test_a_click_in_the_rows_pins_an_element_whose_value_is_copied(compared):
    button = compared.locator(".aw-compare .aw-copy")
    compared.mouse.click(*at_cell(compared, 2))
    compared.mouse.move(0, 0)
    said = plain(compared.locator(".aw-compare .aw-readout").inner_text())
    assert said.startswith("“to”: attention")
    assert button.is_enabled()
    assert token(compared, "here").get_attribute("aria-selected") == "true"  # still the row of this view


def test_a_cell_of_the_matrix_chooses_the_two_that_are_compared(compared):
    cells = compared.locator(".aw-agree tbody td")
    matrix = np.array([float(t.replace("−", "-")) for t in cells.all_inner_texts()]).reshape(3, 3)
    np.testing.assert_array_equal(matrix, matrix.T)
    readout = compared.locator(".aw-compare .aw-readout")
    assert "attention minus small, in shares" in readout.inner_text()
    cells.nth(1).focus()
    compared.keyboard.press("ArrowDown")
    compared.keyboard.press("ArrowRight")
    compared.keyboard.press("Enter")  # small and large
    assert compared.locator(".aw-compare-foot b").inner_text() == "2 − 3"
    said = readout.inner_text()
    assert "small minus large, in shares" in said
    shown = float(said.split("Spearman ")[1].split(" of small and large")[0].replace("−", "-"))
    assert shown == pytest.approx(matrix[1, 2], abs=0.005)
    warning = compared.locator(".aw-compare-side .aw-warning")
    assert "Agreement is not faithfulness" in warning.inner_text()


def test_the_agreement_is_in_a_tab_of_a_narrow_view_and_nothing_changes_its_height(trace, page_of):
    views = (
        aw.compare(trace, methods=["attention", "rollout"]),
        aw.views.LayerProfile(trace),
        aw.FlowView(trace),
    )
    page = page_of(*views, viewport={"width": 776, "height": 900})
    page.locator(".aw-compare-name").nth(1).wait_for()
    roots = page.locator(".aw-root")

    def heights():
        return roots.evaluate_all("all => all.map((el) => el.offsetHeight)")

    before = heights()
    assert max(before) <= 560
    side = page.locator(".aw-compare-side")
    assert not side.is_visible()
    for change in (
        lambda: page.locator(".aw-compare").get_by_text("agreement", exact=True).click(),
        lambda: page.locator(".aw-agree tbody td").nth(1).click(),
        lambda: page.locator(".aw-compare").get_by_text("rows", exact=True).click(),
        lambda: token(page, "cabinet").hover(),
        lambda: token(page, "cabinet").click(),
        lambda: page.locator(".aw-compare-name").nth(1).click(),
        lambda: page.locator(".aw-compare").get_by_text("own scales").click(),
        lambda: page.locator(".aw-profile").get_by_text("own scales").click(),
        lambda: page.locator(".aw-profile").get_by_role("button", name="next layer (hold to play)").click(),
        lambda: page.locator(".aw-flow-plot").click(position={"x": 80, "y": 40}),
    ):
        change()
        assert heights() == before
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0


def test_filters_act_on_every_row_and_every_line(minilm, open_page, tmp_path, screenshot):
    read = aw.trace(*minilm, "The keys to the cabinet are here.")
    views = (
        aw.compare(read, hide_special="renormalise", layer=2),
        aw.views.LayerProfile(read, layer=2, hide_special=True),
    )
    page = opened(open_page, tmp_path, *views)
    page.locator(".aw-agree tbody td").nth(3).wait_for()
    words = read.units["token"]
    special = [i for i, flag in enumerate(words.special) if flag]
    assert "the rest of a row divided by its sum" in page.locator(".aw-compare .aw-filters").inner_text()
    weights = aw.attention(read).mean().matrix(2)[words.labels.index("here")].astype(float)
    weights[special] = 0
    best = int(weights.argmax())
    page.locator(".aw-compare-text .aw-tok").nth(best).hover()
    number, rank = plain(values(page)[0]).split(" · ")
    assert float(number) == pytest.approx(weights[best] / weights.sum(), rel=1e-3)
    assert rank == "1st"
    page.locator(".aw-compare-text .aw-tok").nth(special[0]).hover()
    assert values(page)[0] == "left out"
    profiled = page.locator(".aw-profile")
    profiled.locator(".aw-strip").nth(1).locator(".aw-tok").nth(special[0]).click()
    page.mouse.move(0, 0)
    assert "attention left out" in profiled.locator(".aw-readout").inner_text()
    assert profiled.locator(".aw-profile-plot circle").count() == 0
    screenshot(page, "filtered-rows.png", full_page=True)


def test_special_tokens_stand_apart_from_rows_and_scale(minilm, page_of):
    read = aw.trace(*minilm, "The keys to the cabinet are here.")
    page = page_of(aw.compare(read, layer=2), aw.FlowView(read))
    page.locator(".aw-compare-name").nth(1).wait_for()
    row = aw.attention(read).mean().matrix(2)[list(read.tokens).index("here")].astype(float)
    special = np.array(read.units["token"].special, dtype=bool)
    assert float(values(page)[0]) == pytest.approx(row[~special].max(), rel=0.06)
    share = page.locator(".aw-compare-ends .aw-compare-apart").first.get_attribute("title")
    assert float(share.split("account for ")[1].split(" %")[0]) == pytest.approx(
        100 * row[special].sum(), abs=0.1
    )
    assert "Special tokens are not ranked" in page.locator(".aw-compare-side").inner_text()
    # FlowView opens on the last token with letters.
    page.locator(".aw-flow .aw-readout", has_text="is made of").wait_for(state="attached")
    assert plain(page.locator(".aw-flow .aw-readout").inner_text()).startswith("“here” after layer 5")


@pytest.fixture
def profiled(trace, open_page, tmp_path):
    views = aw.views.LayerProfile(trace, cues=["keys", "are"]), aw.Heatmap(aw.attention(trace))
    page = opened(open_page, tmp_path, *views)
    page.locator(".aw-profile-plot path").nth(1).wait_for()
    return page


def test_lines_follow_the_pin_and_a_click_selects_the_layer(profiled, trace):
    readout = profiled.locator(".aw-profile .aw-readout")
    both = aw.attention(trace).mean().matrix(0)[6, [1, 5]].sum()
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
    sources.locator(".aw-tok-chosen-key").nth(2).wait_for()
    three = aw.attention(trace).mean().matrix(0)[6, [1, 5, 2]].sum()
    assert sources.locator(".aw-tok-chosen-key").all_inner_texts() == ["keys", "to", "are"]
    said = profiled.locator(".aw-profile .aw-readout").inner_text()
    assert f"attention {float(f'{three:.4g}'):g}" in said
    sources.locator(".aw-tok").nth(4).click()
    assert sources.locator(".aw-tok-chosen-key").count() == 0


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
    flowing.locator(".aw-flow .aw-readout", has_text="are”\u2069 after layer 3 is made of").wait_for()
    row = aw.rollout(trace).matrix(3)[5]
    said = numbers_of(flowing.locator(".aw-flow .aw-readout").inner_text().split("made of")[1])
    np.testing.assert_allclose(said, 100 * np.sort(row)[::-1][:5], rtol=0.04)
    assert "are" in flowing.locator(".aw-heatmap .aw-labs-left > .aw-lab-over:visible").inner_text()


def test_the_slider_says_how_much_is_shown(flowing):
    counts = flowing.locator(".aw-flow .aw-caption > .aw-note").last
    before = counts.inner_text()
    slider = flowing.get_by_role("slider", name="smallest share")
    slider.focus()
    slider.press("End")
    flowing.wait_for_function(
        """old => [...document.querySelectorAll('.aw-flow .aw-caption > .aw-note')]
            .at(-1).textContent !== old""",
        arg=before,
    )
    assert "of at least 50 %" in counts.inner_text()
    share = [float(text.split("≈ ")[1].split(" %")[0]) for text in (before, counts.inner_text())]
    assert share[1] < share[0] <= 100


def test_the_keyboard_moves_pins_and_lets_go(flowing):
    plot = flowing.locator(".aw-flow-plot")
    plot.focus()
    # It begins at the followed token, the last after the last layer.
    for key in (*["ArrowLeft"] * 5, "ArrowDown", "Enter"):
        flowing.keyboard.press(key)
    flowing.locator(".aw-heatmap .aw-where", has_text="layer 2").wait_for()
    assert flowing.locator(".aw-heatmap .aw-labs-left > .aw-lab-pin").inner_text() == "keys"
    assert "“keys”" in plot.get_attribute("aria-label").replace("\u2068", "").replace("\u2069", "")
    flowing.keyboard.press("Escape")
    flowing.locator(".aw-heatmap .aw-labs-left > .aw-lab-pin").wait_for(state="hidden")
