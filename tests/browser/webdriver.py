"""Firefox and WebKit as the system has them, with the names that Playwright gives the same things.

Playwright drives patched builds of both, and with another Firefox it needs commands that Firefox ESR lacks.
Selenium needs geckodriver, which Debian has not. Both browsers take W3C WebDriver's commands with the same
parameters: Firefox over a socket (Marionette, which geckodriver translates to), WebKit's driver over HTTP.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from itertools import count
from pathlib import Path

from tests.ports import free_port

from .settling import WATCH

SETTLED = 0.1  # seconds between two looks
STARTED = 60  # seconds that a browser may take to start
ANSWERS = 150  # seconds that a script in a page may take
LIMIT = 20_000  # milliseconds, as everywhere
CONSOLE_LINES = 500

# A function of one argument, or an expression, whose value is returned as JSON.
EVALUATE = """const [given, done] = arguments;
const plain = value => { try { return JSON.parse(JSON.stringify(value)) ?? null; } catch { return null; } };
Promise.resolve().then(() => { const it = (SOURCE); return typeof it === 'function' ? it(given) : it; })
  .then(value => done([null, plain(value)]), error => done([String(error), null]));"""
BOX = """selector => {
  const el = document.querySelector(selector);
  if (!el) return null;
  const out = r => r.top < 0 || r.bottom > innerHeight || r.left < 0 || r.right > innerWidth;
  if (out(el.getBoundingClientRect())) el.scrollIntoView({block: 'center', inline: 'center'});
  const {x, y, width, height} = el.getBoundingClientRect();
  return {x, y, width, height};
}"""
# Errors from here on; Firefox writes down the earlier ones as well.
LISTEN = """() => {
  if (window.awHeard) return;
  const heard = window.awHeard = [];
  const { error } = console;
  console.error = (...told) => { heard.push(told.map(String).join(' ')); error.apply(console, told); };
  // An observer's answer that comes one frame later is no error. WebKit tells nothing of errors in files.
  addEventListener('error', ({ message }) => {
    if (!/^(ResizeObserver loop|Script error)/.test(message)) heard.push(message);
  });
  addEventListener('unhandledrejection', ({ reason }) => heard.push(String(reason)));
}"""
KEYS = {
    "Backspace": "\ue003",
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "End": "\ue010",
    "Home": "\ue011",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}
COMMANDS = {  # of WebDriver over HTTP
    "Navigate": ("POST", "/url"),
    "ExecuteAsyncScript": ("POST", "/execute/async"),
    "PerformActions": ("POST", "/actions"),
    "TakeScreenshot": ("GET", "/screenshot"),
    "SetTimeouts": ("POST", "/timeouts"),
    "SetWindowRect": ("POST", "/window/rect"),
    "DeleteSession": ("DELETE", ""),
}
# Nothing leaves this machine; errors of a page are printed.
FIREFOX = {
    "marionette.port": 0,
    "browser.shell.checkDefaultBrowser": False,
    "browser.dom.window.dump.enabled": True,
    "devtools.console.stdout.content": True,
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
}


class WebDriverError(Exception):
    """The answer of a browser that did not do as told."""


def _until(started, name):
    end = time.monotonic() + STARTED
    while not (value := started()):
        if time.monotonic() > end:
            raise WebDriverError(f"{name} did not start within {STARTED} s")
        time.sleep(SETTLED)
    return value


class Firefox:
    """Firefox in a new profile, without a window."""

    name = "Firefox"
    needs = ("firefox-esr", "firefox")
    wrong = re.compile(
        r"JavaScript error: (blob|file|http):|console\.error: (?!RSLoader)"
    )  # that is Firefox's

    def __init__(self, path, folder, scheme):
        profile = folder / "profile"
        profile.mkdir()
        chosen = {
            **FIREFOX,
            "layout.css.prefers-color-scheme.content-override": ("dark", "light").index(scheme),
        }
        lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in chosen.items())
        (profile / "user.js").write_text("".join(lines))
        with (folder / "browser.log").open("wb") as log:
            self.process = subprocess.Popen(
                [path, "--headless", "--no-remote", "--marionette", "--profile", str(profile)],
                env={**os.environ, "HOME": str(folder)},
                stdout=log,
                stderr=log,
            )
        port = profile / "MarionetteActivePort"
        address = ("127.0.0.1", int(_until(lambda: port.is_file() and port.read_text(), "Firefox")))
        self._wire = socket.create_connection(address, ANSWERS).makefile("rwb")
        self._read()  # it says hello
        self._numbers = count(1)
        self.version = self.call("NewSession", {})["capabilities"]["browserVersion"]

    def _read(self):
        digits = b""
        while (digit := self._wire.read(1)) != b":":
            if not digit:
                raise WebDriverError("Firefox has ended")
            digits += digit
        return json.loads(self._wire.read(int(digits)))

    def call(self, name, parameters, limit=ANSWERS):
        told = json.dumps([0, next(self._numbers), f"WebDriver:{name}", parameters]).encode()
        self._wire.write(b"%d:%s" % (len(told), told))
        self._wire.flush()
        _, _, error, result = self._read()
        if error:
            raise WebDriverError(f"{error['error']}: {error['message']}")
        return result.get("value", result)

    def close(self):
        self.process.terminate()
        self.process.wait(20)


class WebKit:
    """WebKitGTK's small browser, on a screen that is not there."""

    name = "WebKit"
    needs = ("WebKitWebDriver",)
    wrong = None  # its driver throws away its output

    def __init__(self, path, folder, scheme):
        screen, number = os.pipe()
        with (folder / "browser.log").open("wb") as log:
            self._screen = subprocess.Popen(
                ["Xvfb", "-displayfd", str(number), "-screen", "0", "1800x1400x24", "-nolisten", "tcp"],
                pass_fds=[number],
                stdout=log,
                stderr=log,
            )
            os.close(number)
            with os.fdopen(screen) as shown:
                display = shown.readline().strip()
            port = free_port()
            nowhere = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https")}
            locations = {"DISPLAY": f":{display}", "HOME": str(folder), "no_proxy": "127.0.0.1,localhost"}
            self.process = subprocess.Popen(
                [path, f"--port={port}"],
                env={**os.environ, **nowhere, **locations, "WEBKIT_DISABLE_COMPOSITING_MODE": "1"},
                stdout=log,
                stderr=log,
            )
        self._address = f"http://127.0.0.1:{port}"
        _until(self._answers, "WebKitWebDriver")
        dark = ["--dark-mode"] if scheme == "dark" else []
        options = {"binary": str(mini_browser()), "args": ["--automation", *dark]}
        wanted = {"alwaysMatch": {"webkitgtk:browserOptions": options}}
        made = self._send("POST", "/session", {"capabilities": wanted})
        self.version = made["capabilities"]["browserVersion"]
        self._address += f"/session/{made['sessionId']}"

    def _answers(self):
        try:
            return self._send("GET", "/status", {})
        except OSError:
            return None

    def _send(self, method, path, parameters, limit=ANSWERS):
        data = json.dumps(parameters).encode() if method == "POST" else None
        request = urllib.request.Request(f"{self._address}{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=limit) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            told = json.load(error)["value"]
            raise WebDriverError(f"{told['error']}: {told['message']}") from error

    def call(self, name, parameters, limit=ANSWERS):
        return self._send(*COMMANDS[name], parameters, limit)

    def close(self):
        self.call("DeleteSession", {})
        for process in (self.process, self._screen):
            process.terminate()
            process.wait(20)


BROWSERS = {kind.name: kind for kind in (Firefox, WebKit)}


def mini_browser():
    """The browser that WebKitGTK's packages come with; None if it is not there."""
    return next(Path("/usr/lib").glob("*/webkit2gtk-4*/MiniBrowser"), None)


def missing(kind):
    """Why a browser cannot be driven here; empty if it can."""
    if not any(map(shutil.which, kind.needs)):
        return f"{kind.name} is not installed (no {' or '.join(kind.needs)}): make browsers"
    if kind is WebKit and not (shutil.which("Xvfb") and mini_browser()):
        return "WebKit needs its MiniBrowser and Xvfb: make browsers"
    return ""


class Page:
    """The page of a browser, with as much of Playwright's `Page` as its tests use."""

    def __init__(self, kind, folder, scheme="light", viewport=(1200, 900)):
        self._log = folder / "browser.log"
        self.pages = [self]  # of the context that it is, too
        self.browser = kind(next(filter(None, map(shutil.which, kind.needs))), folder, scheme)
        self.browser.call("SetTimeouts", {"script": 120_000})
        self.mouse = Mouse(self.browser)
        self.keyboard = Keyboard(self.browser)
        self.set_viewport_size(*viewport)

    def set_viewport_size(self, width, height):
        wide, high = self.evaluate("[outerWidth - innerWidth, outerHeight - innerHeight]")
        rect = {"x": 0, "y": 0, "width": width + wide, "height": height + high}
        self.browser.call("SetWindowRect", rect)
        self.wait_for_function("([w, h]) => innerWidth === w && innerHeight === h", arg=[width, height])

    def goto(self, address):
        self.browser.call("Navigate", {"url": str(address)})
        self.evaluate(LISTEN)
        self.evaluate(f"() => {{ {WATCH}; }}")

    def evaluate(self, source, arg=None):
        script = EVALUATE.replace("SOURCE", source)
        error, value = self.browser.call("ExecuteAsyncScript", {"script": script, "args": [arg]})
        if error:
            raise WebDriverError(error)
        return value

    def wait_for_timeout(self, milliseconds):
        """Pause between two looks, as `Lab.until` does."""
        time.sleep(milliseconds / 1000)

    def wait_for_function(self, source, *, arg=None, timeout=LIMIT):
        end = time.monotonic() + timeout / 1000
        while not (value := self.evaluate(source, arg)):
            if time.monotonic() > end:
                raise WebDriverError(f"after {timeout} ms there is not yet: {source} {arg}")
            time.sleep(SETTLED)
        return value

    def box(self, selector):
        """Where an element is, once it is there; it is scrolled into view."""
        return self.wait_for_function(BOX, arg=selector)

    def inner_text(self, selector):
        return self.wait_for_function("s => document.querySelector(s)?.innerText ?? null", arg=selector)

    def hover(self, selector, *, position=None):
        box = self.box(selector)
        x, y = (position["x"], position["y"]) if position else (box["width"] / 2, box["height"] / 2)
        self.mouse.move(box["x"] + x, box["y"] + y)

    def click(self, selector, *, position=None):
        self.hover(selector, position=position)
        self.mouse.down()
        self.mouse.up()

    def focus(self, selector):
        self.box(selector)
        self.evaluate("s => document.querySelector(s).focus()", selector)

    def screenshot(self, path, timeout=10_000):
        """Save a picture, for people; WebKit waits for a next frame, and sometimes there is none."""
        try:
            picture = self.browser.call("TakeScreenshot", {"full": False}, limit=timeout / 1000)
        except TimeoutError:
            return
        Path(path).write_bytes(base64.b64decode(picture))

    @property
    def console(self):
        """The last lines that the browser wrote, and errors of the page."""
        return [*self._written()[-CONSOLE_LINES:], *self.evaluate("window.awHeard ?? []")]

    def _written(self):
        return self._log.read_text(errors="replace").splitlines()

    def errors(self):
        """Errors of the page, and in all pages so far where the browser writes it down."""
        heard = self.evaluate("window.awHeard ?? []")
        if self.browser.wrong:
            heard += filter(self.browser.wrong.search, self._written())
        return heard

    def close(self):
        self.browser.close()


class Mouse:
    """Moves of a mouse, in pixels of the window."""

    def __init__(self, browser):
        self._browser = browser

    def _do(self, **action):
        mouse = {
            "type": "pointer",
            "id": "mouse",
            "parameters": {"pointerType": "mouse"},
            "actions": [action],
        }
        self._browser.call("PerformActions", {"actions": [mouse]})

    def move(self, x, y):
        self._do(type="pointerMove", x=round(x), y=round(y), duration=0, origin="viewport")

    def down(self):
        self._do(type="pointerDown", button=0)

    def up(self):
        self._do(type="pointerUp", button=0)


class Keyboard:
    """Keys, by the names that pages know them by."""

    def __init__(self, browser):
        self._browser = browser

    def press(self, key):
        value = KEYS.get(key, key)
        actions = [{"type": kind, "value": value} for kind in ("keyDown", "keyUp")]
        self._browser.call("PerformActions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def type(self, text):
        for letter in text:
            self.press(letter)
