"""Predictions and filters with a kernel: texts are written when asked for; Python knows the choice."""

from __future__ import annotations

import pytest

CELLS = (
    """import attnwidgets as aw
trace = aw.trace(*aw.zoo.trained("alice"), "alice was beginning to")""",
    "panel = aw.Predictions(trace)\npanel",
    "heatmap = aw.Heatmap(trace, keep_mass=0.9)\nheatmap",
)


@pytest.fixture(scope="module")
def opened(lab):
    lab.write("predictions.ipynb", *CELLS)
    page = lab.open("predictions.ipynb")
    lab.run_all()
    page.locator(".aw-heatmap .aw-cells").wait_for(timeout=90_000)
    return page


def test_texts_are_written_with_the_probabilities_python_gives(opened, lab, screenshot):
    panel = opened.locator(".aw-predicts")
    panel.locator(".aw-segment", has_text="continuations").click()
    panel.get_by_label("tokens", exact=True).fill("4")
    panel.get_by_role("button", name="write").click()
    written = panel.locator(".aw-written li")
    written.first.wait_for(timeout=60_000)
    (text,) = lab.ask("[item.text for item in aw.continuations(trace, max_new_tokens=4)]")
    assert written.locator("bdi").inner_text().replace("↵", "\n") == text
    panel.get_by_label("how", exact=True).select_option("beam")
    panel.get_by_label("how many").fill("2")
    panel.get_by_role("button", name="write").click()
    written.nth(1).wait_for(timeout=60_000)
    texts = lab.ask("[item.text for item in aw.continuations(trace, 'beam', 2, max_new_tokens=4)]")
    assert [text.replace("↵", "\n") for text in written.locator("bdi").all_inner_texts()] == texts
    screenshot(opened, "continuations.png")


def test_a_token_of_the_text_tells_what_was_expected_there(opened, lab):
    panel = opened.locator(".aw-predicts")
    panel.locator(".aw-segment", has_text="surprisal").click()
    panel.locator(".aw-predicted .aw-tok").nth(5).click()
    panel.get_by_text("number 1 of").wait_for()
    first = panel.locator(".aw-predictions .aw-token").first.inner_text()
    assert first == lab.ask("trace.tokens[5]")
    panel.get_by_role("button", name="back to the next token").click()
    assert panel.locator(".aw-predictions .aw-token").first.inner_text() == lab.ask(
        "trace.predictions()[0].label"
    )


def test_python_knows_the_filters_of_a_reader_and_runs_again_with_its_own(opened, lab):
    heatmap = opened.locator(".aw-heatmap")
    assert "90 %" in heatmap.locator(".aw-filters").inner_text()
    heatmap.locator(".aw-tools > button").click()
    heatmap.get_by_label("special tokens").select_option("renormalise")
    lab.until("heatmap.options['filters']['special']", "renormalise")
    assert lab.ask("heatmap.options['filters']['mass']") == 0.9
