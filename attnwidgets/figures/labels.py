"""Untrusted text in figures: every character visible, none able to change the layout."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_HIDDEN = {0x061C, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF}
_NO_CHARACTER = 0xFFFE  # it and the next, in every plane: an XML file may not hold them
_MARKER = re.compile(r"\s*(<.*>|\[.*\])\s*")
_PICTURES = {"\n": "↵", "\t": "→"}


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
