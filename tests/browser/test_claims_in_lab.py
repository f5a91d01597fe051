"""In a live JupyterLab the texts against a claim open at its head, and views write claims of pins."""

from __future__ import annotations

import pytest

# The first cell does all work, so that views open while the kernel is idle.
CELLS = (
    """import attnwidgets as aw
model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
texts = ["fadebcfadeb", "cgaehdcgaeh", "hbdfaghbdfa"]
roles = {"later": r".(.)$", "earlier": r"^(.)"}
report = aw.circuits.check_claims(
    model, tokenizer, ["head 1.1 attends from later to earlier", "head 1.0 is induction"], texts, roles=roles
)
pairs = [("fadebcfadeb", "fadebafadeb", "c", "a"), ("cgaehdcgaeh", "cgaehbcgaeh")]
moves = aw.circuits.claim("head 1.0 moves x to last")
causal = moves.check(model, tokenizer, pairs, roles={"x": r"^.{5}(.)"})
explorer = aw.Explorer(aw.trace(model, tokenizer, "bhgacdbhgac"))""",
    "claims = report.view()\nclaims",
    "moved = causal.view()\nmoved",
    "explorer",
    "along = report.view(linked=explorer)\nalong",
)
OUTPUT = ".jp-OutputArea"


@pytest.fixture(scope="module")
def notebook(lab):
    lab.write("claims.ipynb", *CELLS)
    page = lab.open("claims.ipynb")
    lab.run_all()
    page.locator(f"{OUTPUT} .aw-explorer").wait_for(timeout=90_000)
    return page


def output_of(notebook, number):
    """The output of a view of claims, by its number."""
    notebook.locator(f"{OUTPUT} .aw-claims").nth(number).scroll_into_view_if_needed()
    return notebook.locator(OUTPUT, has=notebook.locator(".aw-claims")).nth(number)


def test_a_text_opens_below_at_the_head_of_the_claim(lab, notebook):
    output = output_of(notebook, 0)
    rows = output.locator(".aw-claim-row")
    rows.nth(0).get_by_text("Open").click()
    output.locator(".aw-heatmap").wait_for()
    worst = "report.results[0].worst()[{}].text"
    lab.until("claims.opened.trace.text", lab.ask(worst.format(0)))
    assert lab.ask("[*map(tuple, claims.opened.selection.pins)]") == [[11, 1]]
    assert lab.ask("(claims.opened.selection.layer, claims.opened.selection.head)") == [1, 1]
    assert rows.nth(0).get_attribute("aria-current") == "true"
    rows.nth(1).get_by_text("Open").click()
    lab.until("claims.opened.trace.text", lab.ask(worst.format(1)))
    rows.nth(1).and_(output.locator("[aria-current]")).wait_for()
    assert output.locator(".aw-heatmap").count() == 1, "the same view goes on"


def test_a_pair_opens_as_what_patching_gives(lab, notebook):
    output = output_of(notebook, 1)
    output.locator(".aw-claim-row").first.get_by_text("Open").click()
    output.locator(".aw-patch").wait_for()
    assert lab.ask("moved.opened.options['cells']") == [["head", 1, None, 0]]
    assert output.locator(".aw-patch .aw-readout").inner_text().startswith("head 1.0")


def test_a_text_opens_in_the_linked_views(lab, notebook):
    output = output_of(notebook, 2)
    output.locator(".aw-claim-row").nth(1).get_by_text("Open").click()
    lab.until("explorer.trace.text", lab.ask("report.results[0].worst()[1].text"))
    assert lab.ask("[*map(tuple, explorer.selection.pins)]") == [[11, 1]]
    assert output.locator(".aw-heatmap").count() == 0


WRITTEN = """words => [...document.querySelectorAll('.aw-copy-told:not([hidden])')].some(
    (el) => el.innerText.includes(words) && el.querySelector('input').value.includes(words)
)"""


def test_a_claim_is_written_of_the_pinned_cell_and_of_the_head(lab, notebook):
    lab.do("explorer.at(text='cgaehdcgaeh', layer=1, head=0, pins=[(9, 6)])")
    button = notebook.locator(".aw-explorer").get_by_role("button", name="Claim", exact=True)
    button.click()
    notebook.wait_for_function(WRITTEN, arg="head 1.0 attends from a to d")
    lab.do("explorer.at(layer=1, head=0)")
    button.click()
    notebook.wait_for_function(WRITTEN, arg="head 1.0 is ")
