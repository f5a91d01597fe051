"""Headless Chromium for the benchmarks: time to first paint, cost of an action, number of nodes."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "browser"))

from chromium import executable

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]

# A browser that uses less CPU than this within a pause has finished starting.
PAUSE, IDLE = 0.5, 0.02

# bertviz loads these from a CDN; here they come from their npm packages, so that it works offline.
LIBRARIES = {
    "require": ("requirejs@2.3.6", "requirejs-2.3.6.tgz", "package/require.js"),
    "d3": ("d3@5.7.0", "d3-5.7.0.tgz", "package/dist/d3.min.js"),
    "jquery": ("jquery@2.2.4", "jquery-2.2.4.tgz", "package/dist/jquery.min.js"),
}

# A page has painted in the frame after the one in which its predicate first holds.
WATCH = """
window.__mark = %s;
window.__look = () => {
  if (document.body && window.__mark())
    requestAnimationFrame(() => setTimeout(() => { window.__painted = performance.now(); }));
  else requestAnimationFrame(window.__look);
};
requestAnimationFrame(window.__look);
"""

# An action's pixels are on the screen two frames later.
ACT = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  await frame(); await frame();
  const start = performance.now();
  (%s)();
  await frame(); await frame();
  return performance.now() - start;
}"""


@dataclass
class Cost:
    """Cost of a page or an action: wall seconds, and CPU seconds of all the browser's processes."""

    seconds: float
    cpu: float


@dataclass
class Page:
    """An open page, its cost up to the first paint, and its number of elements."""

    handle: Any
    browser: Any
    paint: Cost
    nodes: int
    blocked: list[str]
    """Addresses outside this machine that the page requested in vain."""

    def act(self, action: str) -> Cost:
        """Run a JavaScript function and wait until its pixels are on the screen."""
        before = cpu_seconds(self.browser)
        milliseconds = self.handle.evaluate(ACT % action)
        return Cost(milliseconds / 1000, cpu_seconds(self.browser) - before)


def cpu_seconds(browser: Any) -> float:
    """Return the CPU seconds of the browser's processes since they started."""
    session = browser.new_browser_cdp_session()
    try:
        processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    finally:
        session.detach()
    return float(sum(process["cpuTime"] for process in processes))


def settled(browser: Any) -> float:
    """Return the CPU seconds once the browser has started: what it loads for itself is no page's cost."""
    before, now = -1.0, cpu_seconds(browser)
    while now - before > IDLE:
        time.sleep(PAUSE)
        before, now = now, cpu_seconds(browser)
    return now


def libraries(folder: Path) -> dict[str, bytes]:
    """Return the scripts that bertviz loads from a CDN, from npm, cached in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    scripts = {}
    for name, (package, archive, member) in LIBRARIES.items():
        if not (folder / archive).exists():
            subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True)
        with tarfile.open(folder / archive) as tar:
            script = tar.extractfile(member)
            if script is None:
                raise FileNotFoundError(f"{archive} does not contain {member}")
            scripts[name] = script.read()
    return scripts


@contextmanager
def opened(path: Path, mark: str, scripts: dict[str, bytes], seconds: float) -> Iterator[Page]:
    """Open a file in a fresh browser; wait until the JavaScript predicate `mark` holds and is painted.

    Raises playwright's TimeoutError after `seconds`, and its Error if the page crashes.
    """
    from playwright.sync_api import sync_playwright

    blocked: list[str] = []

    def serve(route: Any) -> None:
        url = route.request.url
        if url.startswith(("file:", "data:", "blob:")):
            route.continue_()
            return
        name = next((name for name in scripts if name in url.rsplit("/", 1)[-1]), None)
        if name is None:
            blocked.append(url)
            route.abort()
        else:
            route.fulfill(body=scripts[name], content_type="text/javascript")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        try:
            # Our standalone pages forbid eval, which playwright uses to wait.
            page = browser.new_page(viewport={"width": 1000, "height": 900}, bypass_csp=True)
            page.set_default_timeout(seconds * 1000)
            page.route("**/*", serve)
            page.add_init_script(WATCH % mark)
            before = settled(browser)
            page.goto(path.resolve().as_uri(), wait_until="commit")
            page.wait_for_function("window.__painted", polling=50)
            paint = Cost(page.evaluate("window.__painted") / 1000, cpu_seconds(browser) - before)
            nodes = page.evaluate("document.querySelectorAll('*').length")
            yield Page(page, browser, paint, nodes, blocked)
        finally:
            browser.close()
