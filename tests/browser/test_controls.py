"""Every control of every view answers: a click changes something, or the view says why not."""

from __future__ import annotations

import json

from .conftest import drawn
from .settling import settle

# What a reader could notice: words, states of controls, what is painted. The standing hint is no answer.
SEEN = """view => {
  const words = (root) => [...root.querySelectorAll(".aw-hint")]
    .reduce((all, hint) => all.replace(hint.textContent, ""), root.textContent);
  const painted = [...view.querySelectorAll("canvas")].map(canvas => canvas.toDataURL());
  const states = [...view.querySelectorAll("*")].map(element => [...element.attributes]
    .filter(({ name }) => !name.startsWith("data-crawl")).map(({ name, value }) => name + value).join());
  const fields = [...view.querySelectorAll("input, select, textarea")]
    .map(({ value, checked }) => value + checked);
  return JSON.stringify([words(view.closest("main, .jp-Cell")), painted, states, fields, view.clientHeight]);
}"""
CONTROLS = """view => [...view.querySelectorAll("button, [role=tab]")]
  .filter(element => !element.disabled && element.checkVisibility() && element.ariaDisabled !== "true")
  .map((element, number) => {
    element.dataset.crawl = number;
    return [number, element.ariaLabel || element.title || element.textContent.trim()];
  })"""
# Chosen already, what begins to play, and what acts in a PatchView, which the gallery has of another text.
LEFT_OUT = (
    "[aria-pressed=true], [aria-selected=true], [aria-checked=true], [aria-label^=play], [title$='same text']"
)
# What was seen stays in the page: only whether it has changed is asked.
CLICK = f"""(view, number) => {{
  const controls = view.querySelectorAll(`[data-crawl='${{number}}']`);
  const [control] = controls;
  if (controls.length !== 1 || !control.checkVisibility({{ visibilityProperty: true }})) return false;
  if (!control.getClientRects().length || control.matches(":disabled, [aria-disabled=true]")) return false;
  if (control.matches({json.dumps(LEFT_OUT)})) return false;
  window.seenBefore = ({SEEN})(view);
  control.click();
  return true;
}}"""
CHANGED = f"view => ({SEEN})(view) !== window.seenBefore"


def silent_controls(page, view, rest=None):
    """The number of clicked controls of a view, and the names of those whose click changes nothing.

    Args:
        page: The page.
        view: A part of it.
        rest: Waits until a click is answered; None: until the page is at rest.
    """
    clicked, silent = 0, []
    for number, name in view.evaluate(CONTROLS):
        if not view.evaluate(CLICK, number):
            continue
        clicked += 1
        rest() if rest else settle(page)
        if not view.evaluate(CHANGED):
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
