"""marimo: every visitor of an app has a session of its own, in a thread of one process."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request

import pytest

pytestmark = pytest.mark.extended

APP = """
import marimo

app = marimo.App()


@app.cell
def _():
    import numpy as np
    import attnwidgets as aw
    rows = np.random.default_rng(0).dirichlet(np.ones(96), (6, 24, 96))
    trace = aw.from_attentions(rows, [f"t{i}" for i in range(96)])
    return aw, trace


@app.cell
def _(aw, trace):
    aw.Explorer(trace)
    return


@app.cell
def _(aw, trace):
    aw.Heatmap(trace)
    return
"""

COLOURS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


@pytest.fixture
def address(kernel_environment, tmp_path):
    pytest.importorskip("marimo", reason="pip install marimo (make test-all does it)")
    (tmp_path / "app.py").write_text(APP)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "marimo", "run", "app.py", "--headless", f"--port={port}", "--no-token"]
    server = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=kernel_environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    end = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            break
        except OSError:
            if server.poll() is not None or time.monotonic() > end:
                server.kill()
                pytest.fail("marimo did not start")
            time.sleep(0.3)
    yield address
    server.terminate()
    server.wait(20)


def test_two_visitors_see_linked_views_that_their_own_kernel_answers(open_page, address):
    for visitor in range(2):
        page = open_page(address)
        places = page.locator(".aw-heatmap .aw-where")
        places.nth(1).wait_for(timeout=60_000)
        page.locator(".aw-heatmap .aw-plot").first.focus()
        page.keyboard.press("End")
        for place in (places.first, places.nth(1)):
            place.filter(has_text="layer 5").wait_for()
        # A matrix that did not come with the view: only a kernel can have sent it.
        canvas = page.locator(".aw-heatmap .aw-plot canvas").first
        page.wait_for_timeout(1500)
        colours = canvas.evaluate(COLOURS)
        assert colours > 10, f"visitor {visitor} sees an empty matrix"
