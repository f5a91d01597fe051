"""A view's texts as readers meet them: in its figure, on its page and in words.

`Seen` draws a view in all three; `lacks` and `lacks_values` return what is missing, and tests assert that
nothing is. `compares` registers the views of a test, so that those without one can be listed.
"""

from __future__ import annotations

import html
import re

from .settling import settle

NAMED = """root => [...root.querySelectorAll("*")].filter((e) => e.checkVisibility()).flatMap((e) => [
  e.ariaLabel ?? "", e.matches("input, select") ? e.value : "",
  [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data).join("")])"""


NUMBER = re.compile(r"[-+]?(?<![\d.])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?: ?%)?")


COMPARED: dict[str, str] = {}
"""The test that compares a view, by the view's name."""


def compares(*names):
    def register(test):
        COMPARED.update(dict.fromkeys(names, test.__name__))
        return test

    return register


def plain(words):
    """Words without isolates, with the same minus and space everywhere."""
    return re.sub("[\u2068\u2069]", "", words).replace("−", "-").replace("\u00a0", " ").strip()


def read(text):
    """The value of a printed number, and half a unit of its last digit."""
    share = 0.01 if text.endswith("%") else 1.0
    digits = text.rstrip("% ").replace(",", "")
    mantissa, _, power = digits.partition("e")
    return share * float(digits), share * 0.5 * 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))


class Seen:
    """The texts of a view by where they stand: "figure" (if it draws any), "page" and "words"."""

    def __init__(self, view, page_of, folder, act=None):
        self.words = plain(view.describe())
        self.texts = {"words": [self.words]}
        try:
            svg = html.unescape(view.save(folder / "figure.svg").read_text(encoding="utf-8"))
        except TypeError as error:
            assert "draws nothing of its own" in str(error)  # noqa: PT017
        else:
            self.figure = [plain(words) for words in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
            self.texts["figure"] = self.figure
            assert self.words in plain(svg)
        page = page_of(view)
        if act:
            act(page)
            settle(page)
        root = page.locator(".aw-root").first
        self.page = [words for words in map(plain, root.evaluate(NAMED)) if words]
        self.texts["page"] = self.page

    def lacks(self, *wanted, skip=()):
        """Return the wanted words that are in none of a kind's texts, as pairs (kind, words)."""
        return [
            (kind, words)
            for kind, texts in self.texts.items()
            if kind not in skip
            for words in wanted
            if not any(plain(words) in text for text in texts)
        ]

    def lacks_values(self, name, *values, error=0.0, skip=()):
        """Return the numbers after a name, by kind of text, where the values are not among them.

        Values are compared in the digits that are printed.
        """
        lacking = {}
        for kind, texts in self.texts.items():
            joined = " | ".join(texts)
            near = [
                [read(each) for each in NUMBER.findall(joined[match.end() :])[: len(values) + 1]]
                for match in re.finditer(re.escape(plain(name)), joined)
            ]
            if kind not in skip and not any(
                all(any(abs(at - value) <= half * 1.001 + error for at, half in row) for value in values)
                for row in near
            ):
                lacking[kind] = near
        return lacking
