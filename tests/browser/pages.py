"""Pages of Chromium behind a guard: requests out of this machine and errors are recorded.

A new context for every test costs as much as drawing a view. So a page is emptied after a test and
given to the next one, unless the test has failed or done something to it that lasts.
"""

from __future__ import annotations

from collections import deque
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from .lab import VIEWPORT
from .settling import WATCH
from .webdriver import CONSOLE_LINES

LIMIT = 20_000  # milliseconds; the cores may be shared

POOLED = 4  # pages
# Options that a page takes over after it was opened.
CHANGEABLE = {"viewport", "color_scheme"}
# State that outlasts a change of address: methods of the context, the page, its clock, keys and mouse.
LASTING = (
    (
        *("add_cookies", "add_init_script", "expose_function", "grant_permissions", "new_cdp_session"),
        *("new_page", "on", "route", "set_offline"),
    ),
    ("add_init_script", "close", "emulate_media", "expose_function", "on", "route", "set_default_timeout"),
    ("install", "pause_at", "set_fixed_time", "set_system_time"),
    ("down",),
    ("down",),
)


class Guard:
    """Records errors of pages, and requests that would leave this machine, which the proxy refuses."""

    def __init__(self, context):
        self.outside: list[str] = []
        self.errors: list[str] = []
        self.console: deque[str] = deque(maxlen=CONSOLE_LINES)
        self.is_served = False  # by a server, whose files the context caches
        context.add_init_script(WATCH)
        context.on("request", lambda request: self._check(request.url))
        context.on("page", self._watch)

    def clear(self):
        for record in (self.outside, self.errors, self.console):
            record.clear()

    def _check(self, url):
        address = urlsplit(url)
        self.is_served |= address.scheme in {"http", "https"}
        is_here = (address.hostname or "").endswith(("127.0.0.1", "localhost"))
        if address.scheme in {"http", "https", "ws", "wss"} and not is_here:
            self.outside.append(url)

    def _watch(self, page):
        page.on("pageerror", self._fail)
        page.on("console", self._hear)
        page.on("websocket", lambda wire: self._check(wire.url))

    def _fail(self, error):
        self.console.append(f"uncaught: {error}\n{error.stack or ''}")
        # Notebook 7 fails on its settings; the code of views comes from a blob.
        stack = error.stack or ""
        if "/static/notebook/" not in stack or "blob:" in stack:
            self.errors.append(f"{error}\n{stack}")

    def _hear(self, message):
        self.console.append(f"{message.type}: {message.text}")
        if message.type == "error" and ("attnwidgets" in message.text or "anywidget" in message.text):
            self.errors.append(message.text)


# The open pages of this process: a failing test leaves pictures and the console of all of it.
# Pages of other browsers than Chromium are both context and guard.
OPEN: list[tuple[Any, Any]] = []


class GuardedPage:
    """A page in its context; it is as new until something is done to it that lasts."""

    def __init__(self, browser, options):
        self.context = browser.new_context(**{"viewport": VIEWPORT, **options})
        self.guard = Guard(self.context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(LIMIT)
        self.is_as_new = options.keys() <= CHANGEABLE
        self._scheme = options.get("color_scheme", "light")
        page = self.page
        targets = (self.context, page, page.clock, page.keyboard, page.mouse)
        for target, names in zip(targets, LASTING, strict=True):
            for name in names:
                setattr(target, name, self._noted(getattr(target, name)))

    def _noted(self, method):
        @wraps(method)
        def lasts(*args, **kwargs):
            self.is_as_new = False
            return method(*args, **kwargs)

        return lasts

    def change(self, viewport=VIEWPORT, color_scheme="light"):
        """Give a page that is empty its options."""
        if self.page.viewport_size != viewport:
            self.page.set_viewport_size(viewport)
        if color_scheme != self._scheme:
            self.page.emulate_media(color_scheme=color_scheme)
        self._scheme, self.is_as_new = color_scheme, True

    def empty(self):
        """Leave a page as new."""
        self.page.goto("about:blank")
        self.page.mouse.move(-1, -1)  # an element drawn under the pointer would be hovered
        self.guard.clear()


class Pages:
    """Opens pages of a browser, and keeps those that are as new after a test for the next."""

    def __init__(self, browser):
        self._browser = browser
        self._kept: list[GuardedPage] = []

    def open(self, address, options):
        if self._kept and options.keys() <= CHANGEABLE:
            opened = self._kept.pop()
            opened.change(**options)
        else:
            opened = GuardedPage(self._browser, options)
        OPEN.append((opened.context, opened.guard))
        opened.page.goto(str(address))
        return opened

    def close(self, opened, *, keep=True):
        """Reuse a page that may be reused and is as new, close another; return the records of its guard."""
        guard = opened.guard
        OPEN.remove((opened.context, guard))
        outside, errors = [*guard.outside], [*guard.errors]
        is_as_new = opened.is_as_new and not (outside or errors or guard.is_served)
        if keep and is_as_new and len(self._kept) < POOLED:
            opened.empty()
            self._kept.append(opened)
        else:
            opened.context.close()
        return outside, errors
