"""A notebook's first views: an outline of the final height is seen first, be the code there or not."""

from __future__ import annotations

CELLS = (
    """import attnwidgets as aw, numpy as np
rows = np.random.default_rng(0).dirichlet(np.ones(14), (4, 3, 14))
trace = aw.from_attentions(rows, [f't{i}' for i in range(14)])""",
    "aw.Explorer(trace)",
    "aw.views.CompareView([aw.attention(trace), aw.rollout(trace)])",
)

# After every frame: the content of each output, and its height. A view waits for a frame, or 99 ms where
# there is none: a loaded machine draws later.
WATCH = """() => {
  const wait = window.setTimeout;
  window.setTimeout = (run, delay, ...rest) => wait(run, delay === 99 ? 20_000 : delay, ...rest);
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


# The core, which is the only module of this size, is imported when the page says so.
HELD_CORE = """() => {
  const make = URL.createObjectURL;
  window.core = new Promise((go) => { window.letGo = go; });
  URL.createObjectURL = (code) =>
    make.call(URL, code.size < 1e5 ? code : new Blob(["await window.core;", code], {type: code.type}));
}"""


def opened(lab, name):
    lab.write(name, *CELLS)
    page = lab.open(name)
    lab.run_cell(0)
    lab.until("int('trace' in globals())", 1, 90_000)
    page.evaluate(WATCH)
    return page


def seen(page):
    """The content of each output in every frame, from the first that is not empty."""
    of_outputs = page.evaluate("[...watched.values()]")
    starts = [next(i for i, frame in enumerate(frames) if frame["shows"]) for frames in of_outputs]
    return [frames[start:] for frames, start in zip(of_outputs, starts, strict=True)]


def test_the_outline_comes_first_and_has_the_height(lab):
    page = opened(lab, "first.ipynb")
    for i in (1, 2, 1, 2):
        lab.run_cell(i)
        page.locator(".jp-CodeCell").nth(i).locator(".aw-framed").wait_for(timeout=60_000)
        lab.rest()
    outputs = seen(page)
    for frames in outputs:
        assert len({round(frame["height"]) for frame in frames if frame["shows"]}) == 1
        assert [frames[0]["shows"], frames[-1]["shows"]] == ["skeleton", "view"]
    assert len(outputs) == 4


def test_the_outline_does_not_wait_for_the_code(lab):
    page = opened(lab, "late.ipynb")
    page.evaluate(HELD_CORE)
    lab.command("notebook:move-cursor-down")
    lab.command("notebook:run-cell")
    page.locator("p[style*=height]").wait_for(timeout=60_000)
    page.evaluate("letGo()")
    page.locator(".aw-framed").wait_for(timeout=60_000)
    lab.rest()
    (frames,) = seen(page)
    assert len({round(frame["height"]) for frame in frames if frame["shows"]}) == 1
    assert [frames[0]["shows"], frames[-1]["shows"]] == ["skeleton", "view"]
