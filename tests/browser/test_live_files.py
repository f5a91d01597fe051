"""A page whose model lies beside it: loaded on a click, over http and from a file, computed in a worker."""

from __future__ import annotations

import functools
import http.server
import re
import threading

import pytest

import attnwidgets as aw
from attnwidgets.explanations.results.verbalise import findings_of

from .test_live import knock, write

TEXT = "the queen said"
COMPARED = ".aw-explorer .aw-chips[data-compared]"


@pytest.fixture(scope="module")
def traced():
    return aw.trace(*aw.zoo.trained("alice"), "Alice was")


@pytest.fixture(scope="module")
def course(traced, tmp_path_factory):
    """The folder with the page."""
    folder = tmp_path_factory.mktemp("course")
    aw.to_html([aw.Explorer(traced, layer=0, head=0), aw.TokenStrip(traced)], f"{folder}/", live=True)
    return folder


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def served(course):
    """The address of the folder on a server."""
    handler = functools.partial(Quiet, directory=course)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


def line(page):
    return page.locator(".aw-live")


def load(page):
    page.get_by_role("button", name="Compute here").click()
    page.locator(".aw-live-about").get_by_text("Computed in this page").wait_for(timeout=120_000)


def explained(page, trace, rank):
    """Explain an outcome of the shown text, and find Python's findings about it."""
    target = trace.predictions(rank + 1)[rank].id
    page.locator(".aw-explorer .aw-chips .aw-chip").nth(rank).click()
    relevance = aw.lrp(trace, target=target)
    page.locator(".aw-explorer").get_by_text(findings_of(relevance)[0]).first.wait_for()
    return relevance


def knocked_out(page, trace):
    """Knock out the first head, and compare all outcomes that are shown with Python's."""
    knock(page, 0)
    page.locator(f"{COMPARED} .aw-chip").first.wait_for()
    page.locator(".aw-explorer .aw-active", has_text="0.0").wait_for()
    after = trace.rerun(aw.ablate_heads(trace, (0, 0))).predictions(1)[0]
    share = re.escape(f"{100 * after.probability:.1f}")
    page.locator(f"{COMPARED} .aw-chip").get_by_text(re.compile(share)).first.wait_for()


@pytest.mark.parametrize("protocol", ["http", "file"])
def test_a_model_beside_the_page_computes_as_python_does(open_page, course, served, traced, protocol):
    page = open_page(served if protocol == "http" else (course / "index.html").as_uri())
    line(page).get_by_text(re.compile(r"^zoo-alice-0, 0\.\d MB$")).wait_for()
    # The model is not there before the reader wants it; the recorded numbers are.
    names = "performance.getEntriesByType('resource').map(({ name }) => name).join()"
    assert "part-000" not in page.evaluate(names)
    page.locator(".aw-explorer .aw-chip").first.wait_for()
    load(page)
    write(page, TEXT)
    page.get_by_label("back to “Alice was”").wait_for()
    trace = aw.trace(traced.model, traced.tokenizer, TEXT)
    page.locator(".aw-explorer").get_by_text(findings_of(aw.lrp(trace))[0]).first.wait_for()
    explained(page, trace, 1)
    page.locator(".aw-explorer .aw-chips .aw-chip").nth(1).click()  # and back to the map
    knocked_out(page, trace)


def test_the_policy_allows_nothing_but_the_folder(open_page, served):
    meta = open_page(served).locator("meta[http-equiv=Content-Security-Policy]")
    policy = meta.get_attribute("content")
    assert policy.startswith(
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval' blob:; worker-src blob:;"
    )


def test_a_damaged_part_is_named_and_loaded_again(open_page, served):
    page = open_page(served)
    asked = []

    def damage(route):
        asked.append(route.request.url)
        body = route.fetch().text()
        if len(asked) == 1:
            body = body.replace("A", "B", 1)
        route.fulfill(body=body, content_type="text/javascript")

    page.route("**/part-000.js*", damage)
    page.get_by_role("button", name="Compute here").click()
    line(page).get_by_text("part-000.js is damaged").wait_for()
    page.get_by_role("button", name="Try again").click()
    page.locator(".aw-live-about").get_by_text("Computed in this page").wait_for()
    # Not the browser's cached copy.
    assert asked[0] != asked[1]


def test_what_does_not_arrive_is_said_and_loading_stops_and_goes_on(open_page, served):
    page = open_page()
    page.clock.install()
    page.goto(served)
    page.route("**/part-000.js*", lambda _: None)  # never answered
    page.get_by_role("button", name="Compute here").click()
    page.wait_for_function("() => document.querySelector('script[src*=part-000]')")
    page.clock.run_for(11_000)
    line(page).get_by_text("part-000.js does not arrive.").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Compute here").wait_for()
    page.unroute("**/part-000.js*")
    page.clock.resume()
    load(page)


def test_where_a_site_forbids_webassembly_the_page_says_so_and_computes(open_page, served):
    page = open_page()
    policy = "default-src 'none'; script-src 'self' blob:; worker-src blob:; style-src 'unsafe-inline'"
    headers = {"Content-Security-Policy": policy}
    page.route("**/index.html", lambda route: route.fulfill(response=route.fetch(), headers=headers))
    page.goto(served)
    load(page)
    line(page).get_by_text("This site forbids WebAssembly").wait_for()
    write(page, TEXT)
    page.get_by_label("back to “Alice was”").wait_for()


@pytest.mark.slow
def test_smollm2_runs_from_a_folder(open_page, tmp_path, screenshot, smollm2):
    """Loaded from a file, typed into, a token explained, a head knocked out, and a continuation stopped."""
    model, tokenizer = smollm2
    view = aw.Explorer(aw.trace(model, tokenizer, "The capital of France is"), layer=0, head=0)
    page = open_page(aw.to_html([view], tmp_path / "page.html", live=True).as_uri())
    load(page)
    text = "The opposite of hot is"
    write(page, text)
    page.get_by_label("back to").wait_for()
    trace = aw.trace(model, tokenizer, text)
    explained(page, trace, 1)
    screenshot(page, "live-smollm2.png", full_page=True)
    page.locator(".aw-explorer .aw-chips .aw-chip").nth(1).click()
    knocked_out(page, trace)
    page.get_by_role("button", name="Continue").click()
    field = page.get_by_label("your own text")
    longer = "text => document.querySelector('.aw-live-text').value.length > text.length"
    page.wait_for_function(longer, arg=text)
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Continue").wait_for()
    assert field.input_value().startswith(text)
