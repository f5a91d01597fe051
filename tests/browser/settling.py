"""Waits until a page has done everything that is due soon, so that no test sleeps for a fixed time.

What is read from a page after a gesture is read at rest: `rest_before_reading` sees to it for all tests. A
test of what a page shows meanwhile, or of one that never rests, reads it `in_motion`.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
  window.awSettled = (frames = 3) => new Promise((done, fail) => {
    if (window.__pwClock) throw new Error("the clock of this page is stopped: let it run on instead");
    const late = () => fail(new Error(`not at rest after LIMIT ms: ${[...due].join(", ")} due`));
    const limit = later(late, LIMIT);
    let quiet = 0;
    const look = () => {
      const moves = document.getAnimations().some((a) => a.playState === "running"
        && Number.isFinite(a.effect?.getComputedTiming().endTime));
      quiet = due.size === 0 && !moves ? quiet + 1 : 0;
      if (quiet < frames) return frame(look);
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
    _moved.discard(page)
    page.evaluate("awSettled()")


# Pages with a gesture after which nobody has waited for rest, and pages that are read all the same.
_moved: WeakSet[Any] = WeakSet()
_in_motion: WeakSet[Any] = WeakSet()

GESTURES = (
    *("blur", "check", "clear", "click", "dblclick", "dispatch_event", "drag_to", "fill", "focus", "hover"),
    *("press", "press_sequentially", "scroll_into_view_if_needed", "select_option", "select_text"),
    *("set_checked", "set_viewport_size", "tap", "type", "uncheck"),
)
STROKES = ("down", "insert_text", "move", "up", "wheel", *GESTURES)  # of the keyboard and the mouse
READINGS = (
    *("all_inner_texts", "all_text_contents", "aria_snapshot", "bounding_box", "count", "eval_on_selector"),
    *("eval_on_selector_all", "evaluate", "evaluate_all", "get_attribute", "inner_html", "inner_text"),
    *("input_value", "is_checked", "is_disabled", "is_editable", "is_enabled", "is_hidden", "is_visible"),
    *("screenshot", "text_content"),
)
# Most pages are at rest already, and three frames after each gesture would add up.
_REST = "window.__pwClock ? undefined : window.awSettled?.(1)"


def rest_before_reading(page_class: type, locator_class: type) -> None:
    """Let pages rest after a gesture before anything is read from them, in every test of this process."""
    page_of = {page_class: lambda page: page, locator_class: lambda locator: locator.page}
    for owner, page in page_of.items():
        for names, wrap in ((GESTURES, _moving), (READINGS, _reading)):
            for name in names:
                if hasattr(owner, name):
                    setattr(owner, name, wrap(getattr(owner, name), page))


def moves(page: Any) -> None:
    """Let the strokes of a page's keyboard and mouse count as gestures."""
    for device in (page.keyboard, page.mouse):
        for name in STROKES:
            if hasattr(device, name):
                setattr(device, name, _moving(getattr(device, name), lambda *_: page))


@contextmanager
def in_motion(page: Any) -> Iterator[None]:
    """Read a page that is not at rest."""
    _in_motion.add(page)
    try:
        yield
    finally:
        _in_motion.discard(page)


def _moving(gesture: Callable[..., Any], page_of: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(gesture)
    def moving(*args: Any, **kwargs: Any) -> Any:
        _moved.add(page_of(*args[:1]))
        return gesture(*args, **kwargs)

    return moving


def _reading(read: Callable[..., Any], page_of: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(read)
    def reading(*args: Any, **kwargs: Any) -> Any:
        page = page_of(args[0])
        if page in _moved and page not in _in_motion:
            _moved.discard(page)
            page.evaluate(_REST)
        return read(*args, **kwargs)

    return reading
