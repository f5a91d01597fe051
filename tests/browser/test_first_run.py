"""A notebook's first views: from the first frame in which an output shows something, it has its height."""

from __future__ import annotations

import json

CELLS = (
    """import attnwidgets as aw, numpy as np
rows = np.random.default_rng(0).dirichlet(np.ones(14), (4, 3, 14))
trace = aw.from_attentions(rows, [f't{i}' for i in range(14)])""",
    "aw.Explorer(trace)",
    "aw.CompareView([aw.attention(trace), aw.rollout(trace)])",
)

# After every frame: what each output shows, and how high that is.
WATCH = """() => {
  window.watched = new Map();
  const {port1, port2} = new MessageChannel();
  const look = () => {
    for (const output of document.querySelectorAll('.jp-OutputArea-child')) {
      if (!watched.has(output)) watched.set(output, []);
      const [skeleton, view] = ['p[style*=height]', '.aw-root > *'].map((name) => output.querySelector(name));
      const shown = skeleton ?? view?.parentElement;
      const height = shown?.getBoundingClientRect().height ?? 0;
      const shows = skeleton ? 'skeleton' : view ? 'view' : '';
      watched.get(output).push({now: performance.now(), shows, height});
    }
  };
  port1.onmessage = look;
  const next = () => { port2.postMessage(0); requestAnimationFrame(next); };
  next();
}"""


def test_a_view_has_its_height_from_the_first_frame(lab, shots):
    lab.write("first.ipynb", *CELLS)
    page = lab.open("first.ipynb")
    lab.run_cell(0)
    lab.until("int('trace' in globals())", 1, 90_000)
    page.evaluate(WATCH)
    for i in (1, 2, 1, 2):
        lab.run_cell(i)
        page.locator(".aw-framed").nth(i - 1).wait_for(timeout=60_000)
        page.wait_for_timeout(500)
    told = []
    for frames in page.evaluate("[...watched.values()]"):
        first = next(frame for frame in frames if frame["shows"])
        told.append([first["shows"], round(first["now"] - frames[0]["now"])])
        shown = {round(frame["height"]) for frame in frames[frames.index(first) :] if frame["shows"]}
        assert len(shown) == 1
        assert frames[-1]["shows"] == "view"
    (shots / "first-run.json").write_text(json.dumps(told))
    assert len(told) == 4
