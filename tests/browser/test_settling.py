"""A page has settled when its frames and short timers are done; no request leaves this machine."""

from __future__ import annotations

import pytest

from .pages import OPEN
from .settling import LIMIT_MS, WATCH, settle


def opened(page):
    """The guard of a page."""
    return next(guard for context, guard in OPEN if context == page.context)


def test_chains_of_frames_and_timers_are_waited_for(open_page):
    page = open_page()
    page.evaluate("""() => {
      window.told = [];
      setTimeout(() => requestAnimationFrame(() => setTimeout(() => told.push('late'), 200)), 100);
      setTimeout(() => told.push('cleared'), 50);
      clearTimeout(setTimeout(() => told.push('never'), 20));
      setTimeout(() => told.push('long'), 60_000);
    }""")
    settle(page)
    assert page.evaluate("told") == ["cleared", "late"]


def test_a_transition_is_waited_for(open_page):
    page = open_page()
    page.evaluate("""() => {
      document.body.innerHTML = '<p style="opacity: 0; transition: opacity 200ms">a</p>';
      const style = document.querySelector('p').style;
      requestAnimationFrame(() => requestAnimationFrame(() => { style.opacity = 1; }));
    }""")
    settle(page)
    assert page.evaluate("getComputedStyle(document.querySelector('p')).opacity") == "1"


def test_what_is_slow_to_copy_is_waited_for(open_page):
    page = open_page()
    page.evaluate("""() => {
      const writeText = () => new Promise(done => setTimeout(done, 1_000));
      Object.defineProperty(navigator, "clipboard", { value: { writeText } });
    }""")
    page.evaluate(WATCH)
    page.evaluate("() => { navigator.clipboard.writeText('a').then(() => { window.told = 'copied'; }); }")
    settle(page)
    assert page.evaluate("told") == "copied"


def test_nothing_leaves_this_machine(open_page):
    page = open_page()
    guard = opened(page)
    assert (
        page.evaluate("fetch('https://example.com/a').then(() => 'answered', () => 'refused')") == "refused"
    )
    assert guard.outside == ["https://example.com/a"]
    guard.outside.clear()


def test_a_page_that_never_rests_is_an_error_that_says_why(open_page):
    page = open_page()
    page.evaluate(WATCH.replace(str(LIMIT_MS), "300"))
    page.evaluate("() => { const spin = () => setTimeout(spin, 5); spin(); }")
    with pytest.raises(Exception, match=r"not at rest .*setTimeout\(spin, 5\) due"):
        settle(page)


def test_a_page_is_used_again_as_new_unless_something_lasts(browser_pages):
    page = browser_pages.open(
        "about:blank", {"color_scheme": "dark", "viewport": {"width": 480, "height": 400}}
    )
    page.page.evaluate("window.left = true")
    browser_pages.close(page)
    again = browser_pages.open("about:blank", {})
    assert again is page
    dark = "matchMedia('(prefers-color-scheme: dark)').matches"
    assert again.page.evaluate(f"[typeof left, innerWidth, {dark}]") == ["undefined", 1200, False]
    again.page.route("**/*", lambda route: route.abort())
    browser_pages.close(again)
    other = browser_pages.open("about:blank", {})
    assert other is not page
    browser_pages.close(other)
