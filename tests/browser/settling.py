"""Waits until a page has done everything that is due soon, so that no test sleeps for a fixed time."""

from __future__ import annotations

from typing import Any

# Frames, idle callbacks, inflating and copying count always; timers up to this delay. Longer ones (a tooltip,
# a retry, a player) are not set off at once by a gesture: a test that needs them waits for their effects.
SOON_MS = 350
LIMIT_MS = 30_000

# Runs before the scripts of every page and frame. In JupyterLab only the code of views counts, which comes
# from a blob: the application itself is never idle.
WATCH = """(() => {
  const due = new Set();
  const counts = () =>
    !document.getElementById("jupyter-config-data") || new Error().stack.includes("blob:");
  const wrap = (set, clear, isSoon) => {
    if (!(set in window)) return; // WebKit has no idle callbacks
    const [begin, end] = [window[set].bind(window), window[clear].bind(window)];
    const tickets = new Map();
    window[set] = (run, delay, ...rest) => {
      if (typeof run !== "function" || !isSoon(delay) || !counts()) return begin(run, delay, ...rest);
      const ticket = { toString: () => `${set}(${run.name}, ${delay ?? 0})` };
      due.add(ticket);
      const id = begin((...given) => {
        tickets.delete(id);
        try { run(...given); } finally { due.delete(ticket); }
      }, delay, ...rest);
      tickets.set(id, ticket);
      return id;
    };
    window[clear] = (id) => {
      due.delete(tickets.get(id));
      tickets.delete(id);
      end(id);
    };
  };
  const [later, clear] = [window.setTimeout.bind(window), window.clearTimeout.bind(window)];
  const frame = window.requestAnimationFrame.bind(window);
  wrap("setTimeout", "clearTimeout", (delay) => !(delay > SOON));
  wrap("requestAnimationFrame", "cancelAnimationFrame", () => true);
  wrap("requestIdleCallback", "cancelIdleCallback", () => true);
  // Work of the browser beside the page: a busy machine takes longer for it than for some frames.
  const awaited = (owner, name) => {
    const begin = owner?.[name]; // a page without a secure address has no clipboard
    if (begin) owner[name] = function (...given) {
      if (!counts()) return begin.apply(this, given);
      const ticket = { toString: () => name };
      due.add(ticket);
      return begin.apply(this, given).finally(() => due.delete(ticket));
    };
  };
  awaited(navigator.clipboard, "writeText");
  awaited(window, "createImageBitmap");
  awaited(HTMLImageElement.prototype, "decode");
  awaited(window.ReadableStreamDefaultReader?.prototype, "read"); // of inflated data
  // Three quiet frames: observers of sizes and intersections answer once a frame, and may set off the next.
  window.awSettled = () => new Promise((done, fail) => {
    if (window.__pwClock) throw new Error("the clock of this page is stopped: let it run on instead");
    const late = () => fail(new Error(`not at rest after LIMIT ms: ${[...due].join(", ")} due`));
    const limit = later(late, LIMIT);
    let quiet = 0;
    const look = () => {
      const moves = document.getAnimations().some((a) => a.playState === "running"
        && Number.isFinite(a.effect?.getComputedTiming().endTime));
      quiet = due.size === 0 && !moves ? quiet + 1 : 0;
      if (quiet < 3) return frame(look);
      clear(limit);
      done();
    };
    frame(look);
  });
})()""".replace("SOON", str(SOON_MS)).replace("LIMIT", str(LIMIT_MS))


def after(page: Any, milliseconds: int) -> None:
    """Let time pass in a page with a fake clock: its timers run, and then the browser's frames.

    In those, observers of sizes are told; their callbacks run by the page's clock again.
    """
    page.clock.run_for(milliseconds)
    for _ in range(2):
        page.wait_for_function("() => (window.looks = (window.looks ?? 0) + 1) % 4 === 0")  # once a frame
        page.clock.run_for(50)


def settle(page: Any) -> None:
    """Wait until a page or frame has no animation frame, no short timer and no transition before it."""
    page.evaluate("awSettled()")
