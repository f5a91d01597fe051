"""Every control of every view answers: a click changes something, or the view says why not."""

from __future__ import annotations

import json

from .conftest import drawn

# Changes that a reader could notice: words, states of controls. The standing hint is no answer.
SEEN = """view => {
  const words = (root) => [...root.querySelectorAll(".aw-hint")]
    .reduce((all, hint) => all.replace(hint.textContent, ""), root.textContent);
  const states = [...view.querySelectorAll("*")].map(element => [...element.attributes]
    .filter(({ name }) => !name.startsWith("data-crawl")).map(({ name, value }) => name + value).join());
  const fields = [...view.querySelectorAll("input, select, textarea")]
    .map(({ value, checked }) => value + checked);
  return JSON.stringify([words(view.closest("main, .jp-Cell")), states, fields, view.clientHeight]);
}"""
# And the painted pixels, which are compared only where all of that is the same.
PAINTED = """view => [...view.querySelectorAll("canvas")].filter(({ width, height }) => width && height)
  .map(canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height))"""
DIFFER = """(before, after) => before.length !== after.length || before.some((image, n) => {
  const [a, b] = [image, after[n]].map(({ data }) => new Int32Array(data.buffer));
  return image.width !== after[n].width || a.length !== b.length || a.some((pixel, i) => pixel !== b[i]);
})"""
CONTROLS = """view => [...view.querySelectorAll("button, [role=tab]")]
  .filter(element => !element.disabled && element.checkVisibility() && element.ariaDisabled !== "true")
  .map((element, number) => {
    element.dataset.crawl = number;
    return [number, element.ariaLabel || element.title || element.textContent.trim()];
  })"""
# Chosen already, controls that begin to play, and controls that act in a PatchView (of another text there).
LEFT_OUT = (
    "[aria-pressed=true], [aria-selected=true], [aria-checked=true], [aria-label^=play], [title$='same text']"
)
# The earlier state stays in the page, which only answers whether it has changed.
CLICK = f"""(view, number) => {{
  const controls = view.querySelectorAll(`[data-crawl='${{number}}']`);
  const [control] = controls;
  if (controls.length !== 1 || !control.checkVisibility({{ visibilityProperty: true }})) return false;
  if (!control.getClientRects().length || control.matches(":disabled, [aria-disabled=true]")) return false;
  if (control.matches({json.dumps(LEFT_OUT)})) return false;
  window.before = {{ seen: ({SEEN})(view), painted: ({PAINTED})(view) }};
  control.click();
  return true;
}}"""
CHANGED = f"""view => ({SEEN})(view) !== window.before.seen
  || ({DIFFER})(window.before.painted, ({PAINTED})(view))"""
# All of it at once, where the page itself knows when it is at rest: null, or whether anything has changed.
ANSWERS = f"""async (view, number) => {{
  await awSettled();  // the click before is answered, and Escape after it
  if (!({CLICK})(view, number)) return null;
  await awSettled();
  return ({CHANGED})(view);
}}"""


def silent_controls(page, view, rest=None):
    """The number of clicked controls of a view, and the names of those whose click changes nothing.

    Args:
        page: The page.
        view: A part of it.
        rest: Waits until a click is answered; None: until the page is at rest.
    """
    clicked, silent = 0, []
    view = view.element_handle()  # a locator searches the page for every question
    for number, name in view.evaluate(CONTROLS):
        if rest is None:
            changed = view.evaluate(ANSWERS, number)
        elif view.evaluate(CLICK, number):
            rest()
            changed = view.evaluate(CHANGED)
        else:
            changed = None
        if changed is None:
            continue
        clicked += 1
        if not changed:
            silent.append(name)
        page.keyboard.press("Escape")
    return clicked, silent


def test_every_control_of_the_gallery_answers(open_page, gallery_page):
    path, names = gallery_page
    page = open_page(path.as_uri())
    drawn(page)
    silent = {}
    for view, heading in zip(page.locator(".aw-view").all(), names, strict=True):
        _, unanswered = silent_controls(page, view)
        if unanswered:
            silent[heading] = unanswered
    assert silent == {}
