"""Pages that Sphinx builds: views of notebooks and of saved explanations, without frames and kernel."""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.sphinx.site import NASTY, attention, broken_links, build

from .checks import BLANK
from .settling import settle

PAGE = """# Two views

```{toctree}
notebook
```

```{attnwidgets} attention.safetensors
:view: Heatmap
:layer: 1
:head: 2
```

```{attnwidgets} attention.safetensors
:view: TokenStrip
```
"""
NOTEBOOK = f"""---
file_format: mystnb
kernelspec:
  name: python3
---
# A notebook

```{{code-cell}}
import numpy as np
import attnwidgets as aw

tokens = {NASTY!r} + ["b", "c"]
weights = np.random.default_rng(0).dirichlet(np.ones(6), (2, 1, 3, 6)).astype(np.float32)
trace = aw.from_attentions(weights, tokens)
aw.Heatmap(trace)
```

```{{code-cell}}
from ipywidgets import VBox
VBox([aw.TokenStrip(trace), aw.LayerSlider(trace)])
```

```{{code-cell}}
view = aw.HeadGrid(trace)
view.selection.layer = 1
print("not shown")
```
"""
LIMIT = 1_000_000  # bytes of a page, without files that all pages share


@pytest.fixture(scope="module")
def site(tmp_path_factory, kernel_environment):
    for package in ("furo", "myst_nb"):
        pytest.importorskip(package, reason=f"pip install {package} (make test does it)")
    folder = tmp_path_factory.mktemp("course")
    (folder / "source").mkdir()
    attention().save(folder / "source" / "attention.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in kernel_environment.items():
            patch.setenv(name, value)
        extensions = ["myst_nb", "attnwidgets.sphinx"]
        settings = {"html_theme": "furo", "nb_execution_raise_on_error": True, "nb_execution_mode": "force"}
        out, warnings = build(
            folder, {"index.md": PAGE, "notebook.md": NOTEBOOK}, extensions=extensions, **settings
        )
    assert warnings == ""
    return out


def opened(open_page, address, **options):
    """Open a page and wait until every view is drawn."""
    page = open_page(address, **options)
    drawn(page)
    return page


def drawn(page):
    """Wait until every view of a page is drawn."""
    for view in page.locator(".aw-view").all():
        view.locator(".aw-root > *").first.wait_for(state="attached")
    page.wait_for_function("() => !document.querySelector('.aw-view [aria-busy=true]')")
    settle(page)


def check_pages(open_page, folder):
    """Open every page of a site: all of it is there, drawn and light enough."""
    for file in sorted(folder.rglob("*.html")):
        faults, used = [], set()
        page = open_page("about:blank")
        page.on("console", lambda said, to=faults: to.append(said.text) if said.type == "error" else None)
        page.on("requestfailed", lambda request, to=faults: to.append(request.url))
        page.on("request", lambda request, to=used: to.add(request.url))
        page.goto(file.as_uri())
        drawn(page)
        name = str(file.relative_to(folder))
        assert faults == [], name
        assert page.evaluate(BLANK) == [], name
        assert page.locator(".aw-root [role=alert]").count() == 0, name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert all(url.startswith("file:") for url in used), name
        paths = {Path(unquote(urlsplit(url).path)) for url in used}
        files = [path for path in paths if "_static" not in path.parts and path.is_file()]
        assert sum(path.stat().st_size for path in files) < LIMIT, name
        page.close()


def test_every_page_is_in_order(site, open_page):
    check_pages(open_page, site)
    assert broken_links(site) == []
    assert len(list(site.rglob("attnwidgets*.js"))) == 1  # shared by both


def test_a_pin_in_one_view_is_seen_in_the_other(site, open_page, screenshot):
    page = opened(open_page, (site / "index.html").as_uri())
    strip = page.locator(".aw-view").nth(1)
    before = strip.inner_text()
    plot = page.locator(".aw-heatmap .aw-plot").first
    plot.click(position={"x": 12, "y": 12})
    page.mouse.move(1, 1)
    strip.locator(".aw-footer .aw-readout").filter(has_text="the").wait_for()
    assert strip.inner_text() != before
    plot.focus()
    page.keyboard.press("ArrowUp")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.aw-view')].every(v => /layer 0/.test(v.innerText))"
    )
    screenshot(page, "sphinx-directive.png", full_page=True)


