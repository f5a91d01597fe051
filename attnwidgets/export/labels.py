"""Untrusted text on paper: every character visible, none of them in command of the line."""

from __future__ import annotations

import unicodedata

_FIRST_PRINTABLE, _DELETE = 0x20, 0x7F
_BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}


def printable(text: str, limit: int = 24) -> str:
    """Return `text` with controls as their pictures (␀) and bidi controls and invisibles as code points.

    Args:
        text: A label, as it came.
        limit: Length after which it is cut, with an ellipsis.
    """
    shown = "".join(_shown(character) for character in text[: limit * 2])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def cells(text: str) -> int:
    """Return the width of `text` in columns of a monospaced font: two for wide, none for combining ones."""
    width = 0
    for character in text:
        if not unicodedata.combining(character):
            width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return width


def _shown(character: str) -> str:
    code = ord(character)
    if code < _FIRST_PRINTABLE:
        return chr(0x2400 + code)
    if code == _DELETE:
        return "\u2421"
    category = unicodedata.category(character)
    if category in ("Cs", "Cc"):  # lone surrogates cannot be encoded; C1 controls have no picture
        return "\ufffd"
    if code in _BIDI or category in ("Zl", "Zp") or code in (0x200B, 0x2060, 0xFEFF):
        return f"<U+{code:04X}>"
    return character
