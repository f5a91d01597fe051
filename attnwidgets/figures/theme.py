"""The theme of a page of figures: its colours, and labels of untrusted text, every character visible."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from attnwidgets._errors import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable

ThemeName = Literal["light", "dark"]

_HIDDEN = {0x061C, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF}
_NO_CHARACTER = 0xFFFE  # it and the next, in every plane: an XML file may not hold them
_MARKER = re.compile(r"\s*(<.*>|\[.*\])\s*")
_PICTURES = {"\n": "↵", "\t": "→"}


@dataclass(frozen=True)
class Theme:
    """Colours by their purpose.

    Attributes:
        name: "light" or "dark".
        page: Background.
        ink: Text.
        quiet: Secondary text.
        line: Thin lines.
        empty: Cells without a number.
        left_out: Behind text without a number.
        accent: Selected or pinned elements.
        amount: Bars of amounts.
        speaks_for: Bars that raise the target.
        against: Bars that lower it.
        apart: Special tokens, and values before a change.
    """

    name: ThemeName
    page: str
    ink: str
    quiet: str
    line: str
    empty: str
    left_out: str
    accent: str
    amount: str
    speaks_for: str
    against: str
    apart: str


LIGHT = Theme(
    name="light",
    page="#ffffff",
    ink="#1f2328",
    quiet="#5b6470",
    line="#d8dee4",
    empty="#ededed",
    left_out="#e6e6e6",
    accent="#0969c7",
    amount="#246cb3",
    speaks_for="#c17536",
    against="#8f79d5",
    apart="#98a2ad",
)
DARK = Theme(
    name="dark",
    page="#111418",
    ink="#e6e9ee",
    quiet="#a3adb8",
    line="#2f363f",
    empty="#1c2128",
    left_out="#2a3038",
    accent="#6cb2ff",
    amount="#74a5d6",
    speaks_for="#bd7946",
    against="#8f7dce",
    apart="#7d8793",
)
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


def theme_of(name: str) -> Theme:
    """Return a theme by its name.

    Raises:
        ValueError: The theme is unknown.
    """
    if name not in THEMES:
        raise ValueError(f"theme={name!r} is not 'light' or 'dark'.{suggest(str(name), THEMES)}")
    return THEMES[name]


@lru_cache(maxsize=4096)
def printable(text: str, limit: int = 24) -> str:
    """Return `text` with controls, bidi controls and invisible characters as code points (<U+202E>).

    Args:
        text: The label.
        limit: Length at which it is cut, with an ellipsis.
    """
    shown = "".join(_shown(character) for character in text[: limit * 2])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def is_right_to_left(labels: Iterable[str]) -> bool:
    """Return whether most letters are written from right to left; names in brackets do not count."""
    labels = tuple(labels)
    if all(map(str.isascii, labels)):
        return False
    letters = [
        letter for label in labels if not _MARKER.fullmatch(label) for letter in label if letter.isalpha()
    ]
    return 2 * sum(unicodedata.bidirectional(letter) in {"R", "AL"} for letter in letters) > len(letters)


def cells(text: str) -> int:
    """Return the width of `text` in columns of a monospaced font: two for wide, none for combining ones."""
    visible = (character for character in text if not unicodedata.combining(character))
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in visible)


def _shown(character: str) -> str:
    code = ord(character)
    if character in _PICTURES:
        return _PICTURES[character]
    category = unicodedata.category(character)
    if category == "Cs":  # a lone surrogate cannot be encoded
        return "\ufffd"
    # Few fonts have Unicode's symbols for controls (U+2400 and on): the code point is always legible.
    if code in _HIDDEN or category in ("Cc", "Zl", "Zp") or code & 0xFFFE == _NO_CHARACTER:
        return f"<U+{code:04X}>"
    return character