def test_views_of_a_notebook_stand_where_it_shows_them(site, open_page, screenshot):
    page = opened(open_page, (site / "notebook.html").as_uri())
    screenshot(page, "sphinx-notebook.png", full_page=True)
    kinds = """views => {
        const {models} = JSON.parse(document.getElementById('aw-state').textContent);
        return views.map((view) => models[view.dataset.model].view);
    }"""
    shown = page.locator("article .aw-view").evaluate_all(kinds)
    assert shown == ["Heatmap", "TokenStrip", "LayerSlider"]  # and no grid, which no cell shows
    text = page.locator("article").inner_text()
    assert "shown_views" not in text
    assert "not shown" in text
    # The last cell moved the layer, and all follow.
    assert page.locator("input[aria-label=layer]").first.input_value() == "1"
    assert page.evaluate("window.hacked") is None
    assert page.locator("script[src*=cdn], iframe").count() == 0


def test_views_follow_the_theme_s_switch(site, open_page):
    page = opened(open_page, (site / "index.html").as_uri(), color_scheme="light")
    look = """() => {
        const [root] = document.querySelectorAll('.aw-root');
        const style = getComputedStyle(root);
        const probe = document.createElement('i');
        probe.style.background = 'var(--aw-back)';
        root.append(probe);
        const back = getComputedStyle(probe).backgroundColor;
        probe.remove();
        return [root.dataset.awTheme, back === getComputedStyle(document.body).backgroundColor];
    }"""
    assert page.evaluate(look) == ["light", True]
    picture = page.locator(".aw-heatmap canvas").first
    before = picture.screenshot()
    switch = page.locator(".theme-toggle-content .theme-toggle")
    for _ in range(3):  # auto, light, dark
        switch.click()
        if page.evaluate("document.body.dataset.theme") == "dark":
            break
    page.wait_for_function("() => document.querySelector('.aw-root').dataset.awTheme === 'dark'")
    assert page.evaluate(look) == ["dark", True]
    settle(page)
    assert picture.screenshot() != before


def test_without_javascript_there_are_pictures_and_words(site, open_page):
    page = open_page((site / "notebook.html").as_uri(), java_script_enabled=False)
    picture = page.locator("noscript img").first
    assert picture.is_visible()
    assert picture.get_attribute("alt")
    page.goto((site / "index.html").as_uri())
    assert "Attention in layer 1, head 2" in page.locator("article").inner_text()


class _Strict(http.server.SimpleHTTPRequestHandler):
    """Serves a folder under a strict policy."""

    def end_headers(self):
        styles = "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:"
        self.send_header("Content-Security-Policy", f"default-src 'none'; script-src 'self'; {styles}")
        super().end_headers()

    def log_message(self, *args):
        pass


def test_a_policy_without_eval_and_inline_scripts_is_enough(tmp_path, open_page):
    (tmp_path / "source").mkdir()
    attention().save(tmp_path / "source" / "attention.safetensors")
    page = "A\n=\n\n.. attnwidgets:: attention.safetensors\n   :view: Explorer\n"
    out, _ = build(tmp_path, {"index.rst": page})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Strict, directory=out))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    refused = []
    try:
        page = open_page("about:blank")
        page.on("console", lambda said: refused.append(said.text) if "Security Policy" in said.text else None)
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.locator(".aw-explorer .aw-plot canvas").first.wait_for()
        drawn(page)
        assert page.evaluate(BLANK) == []
    finally:
        server.shutdown()
    assert [text for text in refused if "attnwidgets" in text or "eval" in text] == []


@pytest.mark.extended
def test_every_page_of_the_documentation_is_in_order(root, kernel_environment, tmp_path, open_page):
    """Runs every notebook, where `make docs` has not done so before."""
    for package in ("furo", "myst_nb", "latex2mathml"):
        pytest.importorskip(package, reason=f"pip install {package} (make test-all does it)")
    out = Path(os.environ.get("AW_SITE") or tmp_path / "site")
    if not out.is_dir():
        command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", "."]
        done = subprocess.run(
            [*command, str(out), "-d", str(tmp_path / "doctrees")],
            check=False,
            cwd=root,
            env=kernel_environment,
            capture_output=True,
            text=True,
            timeout=3000,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    check_pages(open_page, out)
    assert broken_links(out) == []
    search = (out / "searchindex.js").read_text(encoding="utf-8")
    assert json.dumps("notebooks/quickstart") in search
